"""Keeps the application's loops running in spite of errors, and records their state."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LOG = logging.getLogger("dets.loops")
RESTART_PAUSE_S = 1.0
# A loop that has not run for this long, besides its pause, counts as hung.
HANG_TIMEOUT_S = 60.0


@dataclass
class LoopState:
    """One loop: the number of its failures, the last error, and whether its last round failed.

    ``due_s`` is when it should have run again, on the supervisor's clock; None while it waits for work.
    """

    failures: int = 0
    last_error: str | None = None
    failing: bool = False
    due_s: float | None = None


class Supervisor:
    """Runs loops in their own greenlets. An exception ends a round, never a loop; failures are counted.

    ``clock`` is monotonic; ``spawn`` starts a greenlet and returns it, ``sleep`` lets others run, ``kill`` ends one.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        spawn: Callable[..., Any],
        sleep: Callable[[float], None],
        kill: Callable[[Any], None],
    ) -> None:
        self.loops: dict[str, LoopState] = {}
        self._clock, self._spawn, self._sleep, self._kill = clock, spawn, sleep, kill
        self._greenlets: list[Any] = []

    def every(self, name: str, interval_s: float, work: Callable[[], None]) -> None:
        """Start a loop that does ``work`` every ``interval_s``; after a longer round the next one follows at once."""
        state = self.loops[name] = LoopState()

        def rounds() -> None:
            due_s = self._clock()
            while True:
                due_s = max(due_s + interval_s, self._clock())
                state.due_s = due_s
                self._sleep(max(due_s - self._clock(), 0.0))
                self._attempt(name, state, work)

        self._greenlets.append(self._spawn(rounds))

    def on_demand(self, name: str, wait: Callable[[], None], work: Callable[[], None]) -> None:
        """Start a loop that does ``work`` whenever ``wait`` returns, and RESTART_PAUSE_S after a failure once more."""
        state = self.loops[name] = LoopState()

        def rounds() -> None:
            while True:
                state.due_s = None
                if state.failing:
                    self._sleep(RESTART_PAUSE_S)
                else:
                    wait()
                state.due_s = self._clock()
                self._attempt(name, state, work)

        self._greenlets.append(self._spawn(rounds))

    def stop(self) -> None:
        """End all loops."""
        for greenlet in self._greenlets:
            self._kill(greenlet)
        self._greenlets.clear()

    def faults(self) -> dict[str, str]:
        """Return the faults of loops by name: the last round failed, or the loop hangs."""
        now_s = self._clock()
        faults = {name: state.last_error or "" for name, state in self.loops.items() if state.failing}
        for name, state in self.loops.items():
            if state.due_s is not None and now_s - state.due_s > HANG_TIMEOUT_S:
                faults[name] = f"has not run for {now_s - state.due_s:.0f} s"
        return faults

    def _attempt(self, name: str, state: LoopState, work: Callable[[], None]) -> None:
        """Do one round of a loop; a failure is counted and logged."""
        try:
            work()
        except Exception as error:
            state.failures += 1
            state.failing = True
            state.last_error = f"{type(error).__name__}: {error}"
            LOG.exception("a round of the loop %r failed; the next one follows", name)
        else:
            state.failing = False
