"""What a receiving VN took in over the last second, and what its senders' meters may therefore let through next.

Grants bound the long run, and a sender's own bucket bounds what it saved. Neither bounds what many senders of one
receiver do together: sleepers that wake at once, buckets that are emptied in step, grants that sum to more than the
limit. A receiving queue holds that back. Where no queue holds the receiver, the meters of its senders do
(docs/enforcement.md; docs/adr/0090 has the alternatives):

1) A receiver's account is what it took in above its limit, in slots of SLOT_S over the last WINDOW_S.
2) Until each slot has left the window, only so much may come: that bounds what comes before the next reading, and the
   rate of the senders in use for longer.
3) Senders in use come first: what each sends now, within its grant, all scaled to that rate.
4) Idle senders share a reserve: what all of them together may send before the controller sees it.
5) What is left goes to growth (grants not used yet) and to saved credit, in proportion. It is at most SAVED_S of the
   limit, less what came above the limit lately. Where all senders in use go on sending it is no more than what lets the
   limit go on coming after it. Where one stands still, or the receiver's traffic has dipped and come back, senders
   time out at their meters: they live on what they save meanwhile, and may have all that the window has room for.
6) A receiver's only sender has what its grant and its own bucket allow: with less TCP does not fill its grant.
7) No second brings more than a tenth above the limit, but where senders time out: several TCP flows come in waves, and
   then a second may bring what a lone sender's bucket may. Senders that lose PRESSED of the limit at their meters press
   on instead of timing out; that counts for a window.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray, reindex
from controller.metering import enforcement_native, measurement_native
from controller.metering.measurement import Measurement

WINDOW_S = 1.0
NEVER_S = -1e9  # before anything was received
SLOT_S = 0.050
SLOTS = 21  # of at least SLOT_S each: they cover the window
# Of the limit within a window, where senders time out and where not; what the meters' grain adds is some 3 % more.
ALLOWED, ALLOWED_PRESSED = 1.27, 1.07
PRESSED = 0.7  # of the limit: senders that lose more than that at their meters do not stop when they lose
IDLE_RESERVE_S = 0.080  # what all idle senders may send before they are seen, in seconds of the limit
SAVED_S = 0.300  # what the senders in use may save and grow by in all, in seconds of the limit
DIP = 0.5  # of the limit: a slot that brought so much less is a dip
IDLE = 0.8  # ... and one that brought so much less nothing to speak of
DIP_SLOTS = 20  # a dip counts for a window, if there was traffic no longer before it
UNSEEN_S = 0.060  # from its first frame to the first reading that shows what a new sender sends
REACTION_S = 0.008  # from reading the counters to meters that stand, on a busy switch
MAX_HORIZON_S = 0.2  # no senders are stopped because readings come late
INTERVALS = 9  # of so many the middle one is how long the next is expected to be: late ones among them change nothing
_SETTINGS = np.array([ALLOWED_PRESSED, WINDOW_S, SAVED_S, SLOT_S, DIP, IDLE, DIP_SLOTS])  # as Settings of _budgets.c


class ReceiveBudgets(NamedTuple):
    """What VNs received lately. ``slot_start_s`` (SLOTS,) and ``updated_s`` (up to INTERVALS,) begin with the newest.

    ``slot_bits``, shape (SLOTS * vns,), holds a row of all VNs for each slot: what came above the limit of that time,
    below 0 where less came. ``pressed_s`` (vns,) is when the senders of each VN last pressed on.
    """

    slot_bits: FloatArray
    slot_start_s: FloatArray
    updated_s: FloatArray
    pressed_s: FloatArray

    @classmethod
    def initial(cls, vns: int) -> ReceiveBudgets:
        """Return the state before anything was received."""
        return cls(np.zeros(SLOTS * vns), np.full(SLOTS, NEVER_S), np.full(1, NEVER_S), np.full(vns, NEVER_S))

    def reindexed(self, old_row: IntArray) -> ReceiveBudgets:
        """Return the state for a re-arranged VN table."""
        slots = [reindex(slot, old_row, 0.0) for slot in self._slots()]
        return self._replace(slot_bits=np.concatenate(slots), pressed_s=reindex(self.pressed_s, old_row, NEVER_S))

    def horizon_s(self, now_s: float) -> float:
        """Return how long it takes from now until meters follow the next reading.

        Idle senders' meters depend on it: were it the last interval, a late one would modify them all, and make the
        next late too.
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
        """Return ``updated`` with the limits ``counted_bps``, and ``rooms`` of that with ``limit_bps``.

        ``dropped_bps`` (vns,) is what meters dropped of the traffic to each VN.
        """
        horizon_s = self.horizon_s(now_s)
        pressed_s = np.where(dropped_bps > PRESSED * limit_bps, now_s, self.pressed_s)  # 7
        allowed = np.where(now_s - pressed_s <= WINDOW_S, ALLOWED_PRESSED, ALLOWED)
        if measurement_native.library is not None:
            before = (self.slot_bits, self.slot_start_s, self.updated_s)
            columns = (_SETTINGS, received_bits, counted_bps, limit_bps, *before, allowed)
            after, rooms = enforcement_native.update_budgets(now_s, horizon_s, columns)
            return ReceiveBudgets(*after[:2], self._times(now_s), pressed_s), RemainingBudget(limit_bps, *rooms)
        accounts = self._replace(pressed_s=pressed_s).updated(received_bits, counted_bps, now_s)
        return accounts, accounts.rooms(limit_bps, allowed, horizon_s)

    def updated(self, received_bits: FloatArray, limit_bps: FloatArray, now_s: float) -> ReceiveBudgets:
        """Return the accounts after ``received_bits`` (vns,) came since the last update, under these limits (vns,)."""
        slots, starts_s = self._slots(), self.slot_start_s
        received_bits = received_bits - limit_bps * min(now_s - float(self.updated_s[0]), WINDOW_S)
        if not self.updated_s[0] < starts_s[0] + SLOT_S:  # 1
            slots = np.concatenate([received_bits[None], slots[:-1]])
            starts_s = np.concatenate([np.maximum(self.updated_s[:1], now_s - WINDOW_S), starts_s[:-1]])
        else:
            slots = slots.copy()
            slots[0] += received_bits
        return self._replace(slot_bits=slots.ravel(), slot_start_s=starts_s, updated_s=self._times(now_s))

    def rooms(self, limit_bps: FloatArray, allowed: FloatArray, horizon_s: float) -> RemainingBudget:
        """Return what may come over the next ``horizon_s`` and later.

        ``limit_bps`` (vns,) are the limits, ``allowed`` (vns,) how much of them a window may bring.
        """
        since_s = self.updated_s[0] - self.slot_start_s
        if (old := since_s > 2 * WINDOW_S).any():
            since_s = np.where(old, since_s[~old].max(initial=0.0), since_s)
        # Nothing is known of when in a slot it came: all of it counts until the slot has left the window.
        gone_s = [WINDOW_S, *(WINDOW_S - since_s[:-1]).tolist()]
        later = sum(left_s > horizon_s for left_s in gone_s)
        ahead_s = np.array([horizon_s, *gone_s[:later]])
        # In this slot and all after it: what was above the limit of that time, and today's limit.
        above_bits = _running_sums(self._slots())
        taken_bits = above_bits + limit_bps * since_s[:, None]
        free_bits = allowed * limit_bps * WINDOW_S - np.concatenate([taken_bits[later - 1 : later], taken_bits[:later]])
        saved_bits = SAVED_S * limit_bps - np.maximum(above_bits.max(axis=0), 0.0)
        lasting_bits = (free_bits - limit_bps * (ahead_s - horizon_s)[:, None]).min(axis=0)
        lasting_bits -= (allowed - ALLOWED_PRESSED) * limit_bps * WINDOW_S
        lasting_bits = np.where(self._dipped(limit_bps, since_s), free_bits[0], lasting_bits)
        return RemainingBudget(limit_bps, ahead_s, free_bits, saved_bits, lasting_bits)

    def _dipped(self, limit_bps: FloatArray, since_s: FloatArray) -> BoolArray:
        """Return which VNs (vns,) got much less than their limit lately, and not for long.

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
    """Return what ``np.cumsum`` along the first axis does, a row at a time: it walks through columns, which is slow."""
    sums = rows.copy()
    for row in range(1, len(sums)):
        sums[row] += sums[row - 1]
    return sums


def first_meter_setting(limit_bps: FloatArray, senders: FloatArray, horizon_s: float) -> tuple[FloatArray, FloatArray]:
    """Return rate and burst of the meter of a sender that has not been seen yet, one of so many at its receiver.

    Half of its part of the reserve is for its burst, half for what its rate brings within ``horizon_s``.
    """
    each_bits = IDLE_RESERVE_S * limit_bps / senders
    return each_bits / (2 * horizon_s), each_bits / 2


class RemainingBudget(NamedTuple):
    """What may come to receiving VNs: ``free_bits`` (times, vns) until ``ahead_s`` (times,) from now.

    The first of the times is that of the next reading. ``saved_bits`` (vns,) is what senders in use may have saved,
    ``lasting_bits`` (vns,) what may come until the next reading where all of them go on sending.
    """

    limit_bps: FloatArray
    ahead_s: FloatArray
    free_bits: FloatArray
    saved_bits: FloatArray
    lasting_bits: FloatArray

    def share(
        self, receiver: IntArray, grant_bps: FloatArray, credit_bits: FloatArray, measured: Measurement
    ) -> tuple[FloatArray, FloatArray]:
        """Return the rates and the saved bits that the meters of entries may have, shape (entries,) each.

        ``receiver`` (entries,) are rows of the VN table. No rate is above the grant, nothing saved above the credit.
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
    """Return who sends, and what of its grant it uses, what not (bit/s), and what it has saved (bits)."""
    active = measured.active & (measured.measured_bps > 0.0)
    used_bps = np.where(active, np.minimum(grant_bps, measured.measured_bps), 0.0)
    growth_bps = np.where(active, grant_bps - used_bps, 0.0)
    return active, used_bps, growth_bps, np.where(active, np.maximum(credit_bits, 0.0), 0.0)
