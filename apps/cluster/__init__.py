"""Several controllers of one fabric on etcd: the lease, the roles at the switches, and settings that all nodes share.

Start at cluster_node.py: the control loop calls its ``poll_etcd``. The conclusions from etcd's replies are in
controller/cluster; docs/cluster.md is for operators.
"""
