"""How frames find their way: hosts, paths, and the flow entries that follow from them.

Start with pipeline.py (the tables of a switch), then forwarding_state.py; links between switches are in path_flows.py.
"""
