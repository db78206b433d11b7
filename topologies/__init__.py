"""Fabrics: what they are made of and how Mininet builds them.

Start with fabric.py (the description), then builders.py (the fabrics that there are); mininet_topo.py builds them in
Mininet.
"""
