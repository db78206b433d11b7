"""The compiled form of measuring (``_measure.c``): the same bits in one pass. Enforcement's is in enforce_kernel.py.

``library`` is None when it was not built; callers look before they call.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray
from controller.compiled import call, load

library = load(
    Path(__file__).parent,
    "_measure",
    {
        "dets_spread": (ctypes.c_int, "i***ddi*******"),
        "dets_watch": (ctypes.c_int64, "i" + "*" * 9),
        "dets_meter_rates": (ctypes.c_int, "iddd" + "*" * 14),
        "dets_measure": (ctypes.c_int, "id" + "*" * 10),
        "dets_taken": (ctypes.c_int, "id" + "*" * 8),
        "dets_account": (ctypes.c_int, "i*d" + "*" * 19),
        "dets_share_sums": (ctypes.c_int, "iidi" + "*" * 8),
        "dets_share": (ctypes.c_int, "iidi" + "*" * 9),
        "dets_meters": (ctypes.c_int64, "i*d" + "*" * 15 + "i***"),
    },
)


def spread(
    mine: IntArray,
    rows: IntArray,
    stats: NDArray[np.void],
    times_s: tuple[float, float],
    modified_s: FloatArray | None,
    columns: tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray],
    present: BoolArray,
) -> None:
    """Write METER_STATS, the ``mine`` of one switch, to ``rows`` of bytes in and dropped, duration, arrival, confirmed.

    ``times_s`` are when they came, and when the switch had done what it was sent. That says nothing of the rows whose
    ``modified_s`` (entries,) is before the latest of them.
    """
    modified = (0, columns[0]) if modified_s is None else (1, modified_s)
    call(library, "dets_spread", len(mine), mine, rows, stats, *times_s, *modified, *columns, present)


def watch(
    stats: NDArray[np.void],
    meter_id: NDArray[np.uint32],
    before: tuple[FloatArray, FloatArray],
    sums: tuple[FloatArray, FloatArray],
) -> tuple[tuple[FloatArray, FloatArray], BoolArray | None] | None:
    """Add what METER_STATS rows counted since ``before`` to ``sums``, columns of bytes in and bytes dropped.

    Return what they count now, and which meters were modified in between (None: none); None for other meters.
    """
    meters = len(stats)
    if meters != len(meter_id):
        return None
    now_in, now_dropped, modified = np.empty(meters), np.empty(meters), np.empty(meters, np.bool_)
    columns = (stats, meter_id, *before, now_in, now_dropped, *sums, modified)
    count = call(library, "dets_watch", meters, *columns)
    return None if count < 0 else ((now_in, now_dropped), modified if count else None)


def meter_rates(
    settings: tuple[float, float, float], before: tuple[FloatArray, ...], now: tuple[NDArray[np.generic], ...]
) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Return the rates (3, entries), what is implausible (entries,) and the readings for the next time (5, entries).

    ``settings`` are the least time between readings, what is plausible in capacities, and bits per byte.
    """
    entries = len(before[0])
    rates, implausible, after = np.empty((3, entries)), np.empty(entries, np.bool_), np.empty((5, entries))
    call(library, "dets_meter_rates", entries, *settings, *before, *now, rates, implausible, after)
    return rates, implausible, after


def measure(
    memory: float, before: tuple[NDArray[np.generic], ...], rates: tuple[FloatArray, FloatArray, FloatArray]
) -> tuple[FloatArray, IntArray]:
    """Return offered, dropped, passed and smoothed rates (4, entries), and the silent intervals (entries,)."""
    entries = len(rates[0])
    after, silent = np.empty((4, entries)), np.empty(entries, np.int64)
    call(library, "dets_measure", entries, memory, *before, *rates, after, silent)
    return after, silent
