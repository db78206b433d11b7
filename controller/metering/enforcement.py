"""Granted rates to meters: which meters to modify now, to which rate and burst.

A policer is not a shaper, and Open vSwitch refills a meter's bucket at every modify, so that each modify grants an
extra burst. A burst of B bits re-sent every T seconds passes B/T on top of the rate, while a TCP sender needs 200 to
300 ms of burst to fill its rate. So the controller keeps the true bucket, and makes the switch's bucket follow it with
few modifies (docs/enforcement.md; docs/adr/0030 has the alternatives):

1) The *credit* of a pair is a bucket filled at the granted rate, which may change in each interval, and emptied by what
   passed the meter. Its depth is RESPONSIVE_BURST_S of the grant, or UNRESPONSIVE_BURST_S for a sender that goes on
   sending far above its rate.
2) The *level* is what the switch's bucket must hold by now: filled at the meter's rate, emptied by the same traffic.
   Where the meter has dropped, it was empty.
3) A level above the credit would pass more than was granted, a level below it less. A meter is modified when that
   difference, one interval ahead, exceeds the deadband.
4) A modify fills the bucket, so that the burst sets the level: it is set to the credit, and grants nothing extra. A
   bucket of less than MIN_BURST_BITS would pass no frames; the excess is compensated by a rate below the grant.
5) Where no queue holds a receiver, its receive budget bounds the sum of its senders' meters: rates below the grants,
   bursts below the credits. A sender that keeps sending far above such a lowered rate gets no credit for the
   difference.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray, Int16Array, IntArray, UInt32Array, incremented, reindex, with_rows
from controller.metering import enforcement_native, measurement_native
from controller.metering.measurement import IDLE_INTERVALS, Measurement
from controller.metering.receive_budgets import IDLE_RESERVE_S, RemainingBudget
from controller.native_loader import choose

RESPONSIVE_BURST_S = 0.300  # the minimum retransmission timeout of TCP, 200 ms, and the recovery after it
UNRESPONSIVE_BURST_S = 0.030
# Three frames of 1,522 bytes: what a sender's pacing and the switch's batches bring at once.
FRAME_BITS = 12_176
_FRAMES = 3
MIN_BURST_BITS = _FRAMES * FRAME_BITS
MIN_BURST_S = 0.005  # Open vSwitch fills buckets once in a millisecond, and tokens above their depth are lost

# A sender is unresponsive after UNRESPONSIVE_INTERVALS with more than UNRESPONSIVE_DROP of its load dropped, and
# responsive again after RESPONSIVE_INTERVALS with less than RESPONSIVE_DROP.
UNRESPONSIVE_DROP = 0.30
UNRESPONSIVE_INTERVALS = 20
RESPONSIVE_DROP = 0.10
RESPONSIVE_INTERVALS = 20

# What a meter may pass beyond the grants, or withhold, before it is modified: the grant during this time, and at least
# MIN_BURST_BITS. An algorithm that is controlled by the effect of its grants, as RAA-FE, oscillates if it has to wait.
DEADBAND_S = 0.010
REPAY_S = 0.220  # an excess is compensated in this time
MAX_REPAY = 0.5  # for that, a rate is lowered by at most this part of it
# The largest excess that is compensated, in bucket depths: what passed before a switch executed a modify may be more.
MAX_DEBT = 1.0

# How long a meter may stay unmodified because its counters, zeroed by the last modify, are not usable yet.
MAX_UNREAD_S = 0.220

RATE_STEP_BPS = 1_000.0  # a band's rate and burst are whole kb/s and kb (OpenFlow 1.3.5, section 7.3.4.4)
MAX_KILO = float(2**32 - 1)  # and this is their maximum, which bounds every limit (units.MAX_RATE_BPS)
_SETTINGS = np.array(
    [
        *(RESPONSIVE_BURST_S, UNRESPONSIVE_BURST_S, _FRAMES, MIN_BURST_BITS, MIN_BURST_S, UNRESPONSIVE_DROP),
        *(UNRESPONSIVE_INTERVALS, RESPONSIVE_DROP, RESPONSIVE_INTERVALS, DEADBAND_S, REPAY_S, MAX_REPAY, MAX_DEBT),
        *(MAX_UNREAD_S, RATE_STEP_BPS, MAX_KILO),
    ]
)  # the same as Settings of _enforcement.c


class Enforcement(NamedTuple):
    """The settings of the pairs' meters, and the senders' shadow buckets; columns of shape (pairs,).

    ``rate_kbps`` and ``burst_kbits`` are installed since ``modified_s``; ``limit_bps`` is the limit granted last,
    ``allowed_bps`` the part of it within the receive budget (``receive_budgets``). ``level_bits`` and ``credit_bits``
    are as of ``updated_s``, the last reading; a credit may be negative. ``evidence`` counts unresponsive intervals up,
    and responsive ones down.
    """

    limit_bps: FloatArray
    allowed_bps: FloatArray
    rate_kbps: UInt32Array
    burst_kbits: UInt32Array
    modified_s: FloatArray
    level_bits: FloatArray
    credit_bits: FloatArray
    updated_s: FloatArray
    unresponsive: BoolArray
    evidence: Int16Array

    @classmethod
    def empty(cls) -> Enforcement:
        """Return the state without meters."""
        floats, kilos = np.empty(0), np.empty(0, dtype=np.uint32)
        buckets = (floats,) * 4
        responses = np.empty(0, dtype=np.bool_), np.empty(0, dtype=np.int16)
        return cls(floats, floats, kilos, kilos, *buckets, *responses)

    @property
    def rate_bps(self) -> FloatArray:
        """The meters' rates, in bit/s."""
        return from_kilo(self.rate_kbps)

    @property
    def burst_bits(self) -> FloatArray:
        """The meters' burst sizes, in bits."""
        return from_kilo(self.burst_kbits)

    def reindexed(
        self, old_row: IntArray, rate_bps: FloatArray, burst_bits: FloatArray, now_s: float, *, full: bool = True
    ) -> Enforcement:
        """Return the state for a re-arranged pair table.

        New pairs' meters have ``rate_bps`` and ``burst_bits``, (pairs,) each. Their buckets are ``full`` if the meters
        have just been added. The level of an adopted meter is unknown, and counts as empty.
        """
        level_bits = burst_bits if full else 0.0
        return Enforcement(
            reindex(self.limit_bps, old_row, rate_bps),
            reindex(self.allowed_bps, old_row, rate_bps),
            reindex(self.rate_kbps, old_row, to_kilo(rate_bps)),
            reindex(self.burst_kbits, old_row, to_kilo(burst_bits)),
            reindex(self.modified_s, old_row, now_s - REPAY_S),  # no recent modify: the counters did not restart
            reindex(self.level_bits, old_row, level_bits),
            reindex(self.credit_bits, old_row, level_bits),
            reindex(self.updated_s, old_row, now_s),
            reindex(self.unresponsive, old_row, False),
            reindex(self.evidence, old_row, 0),
        )

    def forfeited(self, rows: IntArray) -> Enforcement:
        """Return the state in which the senders of ``rows`` have no saved credit."""
        return self._replace(credit_bits=with_rows(self.credit_bits, rows, np.minimum(self.credit_bits[rows], 0.0)))


