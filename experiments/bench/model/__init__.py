"""What the model fabric costs: see bench.py."""
