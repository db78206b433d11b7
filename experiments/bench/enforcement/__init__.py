"""``dets bench enforcement``: delivered against granted rates, on Open vSwitch.

Start with bench.py, then cases.py.
"""
