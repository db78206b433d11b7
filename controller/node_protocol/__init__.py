"""What controllers that share switches say to each other, as bytes.

Start at layout.py, what a frame is; kinds.py has its columns, places.py what is said of switches and hosts.
"""
