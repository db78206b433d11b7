"""Soak test: churn on Open vSwitch, and a verdict on what must hold during it (docs/experiments.md).

Start with run.py; schedule.py has the actions and their times, verdict.py the conditions.
"""
