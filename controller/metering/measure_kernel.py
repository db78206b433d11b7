"""The compiled form of measuring (``_measure.c``): the same bits in one pass. Enforcement's is in enforce_kernel.py.

``library`` is None when it was not built; callers look before they call.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray
from controller.compiled import call, load

library = load(
    Path(__file__).parent,
    "_measure",
    {
        "dets_sums": "",
        "dets_places": "",
        "dets_read": "i",
        "dets_watch": "",
        "dets_meter_rates": "ddd",
        "dets_modified": "d",
        "dets_measure": "d",
        "dets_reports": "i",
        "dets_changed": "d",
        "dets_taken": "d",
        "dets_account": "d",
        "dets_share_sums": "di",
        "dets_share": "di",
        "dets_meters": "di",
        "dets_rooms": "",
    },
)


def sums(row: IntArray, columns: tuple[FloatArray, ...], rows: int) -> FloatArray:
    """Return ``columns`` (entries,) summed up by ``row`` (entries,), each below ``rows``: shape (columns, rows)."""
    added = np.zeros((len(columns), rows))
    call(library, "dets_sums", (row, added, *columns))
    return added


def places(ends: IntArray, row: NDArray[np.int32], meter: NDArray[np.int32], switch: NDArray[np.int32]) -> None:
    """Write where the meters of rows are listed, and the number of the switch: ``row`` (meters,), -1 for none.

    The meters of each switch end at its ``ends``. Raises IndexError for a row that ``meter`` does not have.
    """
    if call(library, "dets_places", (ends, row, meter, switch)) != len(row):
        raise IndexError(f"a meter is listed of a row beyond {len(meter)}")


def read(
    meter: NDArray[np.int32],
    switch: NDArray[np.int32],
    stats: NDArray[np.void],
    times_s: tuple[FloatArray, FloatArray],
    modified_s: FloatArray | None,
) -> tuple[FloatArray, BoolArray]:
    """Return bytes in and dropped, duration, arrival and confirmed (5, rows), and what is present (rows,).

    Row i has ``stats[meter[i]]`` (METER_STATS; -1: none) of the switch ``switch[i]``. ``times_s`` (switches,) are when
    they came, and when the switch had done what it was sent. That says nothing of the rows whose ``modified_s`` (rows,)
    is before the latest of them.
    """
    modified = times_s[0] if modified_s is None else modified_s
    columns, present = np.empty((5, len(meter))), np.empty(len(meter), np.bool_)
    latest_s = np.full(len(times_s[0]), -np.inf)
    given = (meter, switch, stats, *times_s, modified, latest_s, columns, present)
    call(library, "dets_read", given, int(modified_s is not None))
    return columns, present


def watch(
    ends: IntArray,
    stats: NDArray[np.void],
    rows: NDArray[np.int32],
    settings: tuple[FloatArray, FloatArray],
    windows: Sequence[tuple[NDArray[np.uint32], FloatArray]],
) -> list[int]:
    """Add what METER_STATS counted since the last reading to a window for each switch, whose meters end at ``ends``.

    ``settings`` are the rates and bursts of the entries, of which ``rows`` are the meters' (-1: none). A window is
    meter ids and six columns (6, meters): bytes in and dropped at the last reading and since the window began, the
    highest rate and the sum of bursts. Return whether any meter has counted, 1 or 0, or -1 for other meters.
    """
    found = np.empty(len(windows), dtype=np.int64)
    columns: list[NDArray[np.generic]] = [ends, stats, rows, *settings, found]
    for window in windows:
        columns += window
    call(library, "dets_watch", tuple(columns))
    return list(found.tolist())


def meter_rates(
    settings: tuple[float, float, float], before: tuple[FloatArray, ...], now: tuple[NDArray[np.generic], ...]
) -> tuple[FloatArray, BoolArray, FloatArray, FloatArray]:
    """Return the rates and over how long they are (4, entries), what is implausible (entries,), and the next last
    readings: bytes in, dropped and epoch (3, entries), which a modify replaces, duration and arrival (2, entries).

    ``settings`` are the least time between readings, what is plausible in capacities, and bits per byte.
    """
    entries = len(before[0])
    rates, implausible = np.empty((4, entries)), np.empty(entries, np.bool_)
    counted, timed = np.empty((3, entries)), np.empty((2, entries))
    call(library, "dets_meter_rates", (*before, *now, rates, implausible, counted, timed), *settings)
    return rates, implausible, counted, timed


def modified(rows: IntArray, columns: tuple[FloatArray, ...], sent_s: float) -> FloatArray:
    """Return bytes in, dropped and epoch (3, entries) after a modify of ``rows``; ``columns`` are the last readings.

    They are bytes in, dropped, epoch, duration and arrival, (entries,) each.
    """
    after = np.empty((3, len(columns[0])))
    call(library, "dets_modified", (rows, *columns, after), sent_s)
    return after


def measure(
    memory: float, before: tuple[NDArray[np.generic], ...], rates: tuple[FloatArray, FloatArray, FloatArray]
) -> tuple[FloatArray, IntArray]:
    """Return offered, dropped, passed and smoothed rates (4, entries), and the silent intervals (entries,)."""
    entries = len(rates[0])
    after, silent = np.empty((4, entries)), np.empty(entries, np.int64)
    call(library, "dets_measure", (*before, *rates, after, silent), memory)
    return after, silent


def reports(idle_intervals: int, columns: tuple[NDArray[np.generic], ...]) -> tuple[FloatArray, BoolArray]:
    """Return what reports say: measured and available rates (2, reports), and who is active (reports,).

    ``columns`` are the entries that report, ascending; of all entries the sender, what passed, smoothed, the silent
    intervals and the limit in force; and of all VNs what they send, and may send.
    """
    rates, active = np.empty((2, len(columns[0]))), np.empty(len(columns[0]), np.bool_)
    call(library, "dets_reports", (*columns, rates, active), idle_intervals)
    return rates, active


def changed(same: float, columns: tuple[NDArray[np.generic], ...]) -> tuple[IntArray, FloatArray, IntArray]:
    """Return whose grant is more than a part of ``same`` off the limit, these grants, and the other entries.

    ``columns`` are entries, grants and limits, (reports,) each.
    """
    size = len(columns[0])
    moved, rate_bps, stay = np.empty(size + 1, np.int64), np.empty(size + 1), np.empty(size + 1, np.int64)
    count = call(library, "dets_changed", (*columns, moved, rate_bps, stay), same)
    return moved[:count], rate_bps[:count], stay[: size - count]
