"""Cooperative scheduler: runs deferrable work while the control loop is idle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Time before a due round in which no slice begins: it might not end in time.
ROUND_GUARD_S = 0.005
MIN_SLEEP_S = 0.0005


class CooperativeScheduler:
    """The idle time of a control loop, for work in slices.

    One slice begins in each pass of the hub, in the order of requests: switches' replies are read between two passes,
    and do not wait for as many slices as there are requests (docs/adr/0064). No caller waits longer than an interval
    for idle time, including the slices before it, and none waits at all if rounds take longer than that.

    ``clock`` is monotonic, ``sleep`` lets other greenlets run; ``idle`` is an event that can be set, cleared and waited
    for, ``turn`` a FIFO semaphore of one, and ``later`` calls a function in the next pass of the hub.
    """

    def __init__(
        self,
        interval_s: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        idle: Any,
        turn: Any,
        later: Callable[[Callable[[], object]], object],
    ) -> None:
        self._interval_s = interval_s
        self._clock, self._sleep, self._idle = clock, sleep, idle
        self._turn, self._later = turn, later
        self._due_s = clock()
        self._overloaded = False
        idle.set()

    @contextmanager
    def control_round(self) -> Iterator[None]:
        """Enclose a round of the control loop; the next one is due an interval after the beginning of this one."""
        began_s = self._clock()
        self._due_s = began_s + self._interval_s
        self._idle.clear()
        try:
            yield
        finally:
            self._overloaded = self._clock() - began_s > self._interval_s
            self._idle.set()

    @contextmanager
    def io_wait(self) -> Iterator[None]:
        """Enclose a wait of the round: others may run. It may end one slice later."""
        self._idle.set()
        try:
            yield
        finally:
            self._idle.clear()

    def sleep(self, seconds: float) -> None:
        """Let others run for ``seconds``, and then until there is idle time."""
        self._sleep(seconds)
        self.wait()

    def yield_control(self) -> None:
        """Let others run between two batches."""
        self.sleep(0.0)

    def wait(self) -> None:
        """Let others run until it is the caller's turn and there is idle time, which may be now."""
        if self._overloaded:
            return
        deadline_s = self._clock() + self._interval_s
        self._turn.acquire()
        try:
            self._wait_until(deadline_s)
        finally:
            self._later(self._turn.release)

    def _wait_until(self, deadline_s: float) -> None:
        """Let others run until there is idle time, or the deadline."""
        while (left_s := deadline_s - self._clock()) > 0.0:
            due_in_s = self._due_s - self._clock()
            if not self._idle.is_set():
                self._idle.wait(left_s)
            elif -self._interval_s < due_in_s < ROUND_GUARD_S:  # a late round must begin before anything else
                self._sleep(max(due_in_s, MIN_SLEEP_S))
            else:
                return
