"""Backstops: meters behind agents, a little above the host's rate, left alone while near it.

A meter at the limit itself would drop from traffic that is shaped to exactly that limit. A backstop does not shape: it
bounds what a killed or lying agent can do.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray
from controller.metering.enforcement import Enforcement, MeterChanges, burst_for, least_burst, to_kilo, whole_rates

BACKSTOP = 1.05
BACKSTOP_BURST_S = 0.030
# A backstop is changed when the limit differs from it by more than this part.
MOVED = 0.05
NO_CHANGES = MeterChanges(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.uint32))

_Scalar = TypeVar("_Scalar", bound=np.generic)


def with_backstops(
    before: Enforcement,
    after: Enforcement,
    changes: MeterChanges,
    shaped: BoolArray | None,
    metered: BoolArray,
    limit_bps: FloatArray,
    now_s: float,
) -> tuple[Enforcement, MeterChanges, MeterChanges]:
    """Return the enforcement with backstops, the changes of other pairs' meters, and the changes of the backstops.

    ``shaped`` (pairs,) is the mask of pairs that an agent shapes (None: none), ``metered`` of pairs with a meter. The
    shadow buckets of shaped pairs do not change: they count as full, without debt.
    """
    if (shaped is None or not shaped.any()) and metered.all():
        return after, changes, NO_CHANGES
    shaped = np.zeros(len(metered), dtype=np.bool_) if shaped is None else shaped
    others = metered[changes.rows] & ~shaped[changes.rows]
    changes = changes._replace(rows=changes.rows[others])
    if not shaped.any():
        return after, changes, NO_CHANGES
    target_bps = whole_rates(BACKSTOP * limit_bps)
    was_bps = before.rate_bps
    moved = shaped & metered & (np.abs(was_bps - target_bps) > MOVED * target_bps)
    rows = np.flatnonzero(moved)
    rows = rows[np.argsort(target_bps[rows] > was_bps[rows], kind="stable")]
    burst_bits = least_burst(target_bps * BACKSTOP_BURST_S)

    def held(new: NDArray[_Scalar], old: NDArray[_Scalar]) -> NDArray[_Scalar]:
        return np.where(shaped, old, new)

    standing_bits = np.where(moved, burst_bits, before.burst_bits)
    enforcement = after._replace(
        rate_kbps=held(after.rate_kbps, np.where(moved, to_kilo(target_bps), before.rate_kbps)),
        burst_kbits=held(after.burst_kbits, to_kilo(standing_bits)),
        modified_s=held(after.modified_s, np.where(moved, now_s, before.modified_s)),
        level_bits=held(after.level_bits, standing_bits),
        credit_bits=held(after.credit_bits, burst_for(limit_bps, after.unresponsive)),
        updated_s=held(after.updated_s, np.full(len(shaped), now_s)),
    )
    return enforcement, changes, MeterChanges(rows, enforcement.rate_kbps, enforcement.burst_kbits)
