"""Fabrics of Mininet and Open vSwitch, the reference for the other fabrics; they need root.

Start with fabric.py.
"""
