"""What any service needs: the framework, listeners, TLS, logs, supervision, and whose turn it is in the one thread.

Start with launcher.py (how the process starts) and ryu_seam.py; ryu_datapath.py is one switch's connection.
Only these, the launcher, switch_connection.py, sockets/roll_call.py and peer_io.py know Ryu.
"""
