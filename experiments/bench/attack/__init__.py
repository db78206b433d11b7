"""``dets bench attack``: what hostile peers cost the control loop and the tenants of other switches.

Start with attacks.py: the table of attacks, to which one adds a row. hostile_peer.py is what they are made of.
"""
