"""Gatekeeper's scenarios: its figures 3.1 and 5, and a blast that comes while the other tenant has the link.

Start with fig5.py.
"""
