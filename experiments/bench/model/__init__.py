"""The cost of the model fabric. Start with bench.py."""
