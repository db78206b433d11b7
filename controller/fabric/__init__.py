"""The fabric as described and as found: switches, ports, VLANs, VNs, the pairs of VNs and the links they share.

Start with description.py (what a configuration says), then vns.py and entries.py (the same as columns).
"""
