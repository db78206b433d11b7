"""Fabrics: what they are made of (description) and how Mininet builds them."""
