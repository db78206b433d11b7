"""What a sender is taken to send: the rate of the last interval and a short memory of the ones before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray, carry
from controller.metering import measure_kernel
from controller.metering.counters import MeterRates

# A TCP sender that lost its last segment is silent for its minimum retransmission time-out of 200 ms, four intervals,
# and has not stopped: the memory fades over as many.
MEMORY_INTERVALS = 4
# Choice: the paper does not say when a node is no longer active. A sender that was silent for this many intervals
# (550 ms at 55 ms) has no traffic to send. That is longer than two of TCP's least retransmission time-outs, so a TCP
# sender keeps its share while it waits for one.
IDLE_INTERVALS = 10


@dataclass(frozen=True)
class Measurement:
    """What each entry sends, shape (entries,).

    ``passed_bps`` is the rate of the last known interval, ``smoothed_bps`` its exponential mean over
    MEMORY_INTERVALS, ``offered_bps`` and ``dropped_bps`` the last interval's, before and at the meter.
    ``silent_intervals`` counts the intervals since anything was offered.
    """

    offered_bps: FloatArray
    dropped_bps: FloatArray
    passed_bps: FloatArray
    smoothed_bps: FloatArray
    silent_intervals: IntArray

    @classmethod
    def none(cls, entries: int) -> Measurement:
        """Return the state before the first reading: nothing sent, but not yet known to be idle."""
        zero = np.zeros(entries)
        return cls(zero, zero, zero, zero, np.zeros(entries, dtype=np.int64))

    def carried(self, old_row: IntArray) -> Measurement:
        """Return the state for a re-arranged entry table."""
        return Measurement(
            carry(self.offered_bps, old_row, 0.0),
            carry(self.dropped_bps, old_row, 0.0),
            carry(self.passed_bps, old_row, 0.0),
            carry(self.smoothed_bps, old_row, 0.0),
            carry(self.silent_intervals, old_row, 0),
        )

    def held_back(self, rows: IntArray, offered_bps: FloatArray, passed_bps: FloatArray) -> Measurement:
        """Return the state in which these entries, of which nothing is known, are taken to offer more than passes."""

        def with_rows(column: FloatArray, values: FloatArray) -> FloatArray:
            changed = column.copy()
            changed[rows] = values
            return changed

        return Measurement(
            with_rows(self.offered_bps, offered_bps),
            with_rows(self.dropped_bps, offered_bps - passed_bps),
            with_rows(self.passed_bps, passed_bps),
            with_rows(self.smoothed_bps, passed_bps),
            self.silent_intervals,
        )

    @property
    def measured_bps(self) -> FloatArray:
        """The rate to allocate by: it rises at once and fades over MEMORY_INTERVALS.

        Choice: the paper does not say how its agents average. A rise must be seen in the interval in which it begins,
        and a TCP sender between two bursts must not lose its share.
        """
        return np.maximum(self.passed_bps, self.smoothed_bps)

    @property
    def active(self) -> BoolArray:
        """Whether the sender has traffic to send."""
        return self.silent_intervals < IDLE_INTERVALS


def measure(before: Measurement, rates: MeterRates) -> Measurement:
    """Return the measurement after one more interval. Where the rates are unknown, the last known ones stand."""
    if measure_kernel.library is not None:
        last = (before.offered_bps, before.dropped_bps, before.passed_bps, before.smoothed_bps, before.silent_intervals)
        new = (rates.offered_bps, rates.dropped_bps, rates.passed_bps)
        (offered, dropped, passed, smoothed), silent = measure_kernel.measure(MEMORY_INTERVALS, last, new)
        return Measurement(offered, dropped, passed, smoothed, silent)
    known = ~np.isnan(rates.offered_bps)
    offered_bps = np.where(known, rates.offered_bps, before.offered_bps)
    dropped_bps = np.where(known, rates.dropped_bps, before.dropped_bps)
    passed_bps = np.where(known, rates.passed_bps, before.passed_bps)
    smoothed_bps = before.smoothed_bps + (passed_bps - before.smoothed_bps) / MEMORY_INTERVALS
    silent = np.where(offered_bps > 0.0, 0, before.silent_intervals + 1)
    return Measurement(
        offered_bps, dropped_bps, passed_bps, smoothed_bps, np.where(known, silent, before.silent_intervals)
    )


def sums_by(row: IntArray, columns: tuple[FloatArray, ...], rows: int) -> tuple[FloatArray, ...]:
    """Return each of ``columns`` (entries,) summed up by ``row`` (entries,), shape (rows,), in the entries' order."""
    if measure_kernel.library is not None:
        return tuple(measure_kernel.sums(row, columns, rows))
    return tuple(np.bincount(row, weights=column, minlength=rows).astype(np.float64) for column in columns)
