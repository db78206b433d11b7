"""The controller's own range of meter ids on one switch: ids outside of it are never touched."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


class MeterIds:
    """Gives out the lowest free id of ``first`` to ``last``."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self._most = last
        self._next = first
        self._free: list[int] = []
        self._used: set[int] = set()
        self._reserved: set[int] = set()

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
            if meter_id not in self._used:
                self._used.add(meter_id)
                return meter_id
        while self._next <= self._most:
            meter_id, self._next = self._next, self._next + 1
            if meter_id not in self._used:
                self._used.add(meter_id)
                return meter_id
        return None

    def reserve(self, standing: Iterable[int]) -> None:
        """Keep the ids of meters that stand on the switch from being taken, until they are claimed or released.

        Replaces the reservations made before.
        """
        for meter_id in list(self._reserved):
            self.release(meter_id)
        self._reserved = {meter_id for meter_id in standing if self.owns(meter_id) and meter_id not in self._used}
        self._used |= self._reserved

    def claim(self, meter_id: int) -> bool:
        """Mark an id that stands on the switch as in use; return whether it was free and in the range."""
        if not self.owns(meter_id) or (meter_id in self._used and meter_id not in self._reserved):
            return False
        self._used.add(meter_id)
        self._reserved.discard(meter_id)
        return True

    def release(self, meter_id: int) -> None:
        """Make an id free again."""
        if meter_id in self._used:
            self._used.remove(meter_id)
            self._reserved.discard(meter_id)
            heapq.heappush(self._free, meter_id)
