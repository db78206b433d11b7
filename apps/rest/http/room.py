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
    """``most_bytes`` for the purpose ``name``, and half of them for one address (IPv6: one /64).

    The heap keeps freed memory (``apps.runtime.memory_tuning``): it is trimmed once nothing is reserved.
    """

    def __init__(
        self,
        name: str,
        most_bytes: int,
        tidy: Callable[[], None] = trim_heap,
        later: Callable[[float, Callable[[], None]], Any] = eventlet.spawn_after,
    ) -> None:
        self._name, self._most_bytes, self._tidy, self._later = name, most_bytes, tidy, later
        self._places = ConnectionSlots(most_bytes)
        self._is_due = False

    def reserve(self, address: str, count: int) -> None:
        """Reserve bytes for an address; raise HttpRefusedError (503) if there are not enough."""
        if not self._places.allocate(address, count):
            half = (self._most_bytes + 1) // 2
            reason = f"more do not fit: {self._most_bytes} bytes are held at a time, {half} of one address; try again"
            error = InvalidValueError(self._name, self._places.held_of(address) + count, reason)
            status, headers = HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "1"}
            raise HttpRefusedError(status, f"too-many-{self._name}", errors=[error], headers=headers)

    def release(self, address: str, count: int) -> None:
        """Release reserved bytes."""
        self._places.release(address, count)
        if not self._places.held and not self._is_due:
            self._is_due = True
            self._later(TIDY_S, self._tidy_up)

    def _tidy_up(self) -> None:
        self._is_due = False
        self._tidy()


class Reservation:
    """The bytes that one body, or one response, of an address has reserved; the first ``FREE_BYTES`` are free."""

    def __init__(self, room: MemoryLimit, address: str) -> None:
        self._room, self._address = room, address
        self._seen = self._held = 0

    def add(self, count: int) -> None:
        """Reserve more bytes; raise HttpRefusedError (503) if there are not enough."""
        self._seen += count
        wanted = max(self._seen - FREE_BYTES, 0) - self._held
        if wanted:
            self._room.reserve(self._address, wanted)
            self._held += wanted

    def end(self) -> None:
        """Release all bytes."""
        if self._held:
            self._room.release(self._address, self._held)
        self._seen = self._held = 0