class MeterChanges(NamedTuple):
    """Meters to modify, in order: ``rows`` of the pair table, decreases first.

    ``rate_kbps`` and ``burst_kbits`` (pairs,) are the resulting settings of all pairs' meters.
    """

    rows: IntArray
    rate_kbps: UInt32Array
    burst_kbits: UInt32Array

    @property
    def rate_bps(self) -> FloatArray:
        """The rates of the meters to modify, shape of ``rows``."""
        return from_kilo(self.rate_kbps[self.rows])

    @property
    def burst_bits(self) -> FloatArray:
        """The bursts of the meters to modify, shape of ``rows``."""
        return from_kilo(self.burst_kbits[self.rows])


def to_kilo(values: FloatArray) -> UInt32Array:
    """Return bit/s as kb/s, or bits as kb, at most MAX_KILO. Smaller values must be whole kb/s or kb."""
    return np.minimum(np.rint(values / RATE_STEP_BPS), MAX_KILO).astype(np.uint32)


def from_kilo(kilos: UInt32Array | IntArray) -> FloatArray:
    """Return kb/s as bit/s, or kb as bits."""
    return kilos.astype(np.float64) * RATE_STEP_BPS


def whole_rates(rate_bps: FloatArray) -> FloatArray:
    """Return rates in bit/s to which a meter can be set: whole kb/s, rounded down so that limits hold, at least 1."""
    return np.maximum(np.floor(rate_bps / RATE_STEP_BPS), 1.0) * RATE_STEP_BPS


