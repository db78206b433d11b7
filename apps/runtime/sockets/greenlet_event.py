"""A wait of one greenlet for another, with a timeout: an event with a timeout takes 25 calls."""

from __future__ import annotations

from typing import Any

from eventlet import hubs
from greenlet import getcurrent


class TimedWait:
    """One greenlet waits until another one ends the wait, or the time is over."""

    def __init__(self) -> None:
        self._waiting: Any = None
        self._ended: Any = None  # the timer that continues the greenlet

    def wait(self, timeout_s: float) -> None:
        """Let others run until ``end`` is called, at most ``timeout_s``."""
        hub = hubs.get_hub()
        self._waiting = getcurrent()
        limit = hub.schedule_call_global(timeout_s, self._waiting.switch)
        try:
            hub.switch()
        finally:
            self._waiting = None
            limit.cancel()
            if self._ended is not None:  # it may have ended in the same pass as the time limit
                self._ended.cancel()
                self._ended = None

    def end(self) -> None:
        """Let the waiting greenlet continue in the next pass of the hub."""
        if self._waiting is not None and self._ended is None:
            self._ended = hubs.get_hub().schedule_call_global(0, self._waiting.switch)


class GreenletFlag:
    """A flag that one greenlet at a time may wait for; setting an event takes 10 calls."""

    def __init__(self) -> None:
        self._is_set = False
        self._until_set = TimedWait()

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._is_set

    def set(self) -> None:
        """Set the flag."""
        self._is_set = True
        self._until_set.end()

    def clear(self) -> None:
        """Clear the flag."""
        self._is_set = False

    def wait(self, timeout_s: float) -> None:
        """Let others run until the flag is set, at most ``timeout_s``."""
        if not self._is_set:
            self._until_set.wait(timeout_s)
