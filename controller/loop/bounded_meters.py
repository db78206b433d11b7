"""Fits decided meter settings to the bounds of the switches' meters.

The controller's model of a meter must equal what the switch is sent, or its shadow buckets drift. Changes without
effect are not sent: a meter with unchanged settings is set again only to fill its bucket, and only if enough is
missing. So a credit above the largest burst is granted in several steps, and a rate between two steps is compensated
over time.
"""

from __future__ import annotations

import numpy as np

from controller.fabric.meter_bounds import MeterBounds
from controller.metering.enforcement import DEADBAND_S, MIN_BURST_BITS, Enforcement, MeterChanges, from_kilo
from controller.metering.measurement import Measurement


def within_bounds(
    before: Enforcement,
    after: Enforcement,
    changes: MeterChanges,
    measured: Measurement,
    bounds: MeterBounds,
    now_s: float,
) -> tuple[Enforcement, MeterChanges]:
    """Return ``after`` and ``changes`` with settings that the switches accept, without ineffective changes.

    ``before`` are the meters of the last interval, ``after`` and ``changes`` the decision of this one. ``bounds`` are
    the bounds of the pairs' switches, (pairs,).
    """
    rows = changes.rows
    rate_kbps, burst_kbits = bounds.select(rows).fitted(after.rate_kbps[rows], after.burst_kbits[rows])
    old_rate_kbps, old_burst_kbits = before.rate_kbps[rows], before.burst_kbits[rows]
    # The switch's bucket if the meter is not modified: filled at the old rate, emptied by what passed.
    elapsed_s = np.maximum(now_s - before.updated_s[rows], 0.0)
    net_inflow_bits = (from_kilo(old_rate_kbps) - measured.passed_bps[rows]) * elapsed_s
    level_bits = np.clip(before.level_bits[rows] + net_inflow_bits, 0.0, from_kilo(old_burst_kbits))
    # A modify with the same settings only fills the bucket: it is worth a message if more than this is missing.
    min_refill_bits = np.maximum(DEADBAND_S * from_kilo(rate_kbps), MIN_BURST_BITS)
    ineffective = (rate_kbps == old_rate_kbps) & (burst_kbits == old_burst_kbits)
    ineffective &= from_kilo(burst_kbits) - level_bits <= min_refill_bits
    columns = {name: getattr(after, name).copy() for name in ("rate_kbps", "burst_kbits", "modified_s", "level_bits")}
    columns["rate_kbps"][rows], columns["burst_kbits"][rows] = rate_kbps, burst_kbits
    columns["modified_s"][rows] = np.where(ineffective, before.modified_s[rows], after.modified_s[rows])
    columns["level_bits"][rows] = np.where(ineffective, level_bits, from_kilo(burst_kbits))
    effective = MeterChanges(rows[~ineffective], columns["rate_kbps"], columns["burst_kbits"])
    return after._replace(**columns), effective
