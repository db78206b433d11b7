"""The native form of the messages between senders and receivers (``_messages.c``): identical bits in one pass each.

It is part of the measurement library; callers check that the library exists (``measurement_native.library``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, Int16Array, IntArray
from controller.metering import measurement_native

Columns = tuple[NDArray[np.generic], ...]


def count(
    max_intervals: int, control: NDArray[np.int8], intervals_since_message: Int16Array
) -> tuple[Int16Array, bool]:
    """Return the intervals since the last message, counted up by one, (pairs,), and whether one is too large.

    Too large is a count above ``max_intervals`` of a machine under control. ``control`` (pairs,) are the machines'
    states.
    """
    after = np.empty(len(intervals_since_message), np.int16)
    columns = control, intervals_since_message, after
    return after, measurement_native.library.dets_count(columns, max_intervals) > 0


def watch_congestion(
    above: float, calm_below: float, calm_intervals: int, columns: Columns
) -> tuple[BoolArray, IntArray, bool]:
    """Return the congested mask, the calm intervals, (vns,) each, and whether the mask differs from the last one.

    ``columns`` (vns,) are passed, smoothed and dropped rates, maximum receive rates, the last mask and the last calm
    intervals. ``above`` and ``calm_below`` are parts of the maximum receive rate. Congestion ends after
    ``calm_intervals`` calm intervals.
    """
    size = len(columns[0])
    congested, calm = np.empty(size, np.bool_), np.empty(size, np.int64)
    changed = measurement_native.library.dets_watch_congestion(
        (*columns, congested, calm), above, calm_below, calm_intervals
    )
    return congested, calm, changed > 0


def reports(idle_intervals: int, columns: Columns) -> tuple[FloatArray, FloatArray, BoolArray, BoolArray]:
    """Return measured rates, available rates, the mask of meters with drops and the active mask, (reports,) each.

    ``columns`` are the rows that report; the senders, passed, smoothed and dropped rates, silent intervals and limits
    of all pairs; and the VNs' send limits.
    """
    size, sent_bps = len(columns[0]), np.zeros(len(columns[-1]))
    rates, flags = (np.empty(size), np.empty(size)), (np.empty(size, np.bool_), np.empty(size, np.bool_))
    measurement_native.library.dets_reports((*columns, sent_bps, *rates, *flags), idle_intervals)
    return (*rates, *flags)


def answers(same: float, columns: Columns) -> tuple[IntArray, FloatArray, IntArray]:
    """Return the rows with a grant that differs from the limit, these grants, and the rows with an unchanged grant.

    ``columns`` are rows, grants and limits, (reports,) each. A grant is unchanged if it differs from the limit by no
    more than the part ``same``.
    """
    size = len(columns[0])
    rows, rate_bps = np.empty(size, np.int64), np.empty(size)
    # The native function writes the rows with an unchanged grant behind the others.
    count = measurement_native.library.dets_answers((*columns, rows, rate_bps), same)
    return rows[:count], rate_bps[:count], rows[count:]


def obey(
    before: tuple[NDArray[np.int8], FloatArray, Int16Array],
    set_rate: tuple[IntArray, FloatArray],
    alive: IntArray,
    ceiling_bps: FloatArray,
) -> tuple[NDArray[np.int8], FloatArray, Int16Array, FloatArray]:
    """Return the columns of SendRateControllers after Set Rate and Keep Alive, and the effective limits, (pairs,).

    ``before`` are the columns before these messages. If no state changes, the states are the same array.
    """
    control, limit_bps, size = before[0], before[1], len(ceiling_bps)
    if len(set_rate[0]):
        control, limit_bps = np.empty(size, np.int8), np.empty(size)
    intervals, effective_bps = np.empty(size, np.int16), np.empty(size)
    inputs = (*before, *set_rate, alive, ceiling_bps)
    state_changed = measurement_native.library.dets_obey((*inputs, control, limit_bps, intervals, effective_bps))
    return control if state_changed else before[0], limit_bps, intervals, effective_bps
