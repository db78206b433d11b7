"""The compiled form of machines and messages (``_machines.c``): the same bits in one pass each.

``library`` is None when it was not built; callers look before they call.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray, ShortArray
from controller.compiled import load

Columns = tuple[NDArray[np.generic], ...]

library = load(
    "controller.dets._machines",
    "dets_count",
    "dets_watch_congestion",
    "dets_count_first",
    "dets_first_messages",
    "dets_reports",
    "dets_changed",
    "dets_obey",
)


def count(longest: int, control: NDArray[np.int8], unheard: ShortArray) -> tuple[ShortArray, bool]:
    """Return the counts after one more interval, and whether a machine under control has waited for too long."""
    after = np.empty(len(unheard), np.int16)
    return after, library.dets_count((control, unheard, after), longest) > 0


def watch_congestion(
    above: float, calm_below: float, calm_intervals: int, columns: Columns
) -> tuple[BoolArray, IntArray, bool]:
    """Return who is congested, for how long VNs were calm, (vns,) each, and whether others are congested than before.

    ``columns`` are Loads, what VNs may receive at most, who was congested, and for how long they were calm.
    """
    size = len(columns[0])
    congested, calm = np.empty(size, np.bool_), np.empty(size, np.int64)
    changed = library.dets_watch_congestion((*columns, congested, calm), above, calm_below, calm_intervals)
    return congested, calm, changed > 0


def first_messages(
    receiver: IntArray, controlled: BoolArray, congested: BoolArray, always: BoolArray
) -> tuple[IntArray, IntArray]:
    """Return the entries whose control begins, and those whose control ends.

    The first two are columns of entries, the others of VNs.
    """
    columns, counts = (receiver, controlled, congested, always), np.empty(2, np.int64)
    library.dets_count_first((*columns, counts))
    beginning, ending = counts.tolist()
    begin, end = np.empty(beginning + 1, np.int64), np.empty(ending + 1, np.int64)
    if beginning or ending:  # most of the time nobody's does
        library.dets_first_messages((*columns, begin, end))
    return begin[:-1], end[:-1]


def reports(idle_intervals: int, columns: Columns) -> tuple[FloatArray, BoolArray]:
    """Return what reports say: measured and available rates (2, reports), and whose meter drops and who is active.

    ``columns`` are the entries that report, ascending; of all entries the sender, what passed, smoothed, what was
    dropped, the silent intervals and the limit in force; and what each VN may send.
    """
    size = len(columns[0])
    rates, flags, sent_bps = np.empty((2, size)), np.empty((2, size), np.bool_), np.zeros(len(columns[-1]))
    library.dets_reports((*columns, sent_bps, rates, flags), idle_intervals)
    return rates, flags


def changed(same: float, columns: Columns) -> tuple[IntArray, FloatArray, IntArray]:
    """Return whose grant is more than a part of ``same`` off the limit, these grants, and the other entries.

    ``columns`` are entries, grants and limits, (reports,) each.
    """
    size = len(columns[0])
    parted, rate_bps = np.empty(size, np.int64), np.empty(size)
    count = library.dets_changed((*columns, parted, rate_bps), same)
    return parted[:count], rate_bps[:count], parted[count:]


def obey(
    before: tuple[NDArray[np.int8], FloatArray, ShortArray],
    set_rate: tuple[IntArray, FloatArray],
    alive: IntArray,
    ceiling_bps: FloatArray,
) -> tuple[NDArray[np.int8], FloatArray, ShortArray, FloatArray, bool]:
    """Return the columns of SendRateControllers, what is in force, and whether a machine is in another state.

    ``before`` are those columns, ``set_rate`` entries and rates of Set Rate, ``alive`` entries of Keep Alive.
    States and limits stay the columns that they are where no rate is set.
    """
    control, limit_bps, size = before[0], before[1], len(before[0])
    if len(set_rate[0]):
        control, limit_bps = np.empty(size, np.int8), np.empty(size)
    unheard, in_force_bps = np.empty(size, np.int16), np.empty(size)
    columns = (*before, *set_rate, alive, ceiling_bps)
    moved = library.dets_obey((*columns, control, limit_bps, unheard, in_force_bps))
    return control, limit_bps, unheard, in_force_bps, moved > 0
