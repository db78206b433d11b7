"""The meters of one switch as the controller has them: ids, settings, and those that limit nothing and only count.

Start with ids.py and settings.py; phantom.py and measuring.py are about congestion marks.
"""
