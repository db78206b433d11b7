"""``dets bench cluster``: how soon a standby takes over, what that costs, and kills in a row.

Start with bench.py; testbed is what is disturbed and judged.
"""
