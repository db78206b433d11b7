"""The fabric as configured and as discovered: switches, ports, VLANs, VNs, pairs of VNs and the links they share.

Start with config_model.py (the configuration as values), then vn_table.py and pair_table.py (VNs and pairs as columns).
"""
