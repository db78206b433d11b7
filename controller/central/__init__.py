"""The central controller: one fabric's state, its interval, its changes and its explanations.

Start with controller.py, then interval.py.
"""
