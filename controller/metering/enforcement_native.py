"""The native form of enforcement and receive budgets (``_enforcement.c``, ``_budgets.c``), with identical bits.

It is part of the measurement library; callers check that the library exists (``measurement_native.library``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, Int16Array, IntArray, UInt32Array
from controller.metering import measurement_native

Columns = tuple[NDArray[np.generic], ...]


def passed_bits(now_s: float, rate_step_bps: float, columns: Columns, receiver: IntArray, vns: int) -> FloatArray:
    """Return the bits that passed the meters, summed by ``receiver`` (pairs,), rows of the VN table: shape (vns,).

    ``columns``, (pairs,) each, are ``rate_kbps``, ``modified_s`` and ``updated_s`` of Enforcement, ``passed_bps`` and
    ``dropped_bps`` of Measurement, and the measured time ``seen_s``.
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
    remaining: Columns | None,
    min_burst_bits: FloatArray | None,
) -> tuple[list[FloatArray], tuple[UInt32Array, UInt32Array], tuple[BoolArray, Int16Array], IntArray]:
    """Return the columns of Enforcement, and the rows to modify, decreases first.

    The columns are floats, rates and bursts, the unresponsive mask and the evidence. Columns of the next state are
    separate arrays, so that no larger array is kept alive. ``limit_bps`` (pairs,) are the grants, raised to
    ``least_bps``; ``before`` are the columns of Enforcement, ``measured`` the columns of Measurement, ``seen_s`` and
    ``too_soon``. ``remaining`` are the columns of RemainingBudget, for pairs grouped by receiver; None: no meter is
    bounded. ``min_burst_bits`` (pairs,); None: the value in the settings for all. ``idle`` is the reserve of idle
    senders in seconds, and the number of silent intervals after which they are idle.
    """
    size, absent = len(limit_bps), np.empty(0)
    allowed_bps = absent if remaining is None else np.empty(size)
    floats = [allowed_bps, *[np.empty(size) for _ in range(4)]]  # ... modified_s, level_bits, credit_bits, updated_s
    kilos = np.empty(size, np.uint32), np.empty(size, np.uint32)
    responses = np.empty(size, np.bool_), np.empty(size, np.int16)
    has_low_limit, rows = np.empty(1, np.int64), np.empty(size, np.int64)
    inputs = (settings, limit_bps, *before, *measured, receiver, *(remaining or (absent,) * 5))
    bursts = absent if min_burst_bits is None else min_burst_bits
    count = measurement_native.library.dets_enforce(
        (*inputs, *floats, *kilos, *responses, has_low_limit, rows, bursts), now_s, *idle
    )
    if count < 0:
        raise MemoryError("no memory for the budget of one receiver")
    # Usually no limit is below the minimum: then no separate column is needed.
    limits_bps = np.maximum(limit_bps, least_bps) if has_low_limit[0] else limit_bps
    return [limits_bps, limits_bps if remaining is None else allowed_bps, *floats[1:]], kilos, responses, rows[:count]


def update_budgets(
    now_s: float, horizon_s: float, columns: Columns
) -> tuple[list[FloatArray], tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
    """Return the next ReceiveBudgets without ``updated_s``, and RemainingBudget without the limit, as columns.

    ``columns`` are the settings of ``receive_budgets`` (0); the received bits (1), the dropped rates (2), the limit for
    counting (3) and the present limit (4), (vns,) each; and the columns of ReceiveBudgets before (5 and higher).
    ``horizon_s`` is ``ReceiveBudgets.horizon_s``.
    """
    # In the order of the fields of both classes; of ``ahead_s`` and ``free_bits`` the first ``times`` rows are filled.
    vns, slots = len(columns[1]), len(columns[6])
    after = [np.empty(len(columns[5])), np.empty(slots), np.empty(vns), np.empty(vns)]
    allowed, ahead_s, free_bits = np.empty(vns), np.empty(slots + 1), np.empty((slots + 1, vns))
    saved_bits, lasting_bits = np.empty(vns), np.empty(vns)
    buffers = (*after, allowed, ahead_s, free_bits, saved_bits, lasting_bits)
    times = measurement_native.library.dets_receive((*columns, *buffers), now_s, horizon_s) + 1
    return after, (ahead_s[:times], free_bits[:times], saved_bits, lasting_bits)


def track_guarantees(share: float, columns: Columns) -> tuple[tuple[FloatArray, FloatArray, BoolArray, IntArray], bool]:
    """Return the columns of Guarantees, and whether the set of violated VNs changed.

    ``columns`` are the thresholds (the share of the entitled rate below which a guarantee is violated, the share above
    which it is restored, and the minimum rate); the VNs' offered rates, received rates and limits; and the columns of
    Guarantees before.
    """
    size = len(columns[1])
    after = (np.empty(size), np.empty(size), np.empty(size, np.bool_), np.empty(size, np.int64))
    changed = measurement_native.library.dets_fare((*columns, *after), share)
    return after, changed > 0
