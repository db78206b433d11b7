"""Monitoring of a running controller: live rates, traffic totals, time series, links, and explanations of limits.

It decides nothing.

Start with observer.py, or pair_explanation.py.
"""
