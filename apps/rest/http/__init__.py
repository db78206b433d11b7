"""HTTP as this server speaks it: framing, access, bodies and problem documents.

Start with server.py.
"""
