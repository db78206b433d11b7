"""The Seawall paper: every link is shared by the weights of the VNs that send through it, whatever they send.

Start with loops.py (what a link and a sender have to do with each other), then laws.py.
"""