def burst_for(
    rate_bps: FloatArray, unresponsive: BoolArray, min_burst_bits: FloatArray | float = MIN_BURST_BITS
) -> FloatArray:
    """Return the burst sizes, in bits (whole kb), of meters at ``rate_bps``, by whether the sender is unresponsive."""
    burst_s = np.where(unresponsive, UNRESPONSIVE_BURST_S, RESPONSIVE_BURST_S)
    return _whole_bursts(np.maximum(rate_bps * burst_s, 2 * min_burst_bits))


def least_burst(burst_bits: FloatArray) -> FloatArray:
    """Return the burst sizes, in bits, rounded up to whole kb, at least enough for a few frames."""
    return _whole_bursts(np.maximum(burst_bits, MIN_BURST_BITS))


def _whole_bursts(burst_bits: FloatArray) -> FloatArray:
    return np.ceil(burst_bits / RATE_STEP_BPS) * RATE_STEP_BPS


def classify_senders(before: Enforcement, measured: Measurement) -> tuple[BoolArray, Int16Array]:
    """Return the mask of the unresponsive senders, and the evidence so far, (pairs,) each.

    The evidence is the number of intervals in a row with more than UNRESPONSIVE_DROP of the load dropped, or, negative,
    with less than RESPONSIVE_DROP. A sender becomes unresponsive after UNRESPONSIVE_INTERVALS of the first kind, and
    responsive after RESPONSIVE_INTERVALS of the second.
    """
    dropped_part = measured.dropped_bps / np.maximum(measured.offered_bps, 1.0)
    is_high, is_low = dropped_part > UNRESPONSIVE_DROP, dropped_part < RESPONSIVE_DROP
    evidence = np.where(is_high, incremented(np.maximum(before.evidence, 0)), 0)
    evidence = np.where(is_low, -incremented(-np.minimum(before.evidence, 0)), evidence).astype(np.int16)
    unresponsive = before.unresponsive | (evidence >= UNRESPONSIVE_INTERVALS)
    return unresponsive & (evidence > -RESPONSIVE_INTERVALS), evidence


