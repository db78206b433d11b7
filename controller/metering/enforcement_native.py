"""The compiled form of enforcement and accounts (``_enforcement.c``, ``_budgets.c``): the same bits in one pass each.

It is part of the library of measuring; callers look whether that is there (``measurement_native.library``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, Int16Array, IntArray, UInt32Array
from controller.metering import measurement_native

Columns = tuple[NDArray[np.generic], ...]


def passed_bits(now_s: float, rate_step_bps: float, columns: Columns, receiver: IntArray, vns: int) -> FloatArray:
    """Return what passed by receiver (vns,).

    ``columns`` are the rate in steps, modified, updated, passed, dropped and seen.
    """
    sums = np.zeros(vns)
    measurement_native.library.dets_taken((*columns, receiver, sums), now_s, rate_step_bps)
    return sums


def enforce(
    settings: FloatArray,
    now_s: float,
    idle: tuple[float, int],
    least_bps: float,
    limit_bps: FloatArray,
    before: Columns,
    measured: Columns,
    receiver: IntArray,
    rooms: Columns | None,
    min_burst_bits: FloatArray | None,
) -> tuple[list[FloatArray], tuple[UInt32Array, UInt32Array], tuple[BoolArray, Int16Array], IntArray]:
    """Return the columns of Enforcement, and the rows to modify, decreases first.

    The columns are those of floats, rates and bursts, who is unresponsive and the evidence. What is kept until the next
    interval is no part of an array that holds more. ``limit_bps`` (entries,) is what is granted, taken for at least
    ``least_bps``; ``before`` are the columns of Enforcement, ``measured`` those of Measurement, what was seen, and who
    was read too soon. ``rooms`` are the columns of Rooms, for receivers of which each has its entries together; None:
    no meter is bounded. ``min_burst_bits`` (entries,): None where that of the settings holds for all. ``idle`` is the
    reserve of idle senders in seconds, and after how many silent intervals they are idle.
    """
    size, nothing = len(limit_bps), np.empty(0)
    allowed_bps = nothing if rooms is None else np.empty(size)
    floats = [allowed_bps, *[np.empty(size) for _ in range(4)]]
    kilos = np.empty(size, np.uint32), np.empty(size, np.uint32)
    judged = np.empty(size, np.bool_), np.empty(size, np.int16)
    below, rows = np.empty(1, np.int64), np.empty(size, np.int64)
    given = (settings, limit_bps, *before, *measured, receiver, *(rooms or (nothing,) * 5))
    bursts = nothing if min_burst_bits is None else min_burst_bits
    count = measurement_native.library.dets_enforce(
        (*given, *floats, *kilos, *judged, below, rows, bursts), now_s, *idle
    )
    if count < 0:
        raise MemoryError("no memory for the accounts of one receiver")
    limits_bps = np.maximum(limit_bps, least_bps) if below[0] else limit_bps  # which mostly needs no column of its own
    return [limits_bps, limits_bps if rooms is None else allowed_bps, *floats[1:]], kilos, judged, rows[:count]


def update_budgets(
    now_s: float, horizon_s: float, columns: Columns
) -> tuple[tuple[FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
    """Return the columns of ReceiverAccounts after an interval, and those of Rooms but for the limit.

    ``columns`` are the settings of ``receive_budgets``; what was received, above which limit it counts, today's
    limit, (vns,) each; the columns that this returns, as they were before; and what is allowed of the limits (vns,).
    """
    vns, slots = len(columns[1]), len(columns[5])
    after = np.empty(len(columns[4])), np.empty(slots), np.empty(1)
    ahead_s, free_bits = np.empty(slots + 1), np.empty((slots + 1, vns))
    saved_bits, lasting_bits = np.empty(vns), np.empty(vns)
    given = (*columns, *after, ahead_s, free_bits, saved_bits, lasting_bits)
    times = measurement_native.library.dets_receive(given, now_s, horizon_s) + 1
    return after, (ahead_s[:times], free_bits[:times], saved_bits, lasting_bits)


def track_guarantees(share: float, columns: Columns) -> tuple[tuple[FloatArray, FloatArray, BoolArray, IntArray], bool]:
    """Return the columns of Guarantees, and whether others miss what they were promised than before.

    ``columns`` are below which part of what it is owed a VN misses it, above which it has it again, and from which rate
    on it counts; what VNs were offered, received and may receive, and the columns of Guarantees before.
    """
    size = len(columns[1])
    after = (np.empty(size), np.empty(size), np.empty(size, np.bool_), np.empty(size, np.int64))
    changed = measurement_native.library.dets_fare((*columns, *after), share)
    return after, changed > 0
