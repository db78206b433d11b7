"""Several controllers of one fabric: which of them may change switches. Pure: times and what etcd says are arguments.

Start at leadership.py (the lease and who is active); ownership.py and placement.py are about switches that are shared
out over nodes, write_gate.py is what every message to a switch passes.
"""
