"""Runs: a scenario under one control on one fabric, with the same columns whatever the fabric.

Start with run.py (what a run is and returns), then on_model.py, on_ovs.py and on_wire.py.
"""
