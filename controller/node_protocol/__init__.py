"""Messages between nodes in sharded mode, as bytes.

Start at header.py (the form of a message); message_types.py has the columns, switch_snapshot.py and host_update.py the
messages about switches and hosts.
"""
