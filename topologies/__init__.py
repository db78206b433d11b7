"""Fabrics: their parts, and how Mininet builds them.

Start with fabric.py (the description), then builders.py (the known fabrics); mininet_topo.py builds them in Mininet.
"""
