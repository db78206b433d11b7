"""The controller's OpenFlow side.

Start with southbound_driver.py, then polling.py (every interval) and bring_up.py (when a switch connects).
"""
