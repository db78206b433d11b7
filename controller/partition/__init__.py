"""One node of several that share the switches of a fabric out: its part, and what it knows of the others'.

Start at node_partition.py.
"""
