"""The forwarding of frames: hosts, paths, and the resulting flow entries.

Start with pipeline.py (the tables of a switch), then forwarding_state.py; links between switches are in path_flows.py.
"""
