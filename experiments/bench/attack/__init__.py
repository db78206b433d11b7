"""``dets bench attack``: what hostile peers cost the control loop and the tenants of other switches.

Start with attacks.py, the table of attacks; to add an attack, add a row. hostile_peer.py has the parts of attacks.
"""
