"""What would happen: shadow policies beside the real one, recordings, and replays of them.

Start with shadow.py.
"""
