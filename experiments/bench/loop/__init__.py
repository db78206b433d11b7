"""``dets bench loop``: what a control interval costs by the number of entries, against stock Ryu.

Start with bench.py.
"""
