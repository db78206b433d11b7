"""What controllers that share switches say to each other, as bytes.

Start at header.py, what a frame is; message_types.py has its columns, switch_snapshot.py what is said of switches and
hosts.
"""
