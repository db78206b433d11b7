"""The configuration file: read, checked as a whole, and turned into a description of the fabric.

Start with load.py; sections.py lists the keys, values.py says what values look like, and section_reader.py what is
wrong with a section.
"""
