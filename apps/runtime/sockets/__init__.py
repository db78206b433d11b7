"""Reading of many switches' sockets in one call.

Start with bulk_request.py (replies that are decoded into columns directly), then socket_reader.py (all other bytes).
"""
