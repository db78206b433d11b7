"""The resources of the REST interface: shown and changed.

Start with show.py, then change.py.
"""
