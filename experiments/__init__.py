"""Experiments on emulated fabrics, and benchmarks.

Start with scenarios/scenario.py (what is run) and runs/scenario_run.py (how); demo.py is ``make demo``.
"""
