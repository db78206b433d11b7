"""The compiled form of enforcement and accounts (``_enforce.c``, ``_accounts.c``): the same bits in few passes.

It is part of the library of measuring; callers look whether that is there (``measure_kernel.library``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray
from controller.compiled import call
from controller.metering import measure_kernel

Columns = tuple[NDArray[np.generic], ...]


def taken(now_s: float, columns: Columns, receiver: IntArray, vns: int) -> FloatArray:
    """Return what passed by receiver (vns,); ``columns`` are rate, modified, updated, passed, dropped and seen."""
    sums = np.zeros(vns)
    call(measure_kernel.library, "dets_taken", (*columns, receiver, sums), now_s)
    return sums


def account(
    settings: FloatArray, now_s: float, limit_bps: FloatArray, before: Columns, measured: Columns
) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray, IntArray]:
    """Return the limit (entries,), level, credit and spent (3, entries), depth, who is unresponsive, and the evidence.

    What is kept until the next interval is no part of an array that holds more.
    """
    entries = len(limit_bps)
    after_bps, after, depth_bits = np.empty(entries), np.empty((3, entries)), np.empty(entries)
    unresponsive, evidence = np.empty(entries, np.bool_), np.empty(entries, np.int64)
    columns = (settings, limit_bps, *before, *measured, after_bps, after, depth_bits, unresponsive, evidence)
    call(measure_kernel.library, "dets_account", columns, now_s)
    return after_bps, after, depth_bits, unresponsive, evidence


def share_sums(horizon_s: float, idle_intervals: int, columns: Columns, vns: int) -> tuple[FloatArray, IntArray]:
    """Return what is used, wanted, and how many are idle (3, vns), and how many there are (vns,).

    ``columns`` are receiver, grant, credit, passed, smoothed and silent, shape (entries,).
    """
    sums, count = np.zeros((3, vns)), np.zeros(vns, np.int64)
    call(measure_kernel.library, "dets_share_sums", (*columns, sums, count), horizon_s, idle_intervals)
    return sums, count


def share(
    horizon_s: float, idle_intervals: int, columns: Columns, of_vn: FloatArray, count: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return rates and saved bits (entries,); ``of_vn`` (3, vns) is the scale, the part and each idle sender's bits."""
    after_bps, after_bits = np.empty(len(columns[0])), np.empty(len(columns[0]))
    given = (*columns, of_vn, count, after_bps, after_bits)
    call(measure_kernel.library, "dets_share", given, horizon_s, idle_intervals)
    return after_bps, after_bits


def meters(
    settings: FloatArray, now_s: float, before: Columns, now: Columns, bounded: bool
) -> tuple[FloatArray, IntArray]:
    """Return rate, burst, modified, level, credit and updated (6, entries), and the rows to modify, decreases first.

    ``before`` are rate, burst, modified, level, credit and updated; ``now`` the meters' rates, what is usable, level,
    credit, spent, depth, who is unresponsive, what was seen and who was read too soon. ``bounded``: by receivers.
    """
    entries = len(before[0])
    after, rows, scratch = np.empty((6, entries)), np.empty(entries + 1, np.int64), np.empty(entries, np.uint8)
    columns = (settings, *before, *now, after, rows, scratch)
    count = call(measure_kernel.library, "dets_meters", columns, now_s, int(bounded))
    return after, rows[:count].copy()


def rooms(
    settings: FloatArray, slot_bits: FloatArray, since_s: FloatArray, limit_bps: FloatArray, later: int
) -> tuple[FloatArray, FloatArray]:
    """Return what is free until the next reading and until each of the ``later`` newest slots has left the window,
    (later + 1, vns), and what may have been saved (vns,).

    ``settings`` are what is allowed of the limit, the window and what may be saved in seconds of the limit;
    ``slot_bits`` are (slots * vns,), ``since_s`` (slots,), ``limit_bps`` (vns,).
    """
    free_bits, saved_bits = np.empty((later + 1, len(limit_bps))), np.empty(len(limit_bps))
    call(measure_kernel.library, "dets_rooms", (settings, slot_bits, since_s, limit_bps, free_bits, saved_bits))
    return free_bits, saved_bits
