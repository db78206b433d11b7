"""Memory limits of long bodies and long responses: in total, and for one address."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import eventlet

from apps.rest.http.access import ConnectionSlots
from apps.rest.http.body import MAX_BODY_BYTES, MAX_LONG_BODY_BYTES
from apps.rest.http.problems import HttpRefusedError
from apps.runtime.memory_tuning import trim_heap
from controller.errors import InvalidValueError

FREE_BYTES = MAX_BODY_BYTES
"""part of each body and response that needs no reservation: the number of connections bounds it"""
MAX_BODIES_BYTES = 4 * MAX_LONG_BODY_BYTES
MAX_ANSWERS_BYTES = 32 * 2**20
TIDY_S = 5.0
"""time from the last release to the next trim of the heap, and minimum time between two trims"""


class MemoryLimit:
    """Limits the bytes that are reserved for the purpose ``name``: ``most_bytes``, half of them for one address.

    The heap keeps freed memory (``apps.runtime.memory_tuning``). It is trimmed by ``tidy``, TIDY_S after the last bytes
    are released; ``later`` calls a function after a time.
    """

    def __init__(
        self,
        name: str,
        most_bytes: int,
        tidy: Callable[[], None] = trim_heap,
        later: Callable[[float, Callable[[], None]], Any] = eventlet.spawn_after,
    ) -> None:
        self._name, self._most_bytes, self._tidy, self._later = name, most_bytes, tidy, later
        self._slots = ConnectionSlots(most_bytes)
        self._is_due = False

    def reserve(self, address: str, count: int) -> None:
        """Reserve bytes for an address; raise HttpRefusedError (503) if there are not enough."""
        if not self._slots.allocate(address, count):
            half = (self._most_bytes + 1) // 2
            reason = f"more do not fit: {self._most_bytes} bytes are held at a time, {half} of one address; try again"
            error = InvalidValueError(self._name, self._slots.held_of(address) + count, reason)
            status, headers = HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "1"}
            raise HttpRefusedError(status, f"too-many-{self._name}", errors=[error], headers=headers)

    def release(self, address: str, count: int) -> None:
        """Release reserved bytes, and schedule a trim of the heap if none are left."""
        self._slots.release(address, count)
        if not self._slots.held and not self._is_due:
            self._is_due = True
            self._later(TIDY_S, self._trim)

    def _trim(self) -> None:
        self._is_due = False
        self._tidy()


class Reservation:
    """The bytes that one body, or one response, of an address has reserved; the first ``FREE_BYTES`` are free."""

    def __init__(self, room: MemoryLimit, address: str) -> None:
        self._limit, self._address = room, address
        self._total = self._reserved = 0

    def add(self, count: int) -> None:
        """Count ``count`` more bytes, and reserve them; raise HttpRefusedError (503) if there are not enough."""
        self._total += count
        additional = max(self._total - FREE_BYTES, 0) - self._reserved
        if additional:
            self._limit.reserve(self._address, additional)
            self._reserved += additional

    def end(self) -> None:
        """Release all bytes."""
        if self._reserved:
            self._limit.release(self._address, self._reserved)
        self._total = self._reserved = 0
