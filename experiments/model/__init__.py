"""The model fabric: switches, links, hosts and TCP in virtual time, around the real central controller.

Start with fabric.py, then control_plane.py (how the controller is attached) and tcp.py. docs/experiments.md has an
example.
"""

LEAST_SLOT_S, MOST_SLOT_S = 1e-5, 0.01  # how long a slot of virtual time may be
