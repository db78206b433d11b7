"""The controller's own range of meter ids on one switch: ids outside of it are never touched."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

_FREE, _USED, _RESERVED = 0, 1, 2


class MeterIds:
    """Gives out the lowest free id of ``first`` to ``last``.

    What each id is, is kept as a byte, up to the greatest that was ever in use.
    """

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self._most = last
        self._next = first
        self._free: list[int] = []
        self._state = bytearray()

    def owns(self, meter_id: int) -> bool:
        """Return whether an id is in the range."""
        return self.first <= meter_id <= self.last

    def limit_to(self, most: int) -> None:
        """Give out no id above ``most``, the largest that the switch can have; those in use stay. Replaces the last."""
        self._most = min(self.last, most)

    @property
    def available(self) -> bool:
        """Whether an id may be left; only ``take`` knows for sure."""
        return bool(self._free and self._free[0] <= self._most) or self._next <= self._most

    def take(self) -> int | None:
        """Return a free id, now in use, or None when there is none left."""
        while self._free and self._free[0] <= self._most:
            meter_id = heapq.heappop(self._free)
            if self._is(meter_id) == _FREE:
                self._set(meter_id, _USED)
                return meter_id
        while self._next <= self._most:
            meter_id, self._next = self._next, self._next + 1
            if self._is(meter_id) == _FREE:
                self._set(meter_id, _USED)
                return meter_id
        return None

    def reserve(self, standing: Iterable[int]) -> None:
        """Keep the ids of meters that stand on the switch from being taken, until they are claimed or released.

        Replaces the reservations made before.
        """
        for index in [index for index, state in enumerate(self._state) if state == _RESERVED]:
            self.release(self.first + index)
        for meter_id in standing:
            if self.owns(meter_id) and self._is(meter_id) == _FREE:
                self._set(meter_id, _RESERVED)

    def claim(self, meter_id: int) -> bool:
        """Mark an id that stands on the switch as in use; return whether it was free and in the range."""
        if not self.owns(meter_id) or self._is(meter_id) == _USED:
            return False
        self._set(meter_id, _USED)
        return True

    def release(self, meter_id: int) -> None:
        """Make an id free again."""
        if self.owns(meter_id) and self._is(meter_id) != _FREE:
            self._set(meter_id, _FREE)
            heapq.heappush(self._free, meter_id)

    def _is(self, meter_id: int) -> int:
        index = meter_id - self.first
        return self._state[index] if index < len(self._state) else _FREE

    def _set(self, meter_id: int, state: int) -> None:
        index = meter_id - self.first
        self._state.extend(bytes(max(index + 1 - len(self._state), 0)))
        self._state[index] = state
