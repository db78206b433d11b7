"""What any service needs: the framework, listeners, TLS, logs, supervision, and whose turn it is in the one thread.

Start with launcher.py (how the process starts) and ryu_seam.py (the only module that knows Ryu).
"""
