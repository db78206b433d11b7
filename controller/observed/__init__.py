"""What is observed of a running controller: live rates, traffic since the start, series, links. It decides nothing.

Start with observer.py.
"""
