"""Several controllers of one fabric, and which of them may change switches.

Pure: times and etcd's replies are arguments.

Start at leadership.py (the lease and the active node); ownership.py and placement.py assign switches to nodes in
sharded mode, and every message to a switch passes write_gate.py.
"""
