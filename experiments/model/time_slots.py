"""How long a slot of virtual time may be."""

LEAST_SLOT_S, MOST_SLOT_S = 1e-5, 0.01
