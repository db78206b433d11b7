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
        "dets_spread": "i",
        "dets_watch": "",
        "dets_meter_rates": "ddd",
        "dets_measure": "d",
        "dets_taken": "d",
        "dets_account": "d",
        "dets_share_sums": "di",
        "dets_share": "di",
        "dets_meters": "di",
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
    modified = columns[0] if modified_s is None else modified_s
    given = (ends, rows, stats, *times_s, modified, *columns, present)
    call(library, "dets_spread", given, int(modified_s is not None))


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
) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Return the rates (3, entries), what is implausible (entries,) and the readings for the next time (5, entries).

    ``settings`` are the least time between readings, what is plausible in capacities, and bits per byte.
    """
    entries = len(before[0])
    rates, implausible, after = np.empty((3, entries)), np.empty(entries, np.bool_), np.empty((5, entries))
    call(library, "dets_meter_rates", (*before, *now, rates, implausible, after), *settings)
    return rates, implausible, after


def measure(
    memory: float, before: tuple[NDArray[np.generic], ...], rates: tuple[FloatArray, FloatArray, FloatArray]
) -> tuple[FloatArray, IntArray]:
    """Return offered, dropped, passed and smoothed rates (4, entries), and the silent intervals (entries,)."""
    entries = len(rates[0])
    after, silent = np.empty((4, entries)), np.empty(entries, np.int64)
    call(library, "dets_measure", (*before, *rates, after, silent), memory)
    return after, silent
