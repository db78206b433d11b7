"""One control interval as a pure function, and its three sides: senders, receivers and grants.

Start with control_step.py, which calls the sides in the order of DETS's messages. remote_side.py is the interface to
other nodes.
"""
