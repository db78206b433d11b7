"""``dets bench rest``: cost of REST for the control loop, also under attack.

Start with bench.py.
"""
