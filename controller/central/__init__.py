"""The central controller: one fabric's state, its interval and its changes.

Start with controller.py, then state.py (what is known) and interval.py (what is done with it).
"""
