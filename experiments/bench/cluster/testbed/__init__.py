"""What ``dets bench cluster`` disturbs and judges: controllers, switches whose hosts talk, and what faults are done to.

Start at loaded_cluster.py, which says what must never happen; switch_logs.py is what switches have noted.
"""
