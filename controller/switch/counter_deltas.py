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
        old_row = np.searchsorted(old_key, key)
        was_read = old_row < len(old_key)
        was_read[was_read] = old_key[old_row[was_read]] == key[was_read]
        old_row = old_row[was_read]
        elapsed_s = np.full(len(key), np.nan)
        elapsed_s[was_read] = now["duration_s"][was_read] - old["duration_s"][old_row]
        elapsed_s[~(elapsed_s >= MIN_ELAPSED_S)] = np.nan
        delta = {}
        for name in names:
            count, old_count = now[name][was_read], old[name][old_row]
            # Subtracted as unsigned integers, since a float has 53 bits and a counter 64; then the sign is set.
            change = np.where(count >= old_count, count - old_count, old_count - count).astype(np.float64)
            change[count < old_count] *= -1.0
            change[(count == COUNTER_UNAVAILABLE) | (old_count == COUNTER_UNAVAILABLE)] = np.nan
            delta[name] = np.full(len(key), np.nan)
            delta[name][was_read] = change
            delta[name][np.isnan(elapsed_s)] = np.nan
        return cls(key, delta, elapsed_s)

    def rows_of(self, key: IntArray) -> tuple[NDArray[np.intp], IntArray]:
        """Return the positions in ``key`` that have a row in these deltas, and the rows."""
        if not len(self.key):
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64)
        row = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1).astype(np.int64)
        positions = np.flatnonzero(self.key[row] == key)
        return positions, row[positions]

    def per_second(self, name: str, key: IntArray) -> FloatArray:
        """Return a counter's rate per second for each key; NaN where unknown or where the counter went back."""
        rate = np.full(len(key), np.nan)
        positions, row = self.rows_of(key)
        delta = self.delta[name][row]
        rate[positions] = np.where(delta >= 0.0, delta, np.nan) / self.elapsed_s[row]
        return rate


def _sorted(key: IntArray, rows: NDArray[np.void]) -> tuple[IntArray, NDArray[np.void]]:
    """Return keys and rows in ascending order of the keys."""
    if (key[1:] > key[:-1]).all():
        return key, rows
    order = np.argsort(key, kind="stable")
    return key[order], rows[order]
