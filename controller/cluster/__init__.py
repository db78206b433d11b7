"""Two controllers of one fabric: which of them may change switches. Pure: times and what etcd says are arguments.

Start at leadership.py (the lease and who is active); write_gate.py is what every message to a switch passes.
"""
