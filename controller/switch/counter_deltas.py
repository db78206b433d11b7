"""Changes of the counters of ports and queues from one reading to the next. Unknown is NaN, never zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.columns import FloatArray, IntArray
from controller.metering.counters import MIN_ELAPSED_S
from controller.openflow.constants import COUNTER_UNAVAILABLE


@dataclass(frozen=True)
class CounterDeltas:
    """Counter changes between two readings, by ascending ``key``; columns have its shape.

    ``delta`` maps a counter's name to its change, in its own unit: below zero where it went back. ``elapsed_s`` is the
    time between the readings on the switch's clock for that counter. NaN is unknown: the row is new, its clock went
    back (it was recreated) or hardly advanced (MIN_ELAPSED_S), or the switch does not keep the counter.
    """

    key: IntArray
    delta: Mapping[str, FloatArray]
    elapsed_s: FloatArray

    @classmethod
    def between(
        cls,
        names: tuple[str, ...],
        before: tuple[IntArray, NDArray[np.void]] | None,
        after: tuple[IntArray, NDArray[np.void]],
    ) -> CounterDeltas:
        """Return the changes of the counters ``names`` from one reading (None: no reading) to the next.

        A reading is (keys, PORT_STATS or QUEUE_STATS rows), one distinct key a row, in any order.
        """
        key, now = _sorted(*after)
        old_key, old = _sorted(*before) if before is not None else _sorted(key[:0], now[:0])
        at = np.searchsorted(old_key, key)
        known = at < len(old_key)
        known[known] = old_key[at[known]] == key[known]
        at = at[known]
        elapsed_s = np.full(len(key), np.nan)
        elapsed_s[known] = now["duration_s"][known] - old["duration_s"][at]
        elapsed_s[~(elapsed_s >= MIN_ELAPSED_S)] = np.nan
        moved = {}
        for name in names:
            count, old_count = now[name][known], old[name][at]
            # Subtracted as integers: a float has 53 bits, a counter 64.
            step = np.where(count >= old_count, count - old_count, old_count - count).astype(np.float64)
            step[count < old_count] *= -1.0
            step[(count == COUNTER_UNAVAILABLE) | (old_count == COUNTER_UNAVAILABLE)] = np.nan
            moved[name] = np.full(len(key), np.nan)
            moved[name][known] = step
            moved[name][np.isnan(elapsed_s)] = np.nan
        return cls(key, moved, elapsed_s)

    def rows_of(self, key: IntArray) -> tuple[NDArray[np.intp], IntArray]:
        """Return the indices of ``key`` that have a row here, and their rows."""
        if not len(self.key):
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64)
        row = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1).astype(np.int64)
        found = np.flatnonzero(self.key[row] == key)
        return found, row[found]

    def per_second(self, name: str, key: IntArray) -> FloatArray:
        """Return a counter's rate for any keys; NaN where it is unknown or the counter went back."""
        rate = np.full(len(key), np.nan)
        found, row = self.rows_of(key)
        moved = self.delta[name][row]
        rate[found] = np.where(moved >= 0.0, moved, np.nan) / self.elapsed_s[row]
        return rate


def _sorted(key: IntArray, rows: NDArray[np.void]) -> tuple[IntArray, NDArray[np.void]]:
    """Return keys and rows in ascending order of the keys."""
    if (key[1:] > key[:-1]).all():
        return key, rows
    order = np.argsort(key, kind="stable")
    return key[order], rows[order]
