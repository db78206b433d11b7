"""The wire fabric: OpenFlow 1.3 switches in software that speak to the real application over TCP, without root.

Start with fabric.py, then rates.py (traffic as rates); the switch itself is in ``experiments.switch``.
"""
