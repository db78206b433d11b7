"""``dets bench loop``: cost of a control interval by the number of pairs, against stock Ryu.

Start with bench.py.
"""
