"""What any service needs: the framework, listeners, TLS, logs, supervision, and whose turn it is in the one thread.

Start with launcher.py (how the process starts) and ryu_adapter.py; ``connection`` is one switch's connection.
Only these two, ``connection`` and sockets/bulk_request.py know Ryu.
"""
