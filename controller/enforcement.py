"""From granted rates to meters: which meters to modify now, to which rate and burst.

A policer is not a shaper, and Open vSwitch refills a meter's bucket at every modify. So a burst of B bits re-sent every
T seconds lets B/T through on top of the rate, while a TCP sender needs about 200 ms of burst to fill its rate. The
rules here (docs/adr/0003-enforcement.md has the alternatives and their figures):

1) A sender that goes on sending far above its rate does not respond to drops and needs hardly any burst.
2) Any other sender gets RESPONSIVE_BURST_S of burst, and its meter is raised at most once in that time.
3) A change smaller than a hysteresis waits, and is made good when it has waited for SETTLE_S.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray, carry
from controller.measurement import Measurement

RESPONSIVE_BURST_S = 0.200  # the minimum retransmission time-out of TCP
UNRESPONSIVE_BURST_S = 0.010
MIN_BURST_BITS = (
    8 * 12_144
)  # eight frames of 1,518 bytes: what a sender's pacing and the switch's batches bring at once

# A sender of which more than this part was dropped for as many intervals did not respond to the drops; one of which
# less than the lower part was dropped for as many does.
UNRESPONSIVE_DROP = 0.30
UNRESPONSIVE_INTERVALS = 3
RESPONSIVE_DROP = 0.10
RESPONSIVE_INTERVALS = 20

UNRESPONSIVE_HYSTERESIS = 0.01
RESPONSIVE_HYSTERESIS = 0.10
SETTLE_S = 1.0

RATE_STEP_BPS = 1_000.0  # a band's rate and burst are whole kb/s and kb (OpenFlow 1.3.5, section 7.3.4.4)


@dataclass(frozen=True)
class Enforcement:
    """What the entries' meters are set to; columns of shape (entries,).

    ``evidence`` counts intervals of unresponsiveness up, and of responsiveness down. ``modified_s`` is when the meter
    was last set.
    """

    rate_bps: FloatArray
    burst_bits: FloatArray
    modified_s: FloatArray
    unresponsive: BoolArray
    evidence: IntArray

    @classmethod
    def none(cls) -> Enforcement:
        """Return the state without meters."""
        nothing = np.empty(0)
        return cls(nothing, nothing, nothing, np.empty(0, dtype=np.bool_), np.empty(0, dtype=np.int64))

    def carried(self, old_row: IntArray, rate_bps: FloatArray, burst_bits: FloatArray, now_s: float) -> Enforcement:
        """Return the state for a re-arranged entry table; new entries' meters stand at the given rate and burst."""
        return Enforcement(
            carry(self.rate_bps, old_row, rate_bps),
            carry(self.burst_bits, old_row, burst_bits),
            carry(self.modified_s, old_row, now_s),
            carry(self.unresponsive, old_row, False),
            carry(self.evidence, old_row, 0),
        )


@dataclass(frozen=True)
class MeterChanges:
    """Meters to modify, in the order in which to do it: ``rows`` of the entry table, decreases first."""

    rows: IntArray
    rate_bps: FloatArray
    burst_bits: FloatArray


def whole_rates(rate_bps: FloatArray) -> FloatArray:
    """Return the rates a meter can be set to: whole kb/s, rounded down so that no limit is exceeded, at least one."""
    return np.maximum(np.floor(rate_bps / RATE_STEP_BPS), 1.0) * RATE_STEP_BPS


def burst_for(rate_bps: FloatArray, unresponsive: BoolArray) -> FloatArray:
    """Return the burst sizes in whole kb for senders that respond to drops or do not."""
    burst_s = np.where(unresponsive, UNRESPONSIVE_BURST_S, RESPONSIVE_BURST_S)
    return np.ceil(np.maximum(rate_bps * burst_s, MIN_BURST_BITS) / RATE_STEP_BPS) * RATE_STEP_BPS


def judge(before: Enforcement, measured: Measurement) -> tuple[BoolArray, IntArray]:
    """Return which senders are unresponsive now, and the evidence so far.

    An interval in which more than UNRESPONSIVE_DROP of the load was dropped speaks against a sender, one with less
    than RESPONSIVE_DROP for it; UNRESPONSIVE_INTERVALS, and RESPONSIVE_INTERVALS, in a row decide.
    """
    dropped = measured.dropped_bps / np.maximum(measured.offered_bps, 1.0)
    against = dropped > UNRESPONSIVE_DROP
    in_favour = dropped < RESPONSIVE_DROP
    evidence = np.where(against, np.maximum(before.evidence, 0) + 1, 0)
    evidence = np.where(in_favour, np.minimum(before.evidence, 0) - 1, evidence)
    unresponsive = before.unresponsive | (evidence >= UNRESPONSIVE_INTERVALS)
    return unresponsive & (evidence > -RESPONSIVE_INTERVALS), evidence


def enforce(
    before: Enforcement, limit_bps: FloatArray, measured: Measurement, now_s: float
) -> tuple[Enforcement, MeterChanges]:
    """Return which meters to modify so that the limits hold, and the state in which they stand afterwards."""
    # 1
    unresponsive, evidence = judge(before, measured)
    rate_bps = whole_rates(limit_bps)
    burst_bits = burst_for(rate_bps, unresponsive)
    change = rate_bps / before.rate_bps - 1.0
    waited_s = now_s - before.modified_s
    # 2
    may_rise = unresponsive | (waited_s >= RESPONSIVE_BURST_S)
    # 3
    hysteresis = np.where(unresponsive, UNRESPONSIVE_HYSTERESIS, RESPONSIVE_HYSTERESIS)
    other_kind = unresponsive & (before.burst_bits > burst_bits)
    large = (change < -hysteresis) | ((change > hysteresis) & may_rise) | other_kind
    settled = (rate_bps != before.rate_bps) & (waited_s >= SETTLE_S)
    rows = np.flatnonzero(large | settled)
    rows = rows[np.argsort(change[rows] > 0.0, kind="stable")]
    after_rate, after_burst, modified = before.rate_bps.copy(), before.burst_bits.copy(), before.modified_s.copy()
    after_rate[rows] = rate_bps[rows]
    after_burst[rows] = burst_bits[rows]
    modified[rows] = now_s
    return (
        Enforcement(after_rate, after_burst, modified, unresponsive, evidence),
        MeterChanges(rows, rate_bps[rows], burst_bits[rows]),
    )
