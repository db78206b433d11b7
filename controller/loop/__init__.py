"""One control interval as a pure function, and which VLAN is under which policy.

Start with step.py.
"""
