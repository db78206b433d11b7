"""``dets bench allocation``: speed of the allocation algorithms.

Start with bench.py.
"""
