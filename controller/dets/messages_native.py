"""The native form of the messages between senders and receivers (``_messages.c``): identical bits in one pass each.

It is part of the measurement library; callers check that the library exists (``measurement_native.library``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, Int16Array, IntArray
from controller.metering import measurement_native

Columns = tuple[NDArray[np.generic], ...]


def count(longest: int, control: NDArray[np.int8], unheard: Int16Array) -> tuple[Int16Array, bool]:
    """Return the intervals without a message after one more, and whether a machine under control has too many."""
    after = np.empty(len(unheard), np.int16)
    return after, measurement_native.library.dets_count((control, unheard, after), longest) > 0


def watch_congestion(
    above: float, calm_below: float, calm_intervals: int, columns: Columns
) -> tuple[BoolArray, IntArray, bool]:
    """Return the congested VNs and their calm intervals, (vns,) each, and whether other VNs are congested than before.

    ``columns`` are passed, smoothed and dropped rates, maximum receive rates, and the first two results of before.
    """
    size = len(columns[0])
    congested, calm = np.empty(size, np.bool_), np.empty(size, np.int64)
    given = (*columns, congested, calm)
    changed = measurement_native.library.dets_watch_congestion(given, above, calm_below, calm_intervals)
    return congested, calm, changed > 0


def reports(idle_intervals: int, columns: Columns) -> tuple[FloatArray, FloatArray, BoolArray, BoolArray]:
    """Return measured and available rates, whose meter drops and who is active, (reports,) each.

    ``columns`` are the rows that report; of all pairs the sender, the passed, smoothed and dropped rates, the silent
    intervals and the limit; and the VNs' send limits.
    """
    size, sent_bps = len(columns[0]), np.zeros(len(columns[-1]))
    rates, flags = (np.empty(size), np.empty(size)), (np.empty(size, np.bool_), np.empty(size, np.bool_))
    measurement_native.library.dets_reports((*columns, sent_bps, *rates, *flags), idle_intervals)
    return (*rates, *flags)


def answers(same: float, columns: Columns) -> tuple[IntArray, FloatArray, IntArray]:
    """Return the rows with grants that differ from their limits by a part of ``same``, these grants, and other rows.

    ``columns`` are rows, grants and limits, (reports,) each.
    """
    size = len(columns[0])
    rows, rate_bps = np.empty(size, np.int64), np.empty(size)
    count = measurement_native.library.dets_answers((*columns, rows, rate_bps), same)
    return rows[:count], rate_bps[:count], rows[count:]


def obey(
    before: tuple[NDArray[np.int8], FloatArray, Int16Array],
    set_rate: tuple[IntArray, FloatArray],
    alive: IntArray,
    ceiling_bps: FloatArray,
) -> tuple[NDArray[np.int8], FloatArray, Int16Array, FloatArray]:
    """Return the columns of SendRateControllers after Set Rate and Keep Alive, and the effective rates, (pairs,).

    ``before`` are those columns. The states are the same array where no machine has another one.
    """
    control, limit_bps, size = before[0], before[1], len(ceiling_bps)
    if len(set_rate[0]):
        control, limit_bps = np.empty(size, np.int8), np.empty(size)
    unheard, effective_bps = np.empty(size, np.int16), np.empty(size)
    given = (*before, *set_rate, alive, ceiling_bps)
    moved = measurement_native.library.dets_obey((*given, control, limit_bps, unheard, effective_bps))
    return control if moved else before[0], limit_bps, unheard, effective_bps
