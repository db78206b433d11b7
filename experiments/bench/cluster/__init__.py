"""``dets bench cluster``: how soon a standby takes over, what that costs, and kills in a row.

Start with bench.py; testbed has the disturbed cluster and the verdict.
"""
