"""What is measured, and with what: counter samples, rates made from them, and what a run was made with.

Start with rate_series.py.
"""
