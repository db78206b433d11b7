"""One control interval as a pure function, and its three sides: senders, receivers and grants.

Start with control_step.py, which calls the sides in the order of DETS's messages. What others do of it is in
remote_side.py.
"""
