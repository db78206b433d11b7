"""An OpenFlow 1.3 switch in software, without its socket: tables, meters, queues, ports, refusals.

Start with datapath.py, then pipeline.py (what happens to one frame).
"""
