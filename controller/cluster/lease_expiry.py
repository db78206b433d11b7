"""Detects that another node's lease has expired, before etcd removes it.

Etcd checks for expired leases every 0.5 s, and returns the remaining time in whole seconds, rounded down. "0" means
less than a second. A refreshed lease has at least a second left (the shortest lease is 2 s). So a lease has expired a
second after the first "0", if every later reply was "0" and the requests never paused for a second.
"""

from __future__ import annotations

import math

ROUNDING_S = 1.0


class LeaseExpiry:
    """The state of one lease. All times are of one clock."""

    def __init__(self) -> None:
        self.remaining_s = math.inf  # the last reply
        # Since when every reply is "0": the first one was received, the last one requested at these times.
        self._first_zero_s, self._last_zero_s = math.inf, -math.inf

    def observe(self, remaining_s: int, requested_s: float, received_s: float) -> bool:
        """Process a reply of etcd, and return whether the lease has expired.

        ``remaining_s`` is the lease's remaining time in etcd's reply, received at ``received_s``, to the request of
        ``requested_s``.
        """
        self.remaining_s = remaining_s
        if remaining_s > 0:
            self._first_zero_s, self._last_zero_s = math.inf, -math.inf
            return False
        has_paused = received_s - self._last_zero_s >= ROUNDING_S
        if has_paused:
            self._first_zero_s = received_s
        self._last_zero_s = requested_s
        return requested_s >= self._first_zero_s + ROUNDING_S
