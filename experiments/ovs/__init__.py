"""Fabrics of Mininet and Open vSwitch: the truth, as root.

Start with fabric.py.
"""
