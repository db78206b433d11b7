"""The fabric as described and as found: switches, ports, VLANs, VNs, the pairs of VNs and the links they share.

Start with config_model.py (what a configuration says), then vn_table.py and pair_table.py (the same as columns).
"""
