"""The configuration file: read, checked as a whole, and turned into a description of the fabric.

Start with loader.py; sections.py lists the keys, value_types.py says what values look like, and section_reader.py
what is wrong with a section.
"""
