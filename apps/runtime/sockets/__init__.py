"""What comes at the sockets of many switches, read in one call.

Start with roll_call.py (what goes to columns at once), then arrivals.py (all else, and the two forms).
"""
