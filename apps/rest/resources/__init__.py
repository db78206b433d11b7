"""The resources of the REST interface: shown, changed, streamed.

Start with show.py, then change.py.
"""
