"""Runs: a scenario under one control on one fabric, with the same columns on every fabric.

Start with scenario_run.py (a run and its results), then model_run.py, ovs_run.py and wire_run.py.
"""
