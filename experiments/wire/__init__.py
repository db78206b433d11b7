"""The wire fabric: OpenFlow 1.3 switches in software, connected to the real application over TCP, without root.

Start with fabric.py, then fluid_traffic.py (traffic as rates); the switch itself is in ``experiments.switch``.
"""
