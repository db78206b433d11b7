"""HyGenICC's experiments: figures 2 and 3, and the influences on its shares. Start with fig2.py."""
