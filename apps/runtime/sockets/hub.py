"""eventlet's hub, which does not wake up for what was cancelled.

A time-out that did not happen stays in eventlet's queue until it would have, and the process is woken then to find that
out: once in a round, for every wait that has a limit (docs/adr/0150).
"""

from __future__ import annotations

import heapq

from eventlet.hubs import epolls


class Hub(epolls.Hub):  # type: ignore[misc]  # eventlet has no types
    """The hub of Linux; ``eventlet.hubs.use_hub`` takes it."""

    def sleep_until(self) -> float | None:
        """Return when the first timer is due that still stands."""
        timers = self.timers
        while timers and timers[0][1].called:
            heapq.heappop(timers)
            self.timers_canceled -= 1
        return timers[0][0] if timers else None
