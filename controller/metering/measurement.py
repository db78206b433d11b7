"""The estimate of a sender's rate: the last interval and a short history.

``evaluate_readings`` computes all results of one meter reading.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray, Int16Array, IntArray, incremented, reindex, with_rows
from controller.metering import measurement_native
from controller.metering.counters import (
    MIN_ELAPSED_S,
    PLAUSIBLE_LOAD,
    ListedReadings,
    MeterCounters,
    MeterRates,
    Readings,
    columns_of,
    meter_rates,
)
from controller.native_loader import choose
from controller.units import BITS_PER_BYTE

# A TCP sender that lost its last segment is silent for its minimum retransmission timeout of 200 ms, four intervals. It
# has not stopped, so the smoothed rate fades over four intervals.
MEMORY_INTERVALS = 4
# Choice: the paper does not say when a node becomes inactive. A sender that was silent for this many intervals (550 ms
# at 55 ms) has no traffic to send. That is longer than two of TCP's minimum retransmission timeouts, so a TCP sender
# keeps its share while it waits for one.
IDLE_INTERVALS = 10


class Measurement(NamedTuple):
    """The rates of each pair, shape (pairs,).

    ``passed_bps`` is the rate of the last known interval, ``smoothed_bps`` its exponential mean over MEMORY_INTERVALS,
    ``offered_bps`` and ``dropped_bps`` the last interval's rates before and at the meter. ``silent_intervals`` counts
    the intervals since anything was offered.
    """

    offered_bps: FloatArray
    dropped_bps: FloatArray
    passed_bps: FloatArray
    smoothed_bps: FloatArray
    silent_intervals: Int16Array

    @classmethod
    def initial(cls, entries: int) -> Measurement:
        """Return the state before the first reading: nothing sent, but not yet known to be idle."""
        zero = np.zeros(entries)
        return cls(zero, zero, zero, zero, np.zeros(entries, dtype=np.int16))

    def reindexed(self, old_row: IntArray) -> Measurement:
        """Return the state for a re-arranged pair table."""
        return Measurement(
            reindex(self.offered_bps, old_row, 0.0),
            reindex(self.dropped_bps, old_row, 0.0),
            reindex(self.passed_bps, old_row, 0.0),
            reindex(self.smoothed_bps, old_row, 0.0),
            reindex(self.silent_intervals, old_row, 0),
        )

    def assume_backlogged(self, rows: IntArray, offered_bps: FloatArray, passed_bps: FloatArray) -> Measurement:
        """Return the state in which pairs that were not measured yet offer ``offered_bps`` and pass ``passed_bps``."""
        return Measurement(
            with_rows(self.offered_bps, rows, offered_bps),
            with_rows(self.dropped_bps, rows, offered_bps - passed_bps),
            with_rows(self.passed_bps, rows, passed_bps),
            with_rows(self.smoothed_bps, rows, passed_bps),
            self.silent_intervals,
        )

    @property
    def measured_bps(self) -> FloatArray:
        """The rate for the allocation, (pairs,): it rises at once and fades over MEMORY_INTERVALS.

        Choice: the paper does not say how its agents average. A rise must take effect in the interval in which it
        begins, and a TCP sender between two bursts must not lose its share.
        """
        return np.maximum(self.passed_bps, self.smoothed_bps)

    @property
    def active(self) -> BoolArray:
        """The mask of the pairs with traffic to send, (pairs,)."""
        return self.silent_intervals < IDLE_INTERVALS


def measure(before: Measurement, rates: MeterRates) -> Measurement:
    """Return the measurement after one more interval. Where the rates are unknown, the last known ones stay."""
    known = ~np.isnan(rates.offered_bps)
    offered_bps = np.where(known, rates.offered_bps, before.offered_bps)
    dropped_bps = np.where(known, rates.dropped_bps, before.dropped_bps)
    passed_bps = np.where(known, rates.passed_bps, before.passed_bps)
    smoothed_bps = before.smoothed_bps + (passed_bps - before.smoothed_bps) / MEMORY_INTERVALS
    silent_intervals = np.where(offered_bps > 0.0, 0, incremented(before.silent_intervals)).astype(np.int16)
    silent_intervals = np.where(known, silent_intervals, before.silent_intervals)
    return Measurement(offered_bps, dropped_bps, passed_bps, smoothed_bps, silent_intervals)


def _compiled_sums_by(row: IntArray, columns: tuple[FloatArray, ...], rows: int) -> tuple[FloatArray, ...]:
    return tuple(measurement_native.sums(row, columns, rows))


def _plain_sums_by(row: IntArray, columns: tuple[FloatArray, ...], rows: int) -> tuple[FloatArray, ...]:
    """Return each of ``columns`` (pairs,) summed by ``row`` (pairs,), shape (rows,), in table order."""
    return tuple(np.bincount(row, weights=column, minlength=rows).astype(np.float64) for column in columns)


class MeterObservation(NamedTuple):
    """The results of a meter reading; columns of shape (pairs,).

    ``counters`` are the counters for the next comparison. ``unread_intervals`` counts the intervals since a meter was
    read, ``seen_s`` is the measured time (NaN: not measured). ``implausible`` is as in ``meter_rates``. ``too_soon``
    marks meters that were read so soon after their last modify that the reading is useless. ``passed_bps``,
    ``smoothed_bps``, ``dropped_bps`` and ``offered_bps`` are the sums by receiver, (vns,).
    """

    counters: MeterCounters
    measured: Measurement
    unread_intervals: Int16Array
    seen_s: FloatArray
    implausible: BoolArray
    too_soon: BoolArray
    passed_bps: FloatArray
    smoothed_bps: FloatArray
    dropped_bps: FloatArray
    offered_bps: FloatArray

    @property
    def receiver_loads_bps(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the rates offered to each VN, passed and dropped at its senders' meters, (vns,) each."""
        return self.offered_bps, self.passed_bps, self.dropped_bps


