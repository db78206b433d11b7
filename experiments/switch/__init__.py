"""An OpenFlow 1.3 switch in software, without its socket: tables, meters, queues, ports, error replies.

Start with datapath.py, then pipeline.py (the path of one frame).
"""
