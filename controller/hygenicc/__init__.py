"""The HyGenICC paper: marks from the fabric, token buckets at the source.

Start with law.py (Algorithm 1: how a sender's rate changes when its frames are marked); policy.py joins it with marks,
which the paper's Algorithm 2 counts. experiments/runs/reference_hygenicc.py is the listing, frame by frame.
"""
