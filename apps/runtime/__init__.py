"""The runtime of the service: the framework, listeners, TLS, logs, supervision, and cooperative scheduling.

Start with launcher.py (how the process starts) and ryu_adapter.py; ``connection`` is one switch's connection. Only
these two and ``connection`` use Ryu; os_ken_manager.py uses its fork.
"""
