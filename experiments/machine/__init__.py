"""The machine that experiments run on: controllers and etcd as processes, their namespaces and clocks, the processors,
the kernel datapath.

Start with controller_process.py; cluster_process.py runs two or three that know each other.
"""
