"""HyGenICC's experiments: figures 2 and 3, and what its shares depend on. Start with fig2.py."""
