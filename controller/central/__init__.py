"""The central controller: one fabric's state, its interval and its changes.

Start with controller.py, then fabric_state.py (what is known) and control_interval.py (what is done with it).
"""
