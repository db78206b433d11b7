"""``dets bench agent``: what an agent on a host costs, and how exact the rates are that it sets.

Start with bench.py.
"""
