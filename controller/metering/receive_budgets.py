"""Receive budgets: what a receiving VN received in the last second, and so what its senders' meters may pass next.

Grants bound the long run, and a sender's own bucket bounds its saved credit. Neither bounds what many senders of one
receiver do together: idle senders that start at once, buckets that empty at the same time, grants that sum to more than
the limit. A receiving queue absorbs that. Where no queue holds the receiver, the meters of its senders do
(docs/enforcement.md; docs/adr/0090 has the alternatives):

1) A receiver's budget subtracts what it received above its limit, in slots of SLOT_S over the last WINDOW_S. With long
   intervals slots are longer; the traffic of such a slot counts as even, and leaves the window bit by bit, UNEVEN_S
   late.
2) Until each slot has left the window, the remaining budget bounds what may arrive before the next reading, and the
   later rate of the active senders.
3) Active senders come first: each gets its present rate, within its grant. If the sum of these rates exceeds the
   rate of 2), all are reduced in proportion.
4) Idle senders share a reserve: what all of them together may send before the controller sees it.
5) The rest goes to growth (unused grants) and to saved credit, in proportion. It is at most SAVED_S of the limit, less
   recent excess. If all active senders keep sending, it is no more than what leaves room for the limit afterwards. If
   one pauses, or the receiver's traffic has dipped and returned, senders time out at their meters: they need the credit
   that they save in that time, and may use the whole window.
6) A receiver's only sender has what its grant and its own bucket allow: with less TCP does not fill its grant.
7) No second exceeds the limit by more than a tenth, except where senders time out: several TCP flows come in waves, and
   then a second may have as much as a single sender's bucket. Senders that lose PRESSED of the limit at their meters
   keep sending instead of timing out; for a window, they get no such exception.
8) Excess above the limit is subtracted later: an excess of EXCESS_S seconds of the limit lowers a window by EXCESS of
   the limit. So no receiver gets more than its limit for long, and the other VNs of its port keep theirs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray, reindex
from controller.metering import enforcement_native, measurement_native
from controller.metering.measurement import Measurement

WINDOW_S = 1.0
NEVER_S = -1e9  # before any traffic
SLOT_S = 0.050
UNEVEN_S = 0.060  # the traffic of a shorter slot may be anywhere in it
SLOTS = 21  # of at least SLOT_S each: together they cover the window
# Maximum of a window, in limits, if senders time out and if not; the meters' granularity adds some 3 %.
ALLOWED, ALLOWED_PRESSED = 1.27, 1.07
PRESSED = 0.7  # of the limit: senders that lose more than that at their meters do not stop because of losses
EXCESS_S, EXCESS = 4.0, 0.4  # in seconds of the limit, and of the limit within a window
IDLE_RESERVE_S = 0.080  # what all idle senders may send before they are measured, in seconds of the limit
SAVED_S = 0.300  # what active senders may save and grow by in all, in seconds of the limit
DIP = 0.5  # of the limit: a slot this much below it is a dip
IDLE = 0.8  # of the limit: a slot this much below it is idle
DIP_SLOTS = 20  # a dip counts for a window, if the traffic before it did not last longer
UNSEEN_S = 0.060  # from the first frame of a new sender to its first reading
REACTION_S = 0.008  # from reading the counters to installed meters, on a busy switch
MAX_HORIZON_S = 0.2  # senders are not stopped because readings are late
# The expected length of the next interval is the median of this many: a few late intervals have no effect.
INTERVALS = 9
# The same as Settings of _budgets.c.
_SETTINGS = np.array(
    [ALLOWED, ALLOWED_PRESSED, PRESSED, EXCESS_S, EXCESS, WINDOW_S, SAVED_S, SLOT_S, DIP, IDLE, DIP_SLOTS, UNEVEN_S]
)


class ReceiveBudgets(NamedTuple):
    """What VNs received lately.

    ``slot_bits``, shape (SLOTS * vns,), holds a row of all VNs for each slot: the received bits less the limit of that
    time. ``slot_start_s`` (SLOTS,) are the slots' beginnings, ``updated_s`` (up to INTERVALS,) the times of the last
    updates, both from the newest to the oldest. ``pressed_s`` (vns,) is when the senders of each VN last kept sending
    in spite of drops, ``excess_bits`` (vns,) by how much each VN has exceeded its limit since it last kept the limit.
    """

    slot_bits: FloatArray
    slot_start_s: FloatArray
    updated_s: FloatArray
    pressed_s: FloatArray
    excess_bits: FloatArray

    @classmethod
    def initial(cls, vns: int) -> ReceiveBudgets:
        """Return the state before any traffic."""
        starts_s, pressed_s = np.full(SLOTS, NEVER_S), np.full(vns, NEVER_S)
        return cls(np.zeros(SLOTS * vns), starts_s, np.full(1, NEVER_S), pressed_s, np.zeros(vns))

    def reindexed(self, old_row: IntArray) -> ReceiveBudgets:
        """Return the state for a re-arranged VN table."""
        slots = [reindex(slot, old_row, 0.0) for slot in self._slots()]
        pressed_s, excess_bits = reindex(self.pressed_s, old_row, NEVER_S), reindex(self.excess_bits, old_row, 0.0)
        return self._replace(slot_bits=np.concatenate(slots), pressed_s=pressed_s, excess_bits=excess_bits)

    def horizon_s(self, now_s: float) -> float:
        """Return the expected time, in seconds, from now until meters follow the next reading.

        The time is from the median of the last intervals, since the rates of idle senders' meters depend on it: with
        the length of the last interval alone, a late interval would modify all these meters, and delay the next one
        too.
        """
        intervals_s = sorted(after - before for after, before in pairwise((now_s, *self.updated_s.tolist())))
        median_s = intervals_s[(len(intervals_s) - 1) // 2]
        return float(min(median_s, MAX_HORIZON_S)) + REACTION_S

    def received(
        self,
        received_bits: FloatArray,
        dropped_bps: FloatArray,
        counted_bps: FloatArray,
        limit_bps: FloatArray,
        now_s: float,
    ) -> tuple[ReceiveBudgets, RemainingBudget]:
        """Return the budgets after an interval, and what remains of them.

        ``received_bits`` (vns,) came since the last update, ``dropped_bps`` (vns,) is what meters dropped of the
        traffic to each VN. ``counted_bps`` (vns,) are the limits for what came, ``limit_bps`` (vns,) the limits from
        now on.
        """
        horizon_s = self.horizon_s(now_s)
        if measurement_native.library is not None:
            now = (received_bits, dropped_bps, counted_bps, limit_bps)
            after, remaining = enforcement_native.update_budgets(now_s, horizon_s, (_SETTINGS, *now, *self))
            after.insert(2, self._times(now_s))  # the third field, ``updated_s``
            return ReceiveBudgets(*after), RemainingBudget(limit_bps, *remaining)
        pressed_s = np.where(dropped_bps > PRESSED * limit_bps, now_s, self.pressed_s)
        excess_bits = self.excess_bits + received_bits - counted_bps * (now_s - float(self.updated_s[0]))  # 8
        excess_bits = np.clip(excess_bits, 0.0, EXCESS_S * counted_bps)
        allowed = ALLOWED - EXCESS / EXCESS_S * excess_bits / np.maximum(counted_bps, 1.0)
        allowed = np.minimum(allowed, np.where(now_s - pressed_s <= WINDOW_S, ALLOWED_PRESSED, ALLOWED))  # 7
        accounts = self._replace(pressed_s=pressed_s, excess_bits=excess_bits)
        accounts = accounts.updated(received_bits, counted_bps, now_s)
        return accounts, accounts.remaining(limit_bps, allowed, horizon_s)

    def updated(self, received_bits: FloatArray, limit_bps: FloatArray, now_s: float) -> ReceiveBudgets:
        """Return the budgets after ``received_bits`` (vns,) since the last update, under these limits (vns,)."""
        slots, starts_s = self._slots(), self.slot_start_s
        elapsed_s = now_s - float(self.updated_s[0])
        # Of a time longer than the window, the part that came within the window, if all came evenly.
        in_window = WINDOW_S / max(elapsed_s, WINDOW_S)
        above_bits = received_bits * in_window - limit_bps * min(elapsed_s, WINDOW_S)
        newest_slot_full = not self.updated_s[0] < starts_s[0] + SLOT_S
        if newest_slot_full:  # 1
            slots = np.concatenate([above_bits[None], slots[:-1]])
            starts_s = np.concatenate([np.maximum(self.updated_s[:1], now_s - WINDOW_S), starts_s[:-1]])
        else:
            slots = slots.copy()
            slots[0] += above_bits
        return self._replace(slot_bits=slots.ravel(), slot_start_s=starts_s, updated_s=self._times(now_s))

    def remaining(self, limit_bps: FloatArray, allowed: FloatArray, horizon_s: float) -> RemainingBudget:
        """Return what may arrive in the next ``horizon_s`` and later.

        ``limit_bps`` (vns,) are the limits. A window may have ``allowed`` (vns,) times the limit.
        """
        slot_age_s = self.updated_s[0] - self.slot_start_s  # (SLOTS,), ascending
        # Slots that were never used, or long ago: their ages must not count as time in which the limit was kept.
        is_unused = slot_age_s > 2 * WINDOW_S
        slot_age_s = np.where(is_unused, slot_age_s[~is_unused].max(initial=0.0), slot_age_s)
        # 2: a slot has left the window when its newer neighbour's start does.
        newer_age_s = np.concatenate([np.zeros(1), slot_age_s[:-1]])
        leaves_in_s = WINDOW_S - newer_age_s
        ahead_s = np.append(horizon_s, leaves_in_s[leaves_in_s > horizon_s])  # the newest slots outlast the horizon
        # For each slot, from it to the newest: the excess above the limits of that time, and the received bits.
        above_bits = _running_sums(self._slots())
        received_bits = above_bits + limit_bps * slot_age_s[:, None]
        # At the horizon the window has all slots that leave later, and when slot k leaves, it has slots 0 to k; of the
        # oldest slot of these, what is not yet gone.
        oldest = [len(ahead_s) - 2, *range(len(ahead_s) - 1)]
        slot_s = slot_age_s - newer_age_s
        stays_s = np.minimum(slot_s[oldest], WINDOW_S - ahead_s - newer_age_s[oldest] + UNEVEN_S)
        gone = 1.0 - np.divide(stays_s, slot_s[oldest], out=np.ones(len(oldest)), where=slot_s[oldest] > 0.0)
        in_window_bits = received_bits[oldest] - gone[:, None] * (self._slots() + limit_bps * slot_s[:, None])[oldest]
        free_bits = allowed * limit_bps * WINDOW_S - in_window_bits
        # 5
        saved_bits = SAVED_S * limit_bps - np.maximum(above_bits.max(axis=0), 0.0)
        lasting_bits = (free_bits - limit_bps * (ahead_s - horizon_s)[:, None]).min(axis=0)
        # What is allowed above ALLOWED_PRESSED is for senders that time out (7), not for those that keep sending.
        lasting_bits -= np.maximum(allowed - ALLOWED_PRESSED, 0.0) * limit_bps * WINDOW_S
        lasting_bits = np.where(self._dipped(limit_bps, slot_s), free_bits[0], lasting_bits)
        return RemainingBudget(limit_bps, ahead_s, free_bits, saved_bits, lasting_bits)

    def _dipped(self, limit_bps: FloatArray, lengths_s: FloatArray) -> BoolArray:
        """Return the mask of the VNs (vns,) with a dip lately: a low slot, less than DIP_SLOTS after one with traffic.

        The loop goes from the newest slot to the oldest: it meets a low slot before the earlier traffic.
        ``lengths_s`` (SLOTS,) are the lengths of the slots.
        """
        dipped = np.zeros(len(limit_bps), dtype=np.bool_)
        slots_to_search = np.zeros(len(limit_bps), dtype=np.int64)  # for earlier traffic, after a low slot was met
        for number, (above_bits, slot_s) in enumerate(zip(self._slots(), lengths_s, strict=True)):
            has_traffic = above_bits > -(IDLE * limit_bps * slot_s)
            dipped |= (slots_to_search > 0) & has_traffic
            # A slot of no length is old: what it has below zero is rounding.
            is_low = (number < DIP_SLOTS and slot_s > 0.0) & (above_bits < -(DIP * limit_bps * slot_s))
            slots_to_search = np.where(is_low, DIP_SLOTS - 1, np.maximum(slots_to_search - 1, 0))
        return dipped

    def _times(self, now_s: float) -> FloatArray:
        """Return ``updated_s`` after an update at ``now_s``."""
        return np.array([now_s, *self.updated_s[: INTERVALS - 1]])

    def _slots(self) -> FloatArray:
        """Return ``slot_bits`` as (SLOTS, vns)."""
        return self.slot_bits.reshape(SLOTS, -1)


def _running_sums(rows: FloatArray) -> FloatArray:
    """Return ``np.cumsum(rows, axis=0)``, computed by rows, which is faster than numpy's walk through columns."""
    sums = rows.copy()
    for row in range(1, len(sums)):
        sums[row] += sums[row - 1]
    return sums


