"""Measurement: counter samples, rates computed from them, and the manifest of a run.

Start with rate_series.py.
"""
