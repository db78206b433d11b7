"""What a switch can enforce: found out by test when it connects, and watched while traffic flows.

Start with capabilities.py.
"""
