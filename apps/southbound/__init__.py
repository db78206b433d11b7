"""The controller's conversation with switches in OpenFlow.

Start with southbound_driver.py, then polling.py (every interval) and bring_up.py (when a switch connects).
"""