def update_buckets(
    before: Enforcement,
    measured: Measurement,
    seen_s: FloatArray,
    unresponsive: BoolArray,
    elapsed_s: FloatArray,
    min_burst_bits: FloatArray | float = MIN_BURST_BITS,
) -> tuple[FloatArray, FloatArray]:
    """Return level and credit, in bits, after ``elapsed_s`` more seconds, (pairs,) each.

    ``seen_s`` (pairs,) is the measured part of that time; NaN: the meter was not read.

    a) Counters restart at a modify, so no counter has what passed between the last reading and the modify, during
       ``uncounted_s``. It is assumed to equal the later rate, up to the meter's rate for a limited sender. The modify
       set the bucket after that.
    b) Where the meter dropped, its bucket was empty at that time. So it holds at most what was filled in since, which
       is nothing for a sender that does not stop.
    c) If such a sender's bucket should hold more, it lost the difference. A shallow bucket was full, and a full bucket
       takes no more. A deep one passed the difference where no counter saw it: it is subtracted from the credit.
    d) Where meters do not count, flow entries do, before the meters: they may count more than a bucket could pass, and
       no drops. Of that, only what could pass counts as passed.
    e) Where nothing is known, the grant counts as passed; the next reading covers that time as well.
    """
    known = ~np.isnan(seen_s)
    dropping = known & (measured.dropped_bps > 0.0)
    seen_s = np.where(known, seen_s, elapsed_s)
    modified = before.modified_s >= before.updated_s
    elapsed_s = np.where(modified, elapsed_s, seen_s)  # by the switch's clock, unless a modify restarted the counts
    uncounted_s = np.where(modified, np.maximum(elapsed_s - seen_s, 0.0), 0.0)
    passed_bps = np.where(known, measured.passed_bps, before.limit_bps)  # e
    passed_bits = passed_bps * seen_s
    rate_bps = before.rate_bps
    filled_bits = rate_bps * (elapsed_s - uncounted_s)
    expected_bits = np.minimum(before.level_bits + filled_bits - passed_bits, before.burst_bits)
    limited = dropping | (known & (expected_bits < -min_burst_bits))  # d
    uncounted_bps = np.where(limited, np.minimum(passed_bps, rate_bps), passed_bps)  # a
    # An empty bucket may hold up to one frame.
    max_after_drop_bits = np.where(unresponsive, 0.0, filled_bits) + min_burst_bits / _FRAMES
    level_bits = np.clip(expected_bits, 0.0, np.where(dropping, max_after_drop_bits, np.inf))  # b
    lost_bits = np.where(unresponsive, 0.0, expected_bits - level_bits)  # c
    # A sender that sends far above a lowered rate gets no credit for the difference to its grant.
    keeps_sending = known & (measured.dropped_bps > UNRESPONSIVE_DROP * measured.offered_bps)
    credited_bps = np.where(keeps_sending, before.allowed_bps, before.limit_bps)
    credit_bits = before.credit_bits + credited_bps * elapsed_s - passed_bits - uncounted_bps * uncounted_s
    depth_bits = burst_for(before.limit_bps, unresponsive, min_burst_bits)
    return level_bits, np.minimum(credit_bits, depth_bits) - lost_bits


def passed_bits(before: Enforcement, measured: Measurement, seen_s: FloatArray, now_s: float) -> FloatArray:
    """Return the bits that passed each pair's meter since its last reading, (pairs,); 0 where unknown.

    No counter has what passed between the last reading and a modify: it is assumed to equal the later rate, and at most
    the meter's rate for a sender with drops.
    """
    known = ~np.isnan(seen_s)
    uncounted_s = np.where(before.modified_s >= before.updated_s, now_s - before.updated_s - seen_s, 0.0)
    max_bps = np.where(measured.dropped_bps > 0.0, before.rate_bps, np.inf)
    uncounted_bps = np.minimum(measured.passed_bps, max_bps)
    bits = measured.passed_bps * seen_s + uncounted_bps * np.maximum(uncounted_s, 0.0)
    return np.where(known, bits, 0.0)


def _native_passed_by(
    before: Enforcement, measured: Measurement, seen_s: FloatArray, now_s: float, receiver: IntArray, vns: int
) -> FloatArray:
    meters = (before.rate_kbps, before.modified_s, before.updated_s)
    columns = (*meters, measured.passed_bps, measured.dropped_bps, seen_s)
    return enforcement_native.passed_bits(now_s, RATE_STEP_BPS, columns, receiver, vns)


def _plain_passed_by(
    before: Enforcement, measured: Measurement, seen_s: FloatArray, now_s: float, receiver: IntArray, vns: int
) -> FloatArray:
    """Return the passed bits summed by ``receiver`` (pairs,), rows of the VN table: shape (vns,)."""
    bits = passed_bits(before, measured, seen_s, now_s)
    return np.bincount(receiver, weights=bits, minlength=vns).astype(np.float64)


