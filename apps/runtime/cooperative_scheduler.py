"""Cooperative scheduler: runs deferrable work while the control loop is idle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Time before a due round in which no slice begins: it might not end in time.
ROUND_GUARD_S = 0.005
MIN_SLEEP_S = 0.0005


class CooperativeScheduler:
    """Lets work in slices run while the control loop is idle.

    Work calls ``wait`` before each slice. One slice begins in each pass of the hub, in the order of the calls, so that
    switches' replies are read between two slices (docs/adr/0064). No caller waits longer than an interval. If rounds
    take longer than the interval, no caller waits at all.

    ``clock`` is monotonic, ``sleep`` lets other greenlets run. ``idle`` is an event that can be set, cleared and waited
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
        """Enclose a wait of the round, during which slices may run. The wait may end late by one slice."""
        self._idle.set()
        try:
            yield
        finally:
            self._idle.clear()

    def sleep(self, seconds: float) -> None:
        """Let other greenlets run for ``seconds``, and then until the control loop is idle."""
        self._sleep(seconds)
        self.wait()

    def yield_control(self) -> None:
        """Let other greenlets run between two slices, until the control loop is idle."""
        self.sleep(0.0)

    def wait(self) -> None:
        """Let other greenlets run until it is the caller's turn and the control loop is idle; maybe not at all."""
        if self._overloaded:
            return
        deadline_s = self._clock() + self._interval_s
        self._turn.acquire()
        try:
            self._wait_until(deadline_s)
        finally:
            self._later(self._turn.release)

    def _wait_until(self, deadline_s: float) -> None:
        """Let other greenlets run until the control loop is idle and no round is due soon, or until the deadline.

        A round that is late by more than an interval is not waited for.
        """
        while (remaining_s := deadline_s - self._clock()) > 0.0:
            next_round_in_s = self._due_s - self._clock()
            if not self._idle.is_set():
                self._idle.wait(remaining_s)
            elif -self._interval_s < next_round_in_s < ROUND_GUARD_S:  # due soon, or late: the round goes first
                self._sleep(max(next_round_in_s, MIN_SLEEP_S))
            else:
                return
