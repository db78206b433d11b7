"""One node's part of a sharded fabric, and its view of the other nodes' parts.

Start at node_partition.py.
"""
