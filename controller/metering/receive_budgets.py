"""Receive budgets: what a receiving VN received in the last second, and so what its senders' meters may pass next.

Grants bound the long run, and a sender's own bucket bounds its saved credit. Neither bounds what many senders of one
receiver do together: idle senders that start at once, buckets that empty at the same time, grants that sum to more than
the limit. A receiving queue absorbs that. Where no queue holds the receiver, the meters of its senders do
(docs/enforcement.md; docs/adr/0090 has the alternatives):

1) A receiver's budget subtracts what it received above its limit, in slots of SLOT_S over the last WINDOW_S.
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
   keep sending instead of timing out; that counts for a window.
8) What exceeds the limit counts until as much less has arrived: after EXCESS_S of the limit, a window may have EXCESS
   less. So no receiver gets more than its limit for long, and the other VNs of its port keep theirs.
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
SLOTS = 21  # of at least SLOT_S each: together they cover the window
# Maximum of a window, in limits, if senders time out and if not; the meters' granularity adds some 3 %.
ALLOWED, ALLOWED_PRESSED = 1.27, 1.07
PRESSED = 0.7  # of the limit: senders that lose more than that at their meters do not stop because of losses
EXCESS_S, EXCESS = 4.0, 0.4  # in seconds of the limit, and of the limit within a window
IDLE_RESERVE_S = 0.080  # what all idle senders may send before they are measured, in seconds of the limit
SAVED_S = 0.300  # what active senders may save and grow by in all, in seconds of the limit
DIP = 0.5  # of the limit: a slot this much below it is a dip
IDLE = 0.8  # ... and a slot this much below it is idle
DIP_SLOTS = 20  # a dip counts for a window, if the traffic before it did not last longer
UNSEEN_S = 0.060  # from the first frame of a new sender to its first reading
REACTION_S = 0.008  # from reading the counters to installed meters, on a busy switch
MAX_HORIZON_S = 0.2  # senders are not stopped because readings are late
# The median of this many intervals is the expected length of the next: late ones among them have no effect.
INTERVALS = 9
# The same as Settings of _budgets.c.
_SETTINGS = np.array(
    [ALLOWED, ALLOWED_PRESSED, PRESSED, EXCESS_S, EXCESS, WINDOW_S, SAVED_S, SLOT_S, DIP, IDLE, DIP_SLOTS]
)


class ReceiveBudgets(NamedTuple):
    """What VNs received lately. ``slot_start_s`` (SLOTS,) and ``updated_s`` (up to INTERVALS,) begin with the newest.

    ``slot_bits``, shape (SLOTS * vns,), holds a row of all VNs for each slot: the received bits less the limit of that
    time. ``pressed_s`` (vns,) is when the senders of each VN last kept sending in spite of drops,
    ``excess_bits`` (vns,) by how much each has exceeded its limit since it last kept it.
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
        """Return the time from now until meters follow the next reading.

        The rates of idle senders' meters depend on it: with the length of the last interval, a late one would modify
        all of them, and delay the next one too.
        """
        gaps_s = sorted(after - before for after, before in pairwise((now_s, *self.updated_s.tolist())))
        return float(min(gaps_s[(len(gaps_s) - 1) // 2], MAX_HORIZON_S)) + REACTION_S

    def received(
        self,
        received_bits: FloatArray,
        dropped_bps: FloatArray,
        counted_bps: FloatArray,
        limit_bps: FloatArray,
        now_s: float,
    ) -> tuple[ReceiveBudgets, RemainingBudget]:
        """Return ``updated`` with the limits ``counted_bps``, and its ``remaining`` with ``limit_bps``.

        ``dropped_bps`` (vns,) is what meters dropped of the traffic to each VN.
        """
        horizon_s = self.horizon_s(now_s)
        if measurement_native.library is not None:
            now = (received_bits, dropped_bps, counted_bps, limit_bps)
            after, remaining = enforcement_native.update_budgets(now_s, horizon_s, (_SETTINGS, *now, *self))
            after.insert(2, self._times(now_s))
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
        received_bits = received_bits - limit_bps * min(now_s - float(self.updated_s[0]), WINDOW_S)
        if not self.updated_s[0] < starts_s[0] + SLOT_S:  # 1
            slots = np.concatenate([received_bits[None], slots[:-1]])
            starts_s = np.concatenate([np.maximum(self.updated_s[:1], now_s - WINDOW_S), starts_s[:-1]])
        else:
            slots = slots.copy()
            slots[0] += received_bits
        return self._replace(slot_bits=slots.ravel(), slot_start_s=starts_s, updated_s=self._times(now_s))

    def remaining(self, limit_bps: FloatArray, allowed: FloatArray, horizon_s: float) -> RemainingBudget:
        """Return what may arrive in the next ``horizon_s`` and later.

        ``limit_bps`` (vns,) are the limits, ``allowed`` (vns,) the factor of them that a window may have.
        """
        since_s = self.updated_s[0] - self.slot_start_s
        if (old := since_s > 2 * WINDOW_S).any():
            since_s = np.where(old, since_s[~old].max(initial=0.0), since_s)
        # The time within a slot is unknown: all of it counts until the slot has left the window.
        gone_s = [WINDOW_S, *(WINDOW_S - since_s[:-1]).tolist()]
        later = sum(left_s > horizon_s for left_s in gone_s)
        ahead_s = np.array([horizon_s, *gone_s[:later]])
        # In this slot and all later ones: the excess above the limit of that time, and the present limit.
        above_bits = _running_sums(self._slots())
        taken_bits = above_bits + limit_bps * since_s[:, None]
        free_bits = allowed * limit_bps * WINDOW_S - np.concatenate([taken_bits[later - 1 : later], taken_bits[:later]])
        saved_bits = SAVED_S * limit_bps - np.maximum(above_bits.max(axis=0), 0.0)
        lasting_bits = (free_bits - limit_bps * (ahead_s - horizon_s)[:, None]).min(axis=0)
        lasting_bits -= np.maximum(allowed - ALLOWED_PRESSED, 0.0) * limit_bps * WINDOW_S
        lasting_bits = np.where(self._dipped(limit_bps, since_s), free_bits[0], lasting_bits)
        return RemainingBudget(limit_bps, ahead_s, free_bits, saved_bits, lasting_bits)

    def _dipped(self, limit_bps: FloatArray, since_s: FloatArray) -> BoolArray:
        """Return the mask of the VNs (vns,) that received much less than their limit lately, but not for long.

        ``since_s`` are the slots' ages.
        """
        dipped, waits = np.zeros(len(limit_bps), dtype=np.bool_), np.zeros(len(limit_bps), dtype=np.int64)
        lasted_s = np.diff(since_s, prepend=0.0)
        for number, (bits, slot_s) in enumerate(zip(self._slots(), lasted_s.tolist(), strict=True)):
            dipped |= (waits > 0) & (bits > -(IDLE * limit_bps * slot_s))
            low = (number < DIP_SLOTS) & (bits < -(DIP * limit_bps * slot_s))
            waits = np.where(low, DIP_SLOTS - 1, np.maximum(waits - 1, 0))
        return dipped

    def _times(self, now_s: float) -> FloatArray:
        return np.array([now_s, *self.updated_s[: INTERVALS - 1]])

    def _slots(self) -> FloatArray:
        return self.slot_bits.reshape(SLOTS, -1)


def _running_sums(rows: FloatArray) -> FloatArray:
    """Return ``np.cumsum`` along the first axis, computed row by row, since numpy's walk through columns is slow."""
    sums = rows.copy()
    for row in range(1, len(sums)):
        sums[row] += sums[row - 1]
    return sums


def first_meter_setting(limit_bps: FloatArray, senders: FloatArray, horizon_s: float) -> tuple[FloatArray, FloatArray]:
    """Return rate and burst of the meter of a new sender, one of ``senders`` at its receiver.

    Half of its part of the reserve is for its burst, half for its rate during ``horizon_s``.
    """
    each_bits = IDLE_RESERVE_S * limit_bps / senders
    return each_bits / (2 * horizon_s), each_bits / 2


class RemainingBudget(NamedTuple):
    """What may arrive at receiving VNs: ``free_bits`` (times, vns) until ``ahead_s`` (times,) from now.

    The first of the times is the next reading. ``saved_bits`` (vns,) is the credit that active senders may have saved,
    ``lasting_bits`` (vns,) what may arrive until the next reading if all of them keep sending.
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
        """
        horizon_s = float(self.ahead_s[0])
        active, used_bps, growth_bps, kept_bits = _of_active(grant_bps, credit_bits, measured)
        weights = (used_bps, growth_bps * horizon_s + kept_bits, ~active, active & (measured.silent_intervals > 0))
        sums = [np.bincount(receiver, weights=column, minlength=len(self.limit_bps)) for column in weights]
        used_sum_bps, wanted_bits, idle, still = np.array(sums, dtype=np.float64)
        count = np.bincount(receiver, minlength=len(self.limit_bps))
        # 2
        most_bps = np.maximum((self.free_bits / self.ahead_s[:, None]).min(axis=0), 0.0)
        # 3
        scale = np.minimum(most_bps / np.maximum(used_sum_bps, 1.0), 1.0)
        now_bits = np.where(still > 0, self.free_bits[0], self.lasting_bits)
        left_bits = now_bits - scale * used_sum_bps * horizon_s
        # 4
        reserve_bits = np.where(idle > 0, np.clip(left_bits, 0.0, IDLE_RESERVE_S * self.limit_bps), 0.0)
        each_bits = reserve_bits / np.maximum(idle, 1)
        # 5
        left_bits = np.minimum(left_bits - reserve_bits, self.saved_bits)
        part = np.clip(left_bits / np.maximum(wanted_bits, 1.0), 0.0, 1.0)
        part, each_bits = part[receiver], each_bits[receiver]
        idle_bps = np.minimum(grant_bps, each_bits / (2 * horizon_s))
        rate_bps = np.where(active, used_bps * scale[receiver] + part * growth_bps, idle_bps)
        saved_bits = np.where(active, part * kept_bits, each_bits - idle_bps * horizon_s)
        # 6
        alone = count[receiver] < 2
        rate_bps = np.where(alone, grant_bps, rate_bps)
        return rate_bps, np.where(alone, credit_bits, np.minimum(credit_bits, saved_bits))


def _of_active(
    grant_bps: FloatArray, credit_bits: FloatArray, measured: Measurement
) -> tuple[BoolArray, FloatArray, FloatArray, FloatArray]:
    """Return the active mask, the used and the unused part of each grant (bit/s), and the saved credit (bits)."""
    active = measured.active & (measured.measured_bps > 0.0)
    used_bps = np.where(active, np.minimum(grant_bps, measured.measured_bps), 0.0)
    growth_bps = np.where(active, grant_bps - used_bps, 0.0)
    return active, used_bps, growth_bps, np.where(active, np.maximum(credit_bits, 0.0), 0.0)
