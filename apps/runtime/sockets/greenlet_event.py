"""A wait of one greenlet for another, with a limit: an event with a time-out takes 25 calls."""

from __future__ import annotations

from typing import Any

from eventlet import hubs
from greenlet import getcurrent


class TimedWait:
    """One greenlet waits, another one ends that, or the time does."""

    def __init__(self) -> None:
        self._waiting: Any = None
        self._ended: Any = None  # the timer by which it goes on

    def wait(self, timeout_s: float) -> None:
        """Let others run until ``end`` is called, ``timeout_s`` at most."""
        hub = hubs.get_hub()
        self._waiting = getcurrent()
        limit = hub.schedule_call_global(timeout_s, self._waiting.switch)
        try:
            hub.switch()
        finally:
            self._waiting = None
            limit.cancel()
            if self._ended is not None:  # it may have come in the same turn as the limit
                self._ended.cancel()
                self._ended = None

    def end(self) -> None:
        """Let whoever waits go on, in the next turn of the hub."""
        if self._waiting is not None and self._ended is None:
            self._ended = hubs.get_hub().schedule_call_global(0, self._waiting.switch)


class GreenletFlag:
    """Something that is so or not, and that one greenlet at a time may wait for: an event takes 10 calls to set."""

    def __init__(self) -> None:
        self._is_set = False
        self._until_set = TimedWait()

    def is_set(self) -> bool:
        """Return whether it is so."""
        return self._is_set

    def set(self) -> None:
        """It is so."""
        self._is_set = True
        self._until_set.end()

    def clear(self) -> None:
        """It is not so."""
        self._is_set = False

    def wait(self, timeout_s: float) -> None:
        """Let others run until it is so, ``timeout_s`` at most."""
        if not self._is_set:
            self._until_set.wait(timeout_s)
