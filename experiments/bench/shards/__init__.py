"""``dets bench shards``: more nodes and pairs than a machine holds, in virtual time.

Start at bench.py; model.py runs the shards, world.py is what they control, delays.py says how long frames take.
"""
