"""``dets bench rest``: what REST costs the control loop, under attack too.

Start with bench.py.
"""
