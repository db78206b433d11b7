"""What-if analysis: shadow policies next to the real one, recordings, and replays of them.

Start with shadow.py.
"""
