"""Runs: a scenario under one control on one fabric, with the same columns whatever the fabric.

Start with scenario_run.py (what a run is and returns), then model_run.py, ovs_run.py and wire_run.py.
"""
