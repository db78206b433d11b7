"""What a switch can enforce, found by tests when it connects and by monitors while traffic flows.

Start with capabilities.py.
"""
