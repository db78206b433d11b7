"""``dets bench fidelity``: the model and Open vSwitch side by side.

Start with bench.py.
"""
