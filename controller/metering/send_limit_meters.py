"""Send-limit meters: all traffic that a VN sends, and the part that its send limit drops.

A frame passes the meter of its VN's send limit before its pair's meter, which counts only the rest.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from controller.columns import FloatArray, Int16Array, IntArray, reindex
from controller.metering import measurement_native
from controller.metering.counters import ListedReadings, MeterCounters, Readings, columns_of, meter_rates
from controller.metering.measurement import Measurement, evaluate_readings


@lru_cache(maxsize=4)
def _columns_of(vns: int) -> tuple[IntArray, FloatArray, Int16Array]:
    """Return shared, read-only columns (vns,): row indices, rates of 0 and counts of 0."""
    return np.arange(vns), np.zeros(vns), np.zeros(vns, dtype=np.int16)


class SendLimitMeters(NamedTuple):
    """The meters of the send limits of all VNs; columns of shape (vns,).

    ``offered_bps`` arrived at the meter and ``dropped_bps`` was dropped there, in the last known interval. NaN: the
    meter was not read yet.
    """

    counters: MeterCounters
    offered_bps: FloatArray
    dropped_bps: FloatArray

    @classmethod
    def initial(cls, vns: int) -> SendLimitMeters:
        """Return the state before the first reading."""
        return cls(MeterCounters.initial(vns), np.full(vns, np.nan), np.full(vns, np.nan))

    def updated(self, readings: Readings, capacity_bps: FloatArray) -> SendLimitMeters:
        """Return the state after one more interval; ``capacity_bps`` (vns,) are the capacities of the VNs' edge ports.

        The native form is ``evaluate_readings`` for pairs' meters, with one meter for each VN.
        """
        if measurement_native.library is not None and isinstance(readings, ListedReadings):
            vn, no_rates, no_counts = _columns_of(len(capacity_bps))
            last = Measurement(self.offered_bps, self.dropped_bps, no_rates, no_rates, no_counts)
            seen = evaluate_readings((vn, vn), self.counters, last, no_counts, readings.never_modified, capacity_bps)
            return SendLimitMeters(seen.counters, seen.measured.offered_bps, seen.measured.dropped_bps)
        readings = columns_of(readings)
        rates, counters = meter_rates(self.counters, readings, capacity_bps)
        known = ~np.isnan(rates.offered_bps)
        offered_bps = np.where(known, rates.offered_bps, self.offered_bps)
        return SendLimitMeters(counters, offered_bps, np.where(known, rates.dropped_bps, self.dropped_bps))

    def modified(self, rows: IntArray, sent_s: float) -> SendLimitMeters:
        """Return the state after OFPMC_MODIFY was sent for the meters of these VNs."""
        return self._replace(counters=self.counters.modified(rows, sent_s))

    def invalidated(self, rows: IntArray) -> SendLimitMeters:
        """Return the state in which the counters of these VNs' meters are unknown."""
        return self._replace(counters=self.counters.invalidated(rows))

    def reindexed(self, old_row: IntArray) -> SendLimitMeters:
        """Return the state for a re-arranged VN table."""
        return SendLimitMeters(
            self.counters.reindexed(old_row),
            reindex(self.offered_bps, old_row, np.nan),
            reindex(self.dropped_bps, old_row, np.nan),
        )

    @property
    def offered_to_passed(self) -> FloatArray | None:
        """Return the ratio of each VN's offered to its passed rate at its send limit, shape (vns,); 1 where unknown.

        None: 1 for all, since nothing was dropped. The meter drops from all frames alike, so that each pair of the VN
        loses the same part of what it offers.
        """
        if not (self.dropped_bps > 0.0).any():
            return None
        passed_bps = self.offered_bps - self.dropped_bps
        known = passed_bps > 0.0
        return np.where(known, self.offered_bps / np.where(known, passed_bps, 1.0), 1.0)