def _plain_evaluate(
    ends: tuple[IntArray, IntArray],
    counters: MeterCounters,
    measured: Measurement,
    unread_intervals: Int16Array,
    readings: Readings,
    capacity_bps: FloatArray,
) -> MeterObservation:
    """Return the results of the readings of pairs' meters.

    ``ends`` are the pairs' senders and receivers, rows of VNs; ``capacity_bps`` (vns,) is the capacity of the edge port
    of each VN. ``counters``, ``measured`` and ``unread_intervals`` are the state before these readings.
    """
    readings = columns_of(readings)
    rates, counters = meter_rates(counters, readings, capacity_bps[ends[0]])
    measured = measure(measured, rates)
    unknown = np.isnan(rates.seen_s)
    unread = np.where(unknown, incremented(unread_intervals), 0).astype(np.int16)
    too_soon = readings.present & unknown & ~rates.implausible
    columns = (measured.passed_bps, measured.smoothed_bps, measured.dropped_bps, measured.offered_bps)
    sums = sum_by_row(ends[1], columns, len(capacity_bps))
    return MeterObservation(counters, measured, unread, rates.seen_s, rates.implausible, too_soon, *sums)


def _native_evaluate(
    ends: tuple[IntArray, IntArray],
    counters: MeterCounters,
    measured: Measurement,
    unread_intervals: Int16Array,
    readings: Readings,
    capacity_bps: FloatArray,
) -> MeterObservation:
    """Return what ``_plain_evaluate`` returns, by the native function."""
    # The native function reads listed readings itself only if they have ``modified_s``.
    listed = isinstance(readings, ListedReadings) and readings.modified_s is not None
    rates_bps = (measured.offered_bps, measured.dropped_bps, measured.passed_bps, measured.smoothed_bps)
    native = measurement_native.evaluate_readings(
        (MIN_ELAPSED_S, PLAUSIBLE_LOAD, float(BITS_PER_BYTE), MEMORY_INTERVALS),
        (*ends, capacity_bps),
        (*counters.columns, *rates_bps, measured.silent_intervals, unread_intervals),
        readings.native_columns if isinstance(readings, ListedReadings) and listed else columns_of(readings).in_order,
        listed,
    )
    offered_bps, dropped_bps, passed_bps, smoothed_bps = native.rates_bps
    return MeterObservation(
        MeterCounters(*native.counters),
        Measurement(offered_bps, dropped_bps, passed_bps, smoothed_bps, native.silent_intervals),
        native.unread_intervals,
        native.seen_s,
        native.implausible,
        native.too_soon,
        *native.sums_bps,
    )


sum_by_row = choose(measurement_native, _compiled_sums_by, _plain_sums_by)
evaluate_readings = choose(measurement_native, _native_evaluate, _plain_evaluate)
