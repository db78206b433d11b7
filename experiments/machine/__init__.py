"""The machine of experiments: controllers and etcd as processes, namespaces, clocks, processors, kernel datapath.

Start with controller_process.py; cluster_process.py runs two or three that form a cluster.
"""
