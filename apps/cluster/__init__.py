"""Several controllers of one fabric on etcd: the lease, the roles at the switches, and settings that all nodes see.

Start at cluster_node.py: the control loop calls its ``round``. What may be concluded from etcd's answers is in
controller/cluster; docs/cluster.md tells operators.
"""
