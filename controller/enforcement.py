"""From granted rates to meters: which meters to modify now, to which rate and burst.

A policer is not a shaper, and Open vSwitch refills a meter's bucket at every modify: a gift of one burst. So a burst of
B bits re-sent every T seconds lets B/T through on top of the rate, while a TCP sender needs about 200 ms of burst to
fill its rate. The rules (docs/adr/0003-enforcement.md has the alternatives):

1) A sender that goes on sending far above its rate does not respond to drops and needs hardly any burst. Any other
   sender gets RESPONSIVE_BURST_S of burst.
2) A change larger than a hysteresis is made at once; for responsive senders once in RESPONSIVE_BURST_S at most, unless
   a decrease saves more over the rest of that time than the gift. A smaller change waits until the gift is no more than
   GIFT_BUDGET of what the rate lets through in the time waited.
3) A meter of an unresponsive sender that was modified lately will be again: its rate is lowered by the gift, spread
   over the time since its last modify. Once it has stood for SETTLE_S, it is set to the exact rate and burst.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray, carry
from controller.measurement import Measurement

RESPONSIVE_BURST_S = 0.200  # the minimum retransmission time-out of TCP
UNRESPONSIVE_BURST_S = 0.005
# Three frames of 1,522 bytes: what a sender's pacing and the switch's batches bring at once.
MIN_BURST_BITS = 3 * 12_176

# A sender of which more than this part was dropped for as many intervals did not respond to the drops; one of which
# less than the lower part was dropped for as many does.
UNRESPONSIVE_DROP = 0.30
UNRESPONSIVE_INTERVALS = 3
RESPONSIVE_DROP = 0.10
RESPONSIVE_INTERVALS = 20

UNRESPONSIVE_HYSTERESIS = 0.03
# Wide, because every modify refills a bucket of 200 ms: a sender whose grant swings by less would live on refills.
RESPONSIVE_HYSTERESIS = 0.30
GIFT_BUDGET = 0.02
SETTLE_S = 1.0
MOST_GIFT = 0.5  # a rate is never lowered by more than this part of it

RATE_STEP_BPS = 1_000.0  # a band's rate and burst are whole kb/s and kb (OpenFlow 1.3.5, section 7.3.4.4)


@dataclass(frozen=True)
class Enforcement:
    """What the entries' meters are set to; columns of shape (entries,).

    ``rate_bps`` and ``burst_bits`` stand on the switch; ``limit_bps`` is the limit they were set for. ``evidence``
    counts intervals of unresponsiveness up, and of responsiveness down. ``modified_s`` is when the meter was last set.
    """

    limit_bps: FloatArray
    rate_bps: FloatArray
    burst_bits: FloatArray
    modified_s: FloatArray
    unresponsive: BoolArray
    evidence: IntArray

    @classmethod
    def none(cls) -> Enforcement:
        """Return the state without meters."""
        nothing = np.empty(0)
        return cls(nothing, nothing, nothing, nothing, np.empty(0, dtype=np.bool_), np.empty(0, dtype=np.int64))

    def carried(self, old_row: IntArray, rate_bps: FloatArray, burst_bits: FloatArray, now_s: float) -> Enforcement:
        """Return the state for a re-arranged entry table; new entries' meters stand at the given rate and burst.

        A meter that was found with a small burst had been given it for an unresponsive sender.
        """
        small_burst = burst_bits < burst_for(rate_bps, np.zeros(len(rate_bps), dtype=np.bool_))
        return Enforcement(
            carry(self.limit_bps, old_row, rate_bps),
            carry(self.rate_bps, old_row, rate_bps),
            carry(self.burst_bits, old_row, burst_bits),
            carry(self.modified_s, old_row, now_s),
            carry(self.unresponsive, old_row, small_burst),
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
    exact_bps = whole_rates(limit_bps)
    burst_bits = burst_for(exact_bps, unresponsive)
    # 2
    waited_s = np.maximum(now_s - before.modified_s, 1e-3)
    change = exact_bps / before.limit_bps - 1.0
    gift = burst_bits / (exact_bps * waited_s)
    saving_bits = (before.limit_bps - exact_bps) * (RESPONSIVE_BURST_S - waited_s)
    due = (waited_s >= RESPONSIVE_BURST_S) | (saving_bits > burst_bits)
    large = np.where(
        unresponsive,
        np.abs(change) > UNRESPONSIVE_HYSTERESIS,
        (np.abs(change) > RESPONSIVE_HYSTERESIS) & due,
    )
    small = (change != 0.0) & (gift <= GIFT_BUDGET)
    other_kind = unresponsive & (before.burst_bits > burst_for(before.limit_bps, unresponsive))
    # 3
    settle = ((before.rate_bps != exact_bps) | (before.burst_bits != burst_bits)) & (waited_s >= SETTLE_S)
    lower = np.where(unresponsive & (waited_s < SETTLE_S), np.minimum(gift, MOST_GIFT), 0.0)
    rate_bps = whole_rates(exact_bps * (1.0 - lower))
    rows = np.flatnonzero(large | small | other_kind | settle)
    rows = rows[np.argsort(change[rows] > 0.0, kind="stable")]
    after = Enforcement(
        _put(before.limit_bps, rows, exact_bps),
        _put(before.rate_bps, rows, rate_bps),
        _put(before.burst_bits, rows, burst_bits),
        _put(before.modified_s, rows, np.full(len(waited_s), now_s)),
        unresponsive,
        evidence,
    )
    return after, MeterChanges(rows, rate_bps[rows], burst_bits[rows])


def settle(before: Enforcement, now_s: float) -> tuple[Enforcement, MeterChanges]:
    """Return the meters to modify so that all stand at the exact rates of their limits, for good."""
    rows = np.flatnonzero(before.rate_bps != before.limit_bps)
    after = replace(
        before,
        rate_bps=before.limit_bps.copy(),
        modified_s=_put(before.modified_s, rows, np.full(len(before.rate_bps), now_s)),
    )
    return after, MeterChanges(rows, after.rate_bps[rows], after.burst_bits[rows])


def _put(column: FloatArray, rows: IntArray, values: FloatArray) -> FloatArray:
    changed = column.copy()
    changed[rows] = values[rows]
    return changed
