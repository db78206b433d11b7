"""Reading of many switches' sockets in one call.

Start with bulk_request.py (bytes that go to columns directly), then socket_reader.py (all others, and the two forms).
"""
