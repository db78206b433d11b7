"""The HyGenICC paper: marks from the fabric, token buckets at the source.

Start with law.py: what a sender's rate does when its frames are marked.
"""
