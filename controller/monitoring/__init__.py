"""What is observed of a running controller: live rates, traffic since the start, series, links, and why
limits are as they are. It decides nothing.

Start with observer.py, or pair_explanation.py.
"""
