"""What comes at the sockets of many switches, read in one call.

Start with bulk_request.py (what goes to columns at once), then socket_reader.py (all else, and the two forms).
"""
