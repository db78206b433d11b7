"""The receiving side: it watches what its queue drops, and tells senders (Gatekeeper, section 3).

Its guarantee is held by the queue's scheduler. Drops there stop TCP. Who does not respond to drops is told by a
congestion notification, and the sending side limits it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation.interface import BoolArray, FloatArray, IntArray
from controller.columns import carry

MOST_WINDOW = 20
# Choice: fewer drops than so many frames of full size in a window are what TCP flows that start cost at low rates.
LEAST_DROPPED_BITS = 24 * 1518 * 8
# Choice: who sends less than this part of its share of the guarantee did not cause the congestion.
BELOW_SHARE = 0.9
NEVER = 1e9  # intervals since a round of messages that never was


@dataclass(frozen=True, slots=True)
class IngressWatch:
    """What the queues of the VNs dropped and served lately; rings of shape (vns, MOST_WINDOW), newest first.

    NaN stands for a reading that did not come. ``since_round`` (vns,) counts the intervals since the VN's last round of
    messages, ``unread`` (vns,) those since the last reading of its queue.
    """

    dropped_bps: FloatArray
    served_bps: FloatArray
    since_round: FloatArray
    unread: FloatArray

    @classmethod
    def unread_yet(cls, vns: int) -> IngressWatch:
        """Return the state before the first reading."""
        ring = np.full((vns, MOST_WINDOW), np.nan)
        return cls(ring, ring, np.full(vns, NEVER), np.zeros(vns))

    def carried(self, old_row: IntArray) -> IngressWatch:
        """Return the state for a re-arranged VN table."""
        start = IngressWatch.unread_yet(len(old_row))
        rings = [np.stack([carry(column, old_row, np.nan) for column in ring.T], axis=1) for ring in self._rings()]
        since = carry(self.since_round, old_row, NEVER)
        return IngressWatch(rings[0], rings[1], since, carry(self.unread, old_row, start.unread))

    def after(self, dropped_bps: FloatArray, served_bps: FloatArray) -> IngressWatch:
        """Return the state after one more interval's readings, (vns,) each, NaN where there are none."""
        known = ~np.isnan(dropped_bps)
        return IngressWatch(
            np.column_stack([dropped_bps, self.dropped_bps[:, :-1]]),
            np.column_stack([np.where(known, served_bps, np.nan), self.served_bps[:, :-1]]),
            self.since_round + 1.0,
            np.where(known, 0.0, self.unread + 1.0),
        )

    def told(self, receivers: BoolArray) -> IngressWatch:
        """Return the state after these VNs, (vns,), sent a round of messages."""
        since = np.where(receivers, 0.0, self.since_round)
        return IngressWatch(self.dropped_bps, self.served_bps, since, self.unread)

    def means(self, window: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return (vns,) the mean drops and service over the last ``window`` (vns,) readings; NaN where none is known.

        The paper: over the last 100 ms.
        """
        within = np.arange(MOST_WINDOW) < window[:, None]
        counted = within & ~np.isnan(self.dropped_bps)
        count = counted.sum(axis=1)
        sums = (np.where(counted, ring, 0.0).sum(axis=1) for ring in self._rings())
        nan = np.full(len(window), np.nan)
        dropped, served = (np.divide(one, count, out=nan.copy(), where=count > 0) for one in sums)
        return dropped, served

    def _rings(self) -> tuple[FloatArray, FloatArray]:
        return self.dropped_bps, self.served_bps


def congested(
    dropped_bps: FloatArray, capacity_bps: FloatArray, threshold: FloatArray, window_s: FloatArray
) -> BoolArray:
    """Return (vns,) whether the mean drops are above the threshold; not where they are unknown.

    Choice: the threshold is a part of the port's capacity. The paper gives none; it sizes its queue so that 256 TCP
    connections drop 20 Mb/s of 1 Gb/s at most.
    """
    most_bps = np.maximum(threshold * capacity_bps, LEAST_DROPPED_BITS / window_s)
    above: BoolArray = np.nan_to_num(dropped_bps) > most_bps
    return above


@dataclass(frozen=True, slots=True)
class Pairs:
    """The entries of Gatekeeper VLANs, (entries,) each: VN rows, whether they send, what passes, their weights."""

    sender: IntArray
    receiver: IntArray
    active: BoolArray
    measured_bps: FloatArray
    weight: FloatArray

    def __len__(self) -> int:
        return len(self.sender)


def shares_of(pairs: Pairs, amount_bps: FloatArray) -> FloatArray:
    """Return (entries,) each active pair's part, by weight, of what its receiver has (vns,); 0 for silent ones."""
    weight = np.where(pairs.active, pairs.weight, 0.0)
    sums = np.bincount(pairs.receiver, weight, minlength=len(amount_bps))[pairs.receiver]
    return amount_bps[pairs.receiver] * np.divide(weight, sums, out=np.zeros(len(pairs)), where=sums > 0)


def targets(pairs: Pairs, rounds: BoolArray, guarantee_bps: FloatArray, everybody: BoolArray) -> BoolArray:
    """Return (entries,) which pairs are told, of the receivers that have a round of messages now, (vns,).

    Deviation: the paper tells the sender of the last frame that was dropped; a switch does not name it. The likeliest
    one is the pair that sends most: with ``everybody`` (vns,) False it is told alone (of equal ones the first). With
    True every pair above its part of the guarantee is told. One message a round never catches ten UDP senders, each of
    which rises again before its turn comes.
    """
    candidates = pairs.active & rounds[pairs.receiver]
    above = candidates & (pairs.measured_bps > BELOW_SHARE * shares_of(pairs, guarantee_bps))
    receivers = len(guarantee_bps)
    largest_bps = np.full(receivers, -1.0)
    np.maximum.at(largest_bps, pairs.receiver[candidates], pairs.measured_bps[candidates])
    is_largest = np.flatnonzero(candidates & (pairs.measured_bps == largest_bps[pairs.receiver]))
    first = np.zeros(len(pairs), dtype=np.bool_)
    first[is_largest[np.unique(pairs.receiver[is_largest], return_index=True)[1]]] = True
    any_above = np.bincount(pairs.receiver, above, minlength=receivers) > 0
    told: BoolArray = np.where((everybody & any_above)[pairs.receiver], above, first)
    return told


def floors(
    pairs: Pairs,
    guarantee_bps: FloatArray,
    served_bps: FloatArray,
    floor_part: FloatArray,
    served_part: FloatArray,
) -> FloatArray:
    """Return (entries,) what no message brings a pair below; the other columns are (vns,), NaN served is unknown.

    Deviation: the paper's messages are empty. Without floors two tenants that both send UDP get 77 and 114 % of their
    guarantees, and one alone leaves a third of an idle link unused. A pair has its part of the guarantee, and of what
    the queue serves its part of what is sent.
    """
    of_guarantee = floor_part[pairs.receiver] * shares_of(pairs, guarantee_bps)
    sums = np.bincount(pairs.receiver, pairs.measured_bps, minlength=len(served_bps))[pairs.receiver]
    part = np.divide(pairs.measured_bps, sums, out=np.zeros(len(pairs)), where=sums > 0)
    of_service = (served_part * np.nan_to_num(served_bps))[pairs.receiver] * part
    result: FloatArray = np.maximum(of_guarantee, of_service)
    return result


def estimated_drops(
    pairs: Pairs, passed_bps: FloatArray, guarantee_bps: FloatArray, capacity_bps: FloatArray, others_bps: FloatArray
) -> FloatArray:
    """Return (vns,) what a port must drop of its VN's traffic, where no queue says so.

    ``passed_bps`` (entries,) is what the meters let through, ``others_bps`` (vns,) what the port's other VLANs get.
    """
    received_bps = np.bincount(pairs.receiver, passed_bps, minlength=len(guarantee_bps))
    left_bps = np.maximum(guarantee_bps, capacity_bps - others_bps)
    result: FloatArray = np.maximum(received_bps - left_bps, 0.0)
    return result