def _plain_enforce(
    before: Enforcement,
    limit_bps: FloatArray,
    measured: Measurement,
    seen_s: FloatArray,
    now_s: float,
    too_soon: BoolArray | None = None,
    remaining: RemainingBudget | None = None,
    receiver: IntArray | None = None,
    min_burst_bits: FloatArray | None = None,
) -> tuple[Enforcement, MeterChanges]:
    """Return the state in which ``limit_bps`` (pairs,) hold, and the meters to modify for that, by the module's steps.

    ``seen_s`` (pairs,) is the measured part of the last interval; NaN: unknown. ``remaining`` bounds the sum of what
    the senders of a ``receiver`` (pairs,) may send; None: queues do. ``min_burst_bits`` (pairs,) are bursts that pass a
    few frames, at least MIN_BURST_BITS; None: MIN_BURST_BITS for all.

    ``too_soon`` (pairs,) marks meters that were read so soon after their last modify that the reading is useless (None:
    none). A busy switch executes a modify just before it is asked for its counters, which begin again at zero: with a
    modify in every interval its senders would never be measured. So these meters wait for the next reading, at most
    MAX_UNREAD_S, so that a switch cannot keep a rate for ever.
    """
    known = ~np.isnan(seen_s)
    least_bits = MIN_BURST_BITS if min_burst_bits is None else min_burst_bits
    unresponsive, evidence = classify_senders(before, measured)
    granted_bps = whole_rates(limit_bps)
    limit_bps = np.maximum(limit_bps, RATE_STEP_BPS)
    elapsed_s = np.maximum(now_s - before.updated_s, 0.0)
    # 1, 2
    level_bits, credit_bits = update_buckets(before, measured, seen_s, unresponsive, elapsed_s, least_bits)
    depth_bits = burst_for(granted_bps, unresponsive, least_bits)
    # The credit after a modify: a meter that was not read may still have its level, which a modify would grant again.
    refill_bits = credit_bits - np.where(known, 0.0, level_bits)
    credit_bits = np.clip(credit_bits, -MAX_DEBT * depth_bits, depth_bits)
    refill_bits = np.clip(refill_bits, -MAX_DEBT * depth_bits, depth_bits)
    # 5: the rates within the receive budget, the part of the credit that counts, and what a modify may fill in.
    meter_bps, usable_bits, granted_bits = limit_bps, credit_bits, refill_bits
    if remaining is not None and receiver is not None:
        meter_bps, usable_bits = remaining.share(receiver, limit_bps, credit_bits, measured)
        granted_bits = np.minimum(refill_bits, usable_bits)
    exact_bps = whole_rates(meter_bps)
    # 4, for all; step 3 selects the meters to modify
    burst_bits = _whole_bursts(np.maximum(granted_bits, np.maximum(MIN_BURST_S * exact_bps, least_bits)))
    excess_bits = np.maximum(burst_bits - granted_bits - RATE_STEP_BPS, 0.0)  # rounding to a whole kb is no excess
    rate_bps = whole_rates(exact_bps - np.minimum(excess_bits / REPAY_S, MAX_REPAY * exact_bps))
    # 3
    old_bps = before.rate_bps
    ahead_bits = level_bits - usable_bits + (old_bps - meter_bps) * elapsed_s  # above 0: more would pass than granted
    deadband_bits = np.maximum(DEADBAND_S * meter_bps, least_bits)
    # A modify fills the bucket: a lower rate must save more than that within the expected time until the next one.
    unmodified_s = np.maximum(now_s - before.modified_s, REPAY_S)
    pays_off = (old_bps - rate_bps) * unmodified_s > burst_bits - level_bits
    # An unresponsive sender that pauses would have the whole bucket at once.
    too_deep = unresponsive & (before.burst_bits > 2.0 * depth_bits)
    to_modify = ((ahead_bits > deadband_bits) & pays_off) | (known & (ahead_bits < -deadband_bits)) | too_deep
    if too_soon is not None:
        to_modify &= ~(too_soon & (now_s - before.modified_s < MAX_UNREAD_S))
    rows = np.flatnonzero(to_modify)
    rows = rows[np.argsort(rate_bps[rows] > old_bps[rows], kind="stable")]  # decreases first
    burst_bits = burst_bits[rows]
    after = Enforcement(
        limit_bps,
        meter_bps,
        with_rows(before.rate_kbps, rows, to_kilo(rate_bps[rows])),
        with_rows(before.burst_kbits, rows, to_kilo(burst_bits)),
        with_rows(before.modified_s, rows, now_s),
        with_rows(np.where(known, level_bits, before.level_bits), rows, burst_bits),
        with_rows(np.where(known, credit_bits, before.credit_bits), rows, refill_bits[rows]),
        with_rows(np.where(known, now_s, before.updated_s), rows, now_s),
        unresponsive,
        evidence,
    )
    return after, MeterChanges(rows, after.rate_kbps, after.burst_kbits)


