"""``dets bench allocation``: how fast the allocation algorithms are, against plain code and other solvers.

Start with bench.py.
"""
