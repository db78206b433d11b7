"""What a large configuration file costs: checked, started with, reloaded. Read ``bench.py``."""
