"""HTTP in this server: framing, access, bodies and problem documents.

Start with server.py.
"""
