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
    """Return the enforcement and the changes with settings that the switches accept, without ineffective ones.

    ``bounds`` are the bounds of the pairs' switches, (pairs,).
    """
    rows = changes.rows
    rate_kbps, burst_kbits = bounds.select(rows).fitted(after.rate_kbps[rows], after.burst_kbits[rows])
    stands_kbps, stood_kbits = before.rate_kbps[rows], before.burst_kbits[rows]
    elapsed_s = np.maximum(now_s - before.updated_s[rows], 0.0)
    moved_bits = (from_kilo(stands_kbps) - measured.passed_bps[rows]) * elapsed_s
    level_bits = np.clip(before.level_bits[rows] + moved_bits, 0.0, from_kilo(stood_kbits))
    worth_bits = np.maximum(DEADBAND_S * from_kilo(rate_kbps), MIN_BURST_BITS)
    idle = (rate_kbps == stands_kbps) & (burst_kbits == stood_kbits)
    idle &= from_kilo(burst_kbits) - level_bits <= worth_bits
    columns = {name: getattr(after, name).copy() for name in ("rate_kbps", "burst_kbits", "modified_s", "level_bits")}
    columns["rate_kbps"][rows], columns["burst_kbits"][rows] = rate_kbps, burst_kbits
    columns["modified_s"][rows] = np.where(idle, before.modified_s[rows], after.modified_s[rows])
    columns["level_bits"][rows] = np.where(idle, level_bits, from_kilo(burst_kbits))
    kept = MeterChanges(rows[~idle], columns["rate_kbps"], columns["burst_kbits"])
    return after._replace(**columns), kept
