"""The live state as a stream of server-sent events: as objects or as columns, of one node or of all.

Start with event_stream.py.
"""
