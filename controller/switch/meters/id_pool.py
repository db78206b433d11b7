"""The controller's own range of meter ids on one switch: ids outside of it are never used."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import ArrayLike, NDArray

from controller.columns import BoolArray, IntArray

_FREE, _USED, _RESERVED = 0, 1, 2


class MeterIdPool:
    """Allocates free ids of ``first`` to ``last``, low ones first.

    The state of each id is a byte, up to the greatest id that was ever in use.
    """

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self._max_id = last
        self.most_used: int | None = None
        """Maximum number of ids in use; None: all."""
        self._next = first  # the lowest id that ``allocate`` has not considered yet
        self._free: list[int] = []  # a heap of lower ids that were released; some may be in use again
        self._state = bytearray()

    def owns(self, meter_id: int) -> bool:
        """Return whether an id is in the range."""
        return self.first <= meter_id <= self.last

    def limit_to(self, max_id: int) -> None:
        """Allocate no id above ``max_id``, the switch's largest; ids in use stay. Replaces an earlier limit."""
        self._max_id = min(self.last, max_id)

    @property
    def available(self) -> bool:
        """Return whether an id may be free; only ``allocate`` knows for sure."""
        left = bool(self._free and self._free[0] <= self._max_id) or self._next <= self._max_id
        return left and not self._all_used

    @property
    def used(self) -> int:
        """The number of ids in use."""
        return self._state.count(_USED)

    @property
    def left(self) -> int:
        """The number of ids that can still be allocated."""
        states = self._state[: max(self._max_id - self.first + 1, 0)]
        free = self._max_id - self.first + 1 - (len(states) - states.count(_FREE))
        return max(free if self.most_used is None else min(free, self.most_used - self.used), 0)

    @property
    def _all_used(self) -> bool:
        return self.most_used is not None and self.used >= self.most_used

    def allocate(self) -> int | None:
        """Return a free id, now in use, or None if there is none."""
        if self._all_used:
            return None
        while self._free and self._free[0] <= self._max_id:
            meter_id = heapq.heappop(self._free)
            if self._is(meter_id) == _FREE:
                self._set(meter_id, _USED)
                return meter_id
        while self._next <= self._max_id:
            meter_id, self._next = self._next, self._next + 1
            if self._is(meter_id) == _FREE:
                self._set(meter_id, _USED)
                return meter_id
        return None

    def reserve(self, installed: ArrayLike) -> None:
        """Reserve the ids of installed meters, until they are claimed or released.

        Replaces earlier reservations.
        """
        ids = self._owned(np.asarray(installed, dtype=np.int64))
        states = self._states(ids)
        released = np.flatnonzero(states == _RESERVED)
        states[released] = _FREE
        index = ids - self.first
        states[index[states[index] == _FREE]] = _RESERVED
        free = np.union1d(np.array(self._free, dtype=np.int64) - self.first, released)
        self._free = (free[states[free] == _FREE] + self.first).tolist()  # ascending, which is a heap

    def claim(self, meter_id: int) -> bool:
        """Mark an installed id as in use; return whether it was in the range, and free or reserved."""
        if not self.owns(meter_id) or self._is(meter_id) == _USED:
            return False
        self._set(meter_id, _USED)
        return True

    def claim_all(self, meter_id: IntArray) -> BoolArray:
        """Claim ids one after the other.

        Return the mask of the claimed ones, shape of ``meter_id``: those that ``claim`` accepts, of equal ids the
        first.
        """
        ids, first = np.unique(meter_id, return_index=True)
        owned = (ids >= self.first) & (ids <= self.last)
        ids, first = ids[owned], first[owned]
        states = self._states(ids)
        free = states[ids - self.first] != _USED
        states[ids[free] - self.first] = _USED
        claimed = np.zeros(len(meter_id), dtype=np.bool_)
        claimed[first[free]] = True
        return claimed

    def release(self, meter_id: int) -> None:
        """Make an id free again."""
        if self.owns(meter_id) and self._is(meter_id) != _FREE:
            self._set(meter_id, _FREE)
            heapq.heappush(self._free, meter_id)

    def _owned(self, meter_id: IntArray) -> IntArray:
        return meter_id[(meter_id >= self.first) & (meter_id <= self.last)]

    def _states(self, ids: IntArray) -> NDArray[np.uint8]:
        """Return the writable states of ids, indexed by id less the first, up to at least the greatest of ``ids``."""
        self._state.extend(bytes(max(int(ids.max(initial=self.first - 1)) - self.first + 1 - len(self._state), 0)))
        return np.frombuffer(self._state, np.uint8)

    def _is(self, meter_id: int) -> int:
        index = meter_id - self.first
        return self._state[index] if index < len(self._state) else _FREE

    def _set(self, meter_id: int, state: int) -> None:
        index = meter_id - self.first
        self._state.extend(bytes(max(index + 1 - len(self._state), 0)))
        self._state[index] = state
