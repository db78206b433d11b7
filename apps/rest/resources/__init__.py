"""The resources of the REST interface: shown and changed.

Start with read.py, then change.py.
"""
