"""The cluster that ``dets bench cluster`` disturbs and checks: controllers, switches with sending hosts, faults.

Start with loaded_cluster.py, which lists what must never happen; switch_logs.py has what the switches log.
"""
