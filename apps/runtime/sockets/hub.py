"""eventlet's hub, without wake-ups for cancelled timers.

A cancelled timeout stays in eventlet's queue until its time, and the process is then woken for nothing: once in a
round, for every wait with a timeout (docs/adr/0150).
"""

from __future__ import annotations

import heapq

from eventlet.hubs import epolls


class Hub(epolls.Hub):  # type: ignore[misc]  # eventlet has no types
    """The hub of Linux; ``eventlet.hubs.use_hub`` takes it."""

    def sleep_until(self) -> float | None:
        """Return when the first uncancelled timer is due, None without one; drop the cancelled timers before it."""
        timers = self.timers
        while timers and timers[0][1].called:
            heapq.heappop(timers)
            self.timers_canceled -= 1
        return timers[0][0] if timers else None
