"""``dets bench allocation``: speed of the allocation algorithms, against numpy alone and other solvers.

Start with bench.py.
"""
