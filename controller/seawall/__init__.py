"""The Seawall paper: every link is shared by the weights of the VNs that send through it, whatever they send.

Start with loops.py (the paper's Class 2: a loop for each sender and link), then laws.py (Classes 1 and 3); policy.py
joins them.
"""
