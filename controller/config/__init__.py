"""The configuration file: read, checked as a whole, and turned into a description of the fabric.

Start with loader.py; sections.py lists the keys, value_types.py has the form of values, and section_reader.py reports
the problems of a section.
"""
