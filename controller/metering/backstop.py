"""Backstops: meters behind agents, set a little above the host's rate, and not modified while near that rate.

A meter at the limit itself would drop from traffic that is shaped to exactly that limit. A backstop does not shape: it
bounds what a killed or lying agent can do.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray
from controller.metering.enforcement import Enforcement, MeterChanges, burst_for, least_burst, to_kilo, whole_rates

BACKSTOP = 1.05  # the rate of a backstop, as a multiple of the pair's limit
BACKSTOP_BURST_S = 0.030
# A backstop is changed when its rate differs from its target by more than this part of the target.
MAX_DEVIATION = 0.05
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

    ``before`` are the meters of the last interval, ``after`` and ``changes`` the decision of this one, as if no agent
    shaped. ``shaped`` (pairs,) is the mask of pairs that an agent shapes (None: none), ``metered`` (pairs,) the mask of
    pairs with a meter. ``limit_bps`` (pairs,) are the effective limits. The shadow buckets of shaped pairs count as
    full, without debt.
    """
    if (shaped is None or not shaped.any()) and metered.all():
        return after, changes, NO_CHANGES
    shaped = np.zeros(len(metered), dtype=np.bool_) if shaped is None else shaped
    by_meter_alone = metered[changes.rows] & ~shaped[changes.rows]
    changes = changes._replace(rows=changes.rows[by_meter_alone])
    if not shaped.any():
        return after, changes, NO_CHANGES
    target_bps = whole_rates(BACKSTOP * limit_bps)
    old_bps = before.rate_bps
    to_modify = shaped & metered & (np.abs(old_bps - target_bps) > MAX_DEVIATION * target_bps)
    rows = np.flatnonzero(to_modify)
    decreases_first = np.argsort(target_bps[rows] > old_bps[rows], kind="stable")
    rows = rows[decreases_first]
    target_burst_bits = least_burst(target_bps * BACKSTOP_BURST_S)

    def at_shaped(column: NDArray[_Scalar], values: NDArray[_Scalar]) -> NDArray[_Scalar]:
        return np.where(shaped, values, column)

    burst_bits = np.where(to_modify, target_burst_bits, before.burst_bits)
    enforcement = after._replace(
        rate_kbps=at_shaped(after.rate_kbps, np.where(to_modify, to_kilo(target_bps), before.rate_kbps)),
        burst_kbits=at_shaped(after.burst_kbits, to_kilo(burst_bits)),
        modified_s=at_shaped(after.modified_s, np.where(to_modify, now_s, before.modified_s)),
        level_bits=at_shaped(after.level_bits, burst_bits),
        credit_bits=at_shaped(after.credit_bits, burst_for(limit_bps, after.unresponsive)),
        updated_s=at_shaped(after.updated_s, np.full(len(shaped), now_s)),
    )
    return enforcement, changes, MeterChanges(rows, enforcement.rate_kbps, enforcement.burst_kbits)
