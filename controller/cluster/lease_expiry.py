"""When another node's lease has run out, as one node may conclude before etcd removes it.

Etcd looks for leases that have run out every 0.5 s, and tells what is left of one in whole seconds, rounded down. "0"
means that less than a second is left. A lease that is refreshed has more for a second at least (the shortest is 2 s).
So it has run out a second after the first "0" was heard, if nothing else was heard since and nobody has looked away
for so long.
"""

from __future__ import annotations

import math

ROUNDING_S = 1.0


class LeaseExpiry:
    """Of one lease. All times are of one clock."""

    def __init__(self) -> None:
        self.left_s = math.inf  # as heard last
        self._first_s, self._last_s = math.inf, -math.inf  # less than a second was left: heard first, asked for last

    def observe(self, left_s: int, asked_s: float, heard_s: float) -> bool:
        """Etcd was asked at ``asked_s`` what is left, and its answer is heard; return whether the lease has run out."""
        watched, self.left_s = heard_s - self._last_s < ROUNDING_S, left_s
        if left_s > 0:
            self._first_s, self._last_s = math.inf, -math.inf
            return False
        if not watched:
            self._first_s = heard_s
        self._last_s = asked_s
        return asked_s >= self._first_s + ROUNDING_S