def _compiled_enforce(
    before: Enforcement,
    limit_bps: FloatArray,
    measured: Measurement,
    seen_s: FloatArray,
    now_s: float,
    too_soon: BoolArray | None = None,
    remaining: RemainingBudget | None = None,
    receiver: IntArray | None = None,
    min_burst_bits: FloatArray | None = None,
) -> tuple[Enforcement, MeterChanges]:
    """Return what ``_plain_enforce`` returns, by the native function."""
    limits, settings = (before.limit_bps, before.allowed_bps), (before.rate_kbps, before.burst_kbits)
    buckets = (before.modified_s, before.level_bits, before.credit_bits, before.updated_s)
    rates_bps = (measured.offered_bps, measured.dropped_bps, measured.passed_bps, measured.smoothed_bps)
    too_soon = np.zeros(len(limit_bps), dtype=np.bool_) if too_soon is None else too_soon
    bounds = None
    if remaining is not None and receiver is not None:
        bounds = tuple(remaining)
    floats, kilos, responses, rows = enforcement_native.enforce(
        _SETTINGS,
        now_s,
        (IDLE_RESERVE_S, IDLE_INTERVALS),
        RATE_STEP_BPS,
        limit_bps,
        (*limits, *settings, *buckets, before.unresponsive, before.evidence),
        (*rates_bps, measured.silent_intervals, seen_s, too_soon),
        np.empty(0, dtype=np.int64) if receiver is None else receiver,
        bounds,
        min_burst_bits,
    )
    limit_bps, allowed_bps, modified_s, level_bits, credit_bits, updated_s = floats
    buckets = (modified_s, level_bits, credit_bits, updated_s)
    return Enforcement(limit_bps, allowed_bps, *kilos, *buckets, *responses), MeterChanges(rows, *kilos)


def finalize(before: Enforcement, now_s: float) -> tuple[Enforcement, MeterChanges]:
    """Return the state in which all meters have the rates of their limits, when the controller stops, and the changes.

    A burst that is larger than its limit needs stays.
    """
    rate_bps = whole_rates(before.limit_bps)
    burst_bits = burst_for(rate_bps, before.unresponsive)
    rows = np.flatnonzero((before.rate_bps != rate_bps) | (before.burst_bits < burst_bits))
    after = before._replace(
        rate_kbps=to_kilo(rate_bps),
        burst_kbits=with_rows(before.burst_kbits, rows, to_kilo(burst_bits[rows])),
        modified_s=with_rows(before.modified_s, rows, now_s),
        level_bits=with_rows(before.level_bits, rows, burst_bits[rows]),
    )
    return after, MeterChanges(rows, after.rate_kbps, after.burst_kbits)


passed_bits_by = choose(measurement_native, _native_passed_by, _plain_passed_by)
enforce = choose(measurement_native, _compiled_enforce, _plain_enforce)
