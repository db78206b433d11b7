"""The long haul: churn on Open vSwitch, and a judgement of everything that must hold meanwhile (docs/experiments.md).

Start with run.py; schedule.py says what happens when, verdict.py what must hold.
"""
