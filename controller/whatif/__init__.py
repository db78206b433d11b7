"""What would happen: shadow policies next to the real one, recordings, and replays of them.

Start with shadow.py.
"""
