"""``dets bench enforcement``: what is delivered against what is granted, on Open vSwitch.

Start with bench.py, then cases.py.
"""
