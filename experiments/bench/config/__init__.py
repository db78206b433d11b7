"""``dets bench config``: cost of a large configuration file: check, start, reload. Start with bench.py."""
