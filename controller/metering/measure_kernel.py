"""The compiled form of measuring (``_measure.c``): the same bits in one pass. Enforcement's is in enforce_kernel.py.

``library`` is None when it was not built; callers look before they call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray
from controller.compiled import address, call, load

library = load(
    Path(__file__).parent,
    "_measure",
    {
        "dets_spread": (ctypes.c_int, "i*****i*******"),
        "dets_watch": (ctypes.c_int, "i" + "*" * 9),
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
    ends: IntArray,
    rows: NDArray[np.int32],
    stats: NDArray[np.void],
    times_s: tuple[FloatArray, FloatArray],
    modified_s: FloatArray | None,
    columns: tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray],
    present: BoolArray,
) -> None:
    """Write METER_STATS to their ``rows`` (-1: none) of bytes in and dropped, duration, arrival, confirmed.

    Those of each switch end at its ``ends``. ``times_s`` (switches,) are when they came, and when the switch had done
    what it was sent. That says nothing of the rows whose ``modified_s`` (entries,) is before the latest of them.
    """
    modified = (0, columns[0]) if modified_s is None else (1, modified_s)
    call(library, "dets_spread", len(ends), ends, rows, stats, *times_s, *modified, *columns, present)


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
    places = np.array([(len(ids), address(ids), address(columns)) for ids, columns in windows], dtype=np.int64)
    meters, ids, columns = np.ascontiguousarray(places.reshape(-1, 3).T)
    found = np.empty(len(windows), dtype=np.int64)
    call(library, "dets_watch", len(ends), ends, stats, rows, *settings, meters, ids, columns, found)
    return list(found.tolist())


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
