"""The resources of the REST interface: reads and changes.

Start with read.py, then change.py.
"""
