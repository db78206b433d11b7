"""The native form of measurement (``_measurement.c``, ``_counters.c``): identical bits in one pass.

The native form of enforcement is in enforcement_native.py. ``library`` is None if it was not built; callers check that
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, Int16Array, IntArray, UInt32Array
from controller.native_loader import load_native


class NativeObservation(NamedTuple):
    """Columns of MeterCounters and of Measurement, and the other columns of MeterObservation."""

    counters: list[FloatArray]
    rates_bps: list[FloatArray]
    silent_intervals: Int16Array
    unread_intervals: Int16Array
    seen_s: FloatArray
    implausible: BoolArray
    too_soon: BoolArray
    sums_bps: FloatArray


library = load_native(
    "controller.metering._measurement",
    "dets_sums",
    "dets_places",
    "dets_read",
    "dets_watch",
    "dets_meter_rates",
    "dets_modify",
    "dets_look",
    "dets_taken",
    "dets_enforce",
    "dets_receive",
    "dets_fare",
    "dets_count",
    "dets_watch_congestion",
    "dets_reports",
    "dets_answers",
    "dets_obey",
)


def sums(row: IntArray, columns: tuple[FloatArray, ...], rows: int) -> FloatArray:
    """Return ``columns`` (pairs,) summed by ``row`` (pairs,), each below ``rows``: shape (columns, rows)."""
    added = np.zeros((len(columns), rows))
    library.dets_sums((row, added, *columns))
    return added


def index_meters(ends: IntArray, row: NDArray[np.int32], meter: NDArray[np.int32], switch: NDArray[np.int32]) -> None:
    """Write the position of each row's meter into ``meter`` (rows,), and its switch's index into ``switch`` (rows,).

    ``row`` (meters,) has the row of each meter in the replies, -1 for none; the meters of each switch end at its
    ``ends`` (switches,). Raises IndexError for a row that ``meter`` does not have.
    """
    if library.dets_places((ends, row, meter, switch)) != len(row):
        raise IndexError(f"a meter is listed of a row beyond {len(meter)}")


def read(listed: Sequence[NDArray[np.generic]], modified: bool) -> tuple[list[FloatArray], BoolArray]:
    """Return bytes in and dropped, duration, arrival and confirmation time, and the present mask, (rows,) each.

    ``listed`` are ``ListedReadings.native_columns``. ``modified`` is False for meters that are never modified.
    """
    rows = len(listed[0])
    columns, present = [np.empty(rows) for _ in range(5)], np.empty(rows, np.bool_)
    library.dets_read((*listed, *columns[:4], present, columns[4]), int(modified))
    return columns, present


def update_windows(
    ends: IntArray,
    stats: NDArray[np.void],
    rows: NDArray[np.int32],
    settings: tuple[UInt32Array, UInt32Array],
    windows: Sequence[tuple[NDArray[np.uint32], FloatArray, UInt32Array]],
) -> list[int]:
    """Add the METER_STATS since the last reading to each switch's window; return the result for each switch.

    The result is 1 if a meter has counted, 0 if none has, -1 if the meters changed.

    The meters of each switch end at its ``ends`` (switches,). ``settings`` are the rates and bursts of the pairs,
    ``rows`` the pairs of the meters (-1: none). A window consists of meter ids; bytes in and dropped at the last
    reading, and bytes in since the window began, NaN for a meter that has dropped (3, meters); the highest rate and the
    sum of bursts (2, meters).
    """
    results = np.empty(len(windows), dtype=np.int64)
    columns: list[NDArray[np.generic]] = [ends, stats, rows, *settings, results]
    for window in windows:
        columns += window
    library.dets_watch(tuple(columns))
    return list(results.tolist())


def meter_rates(
    settings: tuple[float, float, float], before: tuple[FloatArray, ...], now: tuple[NDArray[np.generic], ...]
) -> tuple[list[FloatArray], BoolArray, list[FloatArray]]:
    """Return the offered, dropped and passed rates, measured time, implausible mask, and next counters' columns.

    All have shape (pairs,). ``settings`` are the minimum time between readings, the plausible load in capacities, and
    bits per byte; ``before`` are columns of MeterCounters, ``now`` columns of MeterReadings and the capacities.
    """
    entries = len(before[0])
    rates, implausible = [np.empty(entries) for _ in range(4)], np.empty(entries, np.bool_)
    after = [np.empty(entries) for _ in range(5)]
    columns = (*before, *now, *rates[:3], implausible, rates[3], *after)
    library.dets_meter_rates(columns, *settings)
    return rates, implausible, after


def evaluate_readings(
    settings: tuple[float, float, float, float],
    ends: tuple[IntArray, IntArray, FloatArray],
    before: tuple[NDArray[np.generic], ...],
    now: Sequence[NDArray[np.generic]],
    listed: bool,
) -> NativeObservation:
    """Return all results of one meter reading; ``measurement`` has the same function without native code.

    ``settings`` are the three of ``meter_rates``, and MEMORY_INTERVALS. ``ends`` are the sender and the receiver of
    each pair, (pairs,), and the capacities of VNs, (vns,). ``before`` are the columns, (pairs,) each, of MeterCounters
    (5), of Measurement (5), and the intervals without a reading. ``now`` are columns of MeterReadings or, if
    ``listed``, ``ListedReadings.native_columns``.
    """
    entries, vns = len(ends[0]), len(ends[2])
    counters, measured = [np.empty(entries) for _ in range(5)], [np.empty(entries) for _ in range(4)]
    silent, unread, seen_s = np.empty(entries, np.int16), np.empty(entries, np.int16), np.empty(entries)
    implausible, too_soon, sums = np.empty(entries, np.bool_), np.empty(entries, np.bool_), np.zeros((4, vns))
    observation = NativeObservation(counters, measured, silent, unread, seen_s, implausible, too_soon, sums)
    after: list[NDArray[np.generic]] = [*counters, *measured, silent, unread, seen_s, implausible, too_soon, sums]
    columns: tuple[NDArray[np.generic], ...] = (*ends, *before, *after, *now)
    library.dets_look(columns, *settings, int(listed))
    return observation


def reset_counters(columns: tuple[NDArray[np.generic], ...], sent_s: float) -> None:
    """Restart the counters of meters that were modified at ``sent_s``, in place.

    ``columns`` are the meters' rows, then durations, arrival times, bytes in, dropped bytes and epochs of all pairs.
    The last three are written.
    """
    library.dets_modify(columns, sent_s)