def first_meter_setting(limit_bps: FloatArray, senders: FloatArray, horizon_s: float) -> tuple[FloatArray, FloatArray]:
    """Return the rate (bit/s) and burst (bits) of a new sender's meter; its receiver has ``senders`` senders.

    The new sender has an equal part of the reserve: half for its burst, half for its rate during ``horizon_s``.
    """
    each_bits = IDLE_RESERVE_S * limit_bps / senders
    return each_bits / (2 * horizon_s), each_bits / 2


class RemainingBudget(NamedTuple):
    """What may arrive at receiving VNs.

    ``free_bits`` (times, vns) may arrive until ``ahead_s`` (times,) from now; the first time is the next reading.
    ``saved_bits`` (vns,) is the credit that all active senders together may have saved, ``lasting_bits`` (vns,) what
    may arrive until the next reading if all active senders keep sending. ``limit_bps`` (vns,) are the receive limits.
    """

    limit_bps: FloatArray
    ahead_s: FloatArray
    free_bits: FloatArray
    saved_bits: FloatArray
    lasting_bits: FloatArray

    def share(
        self, receiver: IntArray, grant_bps: FloatArray, credit_bits: FloatArray, measured: Measurement
    ) -> tuple[FloatArray, FloatArray]:
        """Return the rates and the saved bits that the meters of pairs may have, shape (pairs,) each.

        ``receiver`` (pairs,) are rows of the VN table. No rate exceeds the grant, no saved bits the credit.
        The numbers are those of the module's docstring.
        """
        horizon_s = float(self.ahead_s[0])
        active, used_bps, growth_bps, own_credit_bits = _use_of_grants(grant_bps, credit_bits, measured)
        pauses = active & (measured.silent_intervals > 0)
        summed = (used_bps, growth_bps * horizon_s + own_credit_bits, ~active, pauses)
        sums = [np.bincount(receiver, weights=column, minlength=len(self.limit_bps)) for column in summed]
        used_sum_bps, requested_bits, idle_count, pausing_count = np.array(sums, dtype=np.float64)
        sender_count = np.bincount(receiver, minlength=len(self.limit_bps))
        # 2
        max_bps = np.maximum((self.free_bits / self.ahead_s[:, None]).min(axis=0), 0.0)
        # 3
        scale = np.minimum(max_bps / np.maximum(used_sum_bps, 1.0), 1.0)
        # What may arrive before the next reading; if an active sender pauses, all that is free. Active senders use a
        # part of it; 4 and 5 share what remains.
        available_bits = np.where(pausing_count > 0, self.free_bits[0], self.lasting_bits)
        remaining_bits = available_bits - scale * used_sum_bps * horizon_s
        # 4
        reserve_bits = np.where(idle_count > 0, np.clip(remaining_bits, 0.0, IDLE_RESERVE_S * self.limit_bps), 0.0)
        idle_share_bits = reserve_bits / np.maximum(idle_count, 1)
        # 5
        remaining_bits = np.minimum(remaining_bits - reserve_bits, self.saved_bits)
        part = np.clip(remaining_bits / np.maximum(requested_bits, 1.0), 0.0, 1.0)
        part, idle_share_bits = part[receiver], idle_share_bits[receiver]
        # As in first_meter_setting: half of an idle share is for the rate, the other half is saved.
        idle_bps = np.minimum(grant_bps, idle_share_bits / (2 * horizon_s))
        rate_bps = np.where(active, used_bps * scale[receiver] + part * growth_bps, idle_bps)
        saved_bits = np.where(active, part * own_credit_bits, idle_share_bits - idle_bps * horizon_s)
        # 6
        is_only_sender = sender_count[receiver] < 2
        rate_bps = np.where(is_only_sender, grant_bps, rate_bps)
        return rate_bps, np.where(is_only_sender, credit_bits, np.minimum(credit_bits, saved_bits))


def _use_of_grants(
    grant_bps: FloatArray, credit_bits: FloatArray, measured: Measurement
) -> tuple[BoolArray, FloatArray, FloatArray, FloatArray]:
    """Return the active mask, and of active pairs the used and unused grant (bit/s) and the saved credit (bits).

    All have shape (pairs,); the values of other pairs are 0.
    """
    active = measured.active & (measured.measured_bps > 0.0)
    used_bps = np.where(active, np.minimum(grant_bps, measured.measured_bps), 0.0)
    growth_bps = np.where(active, grant_bps - used_bps, 0.0)
    return active, used_bps, growth_bps, np.where(active, np.maximum(credit_bits, 0.0), 0.0)
