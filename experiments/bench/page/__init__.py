"""``dets bench page``: what the live page costs a browser.

Start with bench.py.
"""
