"""The receiving side: it watches what its queue drops, and tells senders (Gatekeeper, section 2, figure 3).

Its guarantee is held by the queue's scheduler. Drops there stop TCP. Who does not respond to drops is told by a
congestion notification, and the sending side limits it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.policy.policy_state import PolicyState

_RINGS = ("dropped_bps", "served_bps")
MAX_WINDOW = 20
# Choice: fewer drops than so many frames of full size in a window are what TCP flows that start cost at low rates.
MIN_DROPPED_BITS = 24 * 1518 * 8
# Choice: who sends less than this part of its share of the guarantee did not cause the congestion.
BELOW_SHARE = 0.9
# Choice: a queue that serves twice what passes the meters of known senders is filled by others: nobody can be told.
EXPLAINED = 0.5
# Choice: congestion is over when drops were below half of the threshold for so many intervals.
CALM_INTERVALS = 20
# Over how many intervals it is forgotten what a VN needed of its guarantee.
NEED_INTERVALS = 20


@dataclass(frozen=True, slots=True)
class IngressMonitor:
    """What the queues of the VNs dropped and served lately; rings of shape (vns, depth), newest first.

    NaN stands for a reading that did not come. ``since_round`` (vns,) counts the intervals since the VN's last round of
    messages (infinite: there was none), ``unread`` (vns,) those since the last reading of its queue, ``calm`` (vns,)
    those since its drops were last worth speaking of; ``congested`` (vns,) is whether congestion was declared.
    """

    dropped_bps: FloatArray
    served_bps: FloatArray
    since_round: FloatArray
    unread: FloatArray
    calm: FloatArray
    congested: BoolArray

    @classmethod
    def remembered(cls, memory: PolicyState, depth: int) -> IngressMonitor:
        """Return the state that was kept, for windows of ``depth`` readings at most."""
        rings = [np.column_stack([memory.vn_column(f"{name}_{age}") for age in range(depth)]) for name in _RINGS]
        since, unread, calm, was = (memory.vn_column(name) for name in ("since_round", "unread", "calm", "congested"))
        since = np.where(np.isnan(since), np.inf, since)
        return cls(rings[0], rings[1], since, np.nan_to_num(unread), np.nan_to_num(calm), was == 1.0)

    def columns(self) -> dict[str, FloatArray]:
        """Return what to remember, by VN."""
        rings = zip(_RINGS, (self.dropped_bps, self.served_bps), strict=True)
        columns = {f"{name}_{age}": ring[:, age].copy() for name, ring in rings for age in range(ring.shape[1])}
        columns |= {"since_round": self.since_round, "unread": self.unread, "calm": self.calm}
        return columns | {"congested": self.congested.astype(np.float64)}

    def updated(self, dropped_bps: FloatArray, served_bps: FloatArray) -> IngressMonitor:
        """Return the state after one more interval's readings, (vns,) each, NaN where there are none."""
        known = ~np.isnan(dropped_bps)
        return replace(
            self,
            dropped_bps=np.column_stack([dropped_bps, self.dropped_bps[:, :-1]]),
            served_bps=np.column_stack([np.where(known, served_bps, np.nan), self.served_bps[:, :-1]]),
            since_round=self.since_round + 1.0,
            unread=np.where(known, 0.0, self.unread + 1.0),
        )

    def notified(self, receivers: BoolArray) -> IngressMonitor:
        """Return the state after these VNs, (vns,), sent a round of messages."""
        return replace(self, since_round=np.where(receivers, 0.0, self.since_round))

    def declared(self, dropped_bps: FloatArray, threshold_bps: FloatArray) -> IngressMonitor:
        """Return the state after congestion was declared begun or over, by the mean drops and the thresholds (vns,)."""
        calm = np.where(np.nan_to_num(dropped_bps) < threshold_bps / 2, self.calm + 1.0, 0.0)
        above = np.nan_to_num(dropped_bps) > threshold_bps
        return replace(self, calm=calm, congested=above | (self.congested & (calm < CALM_INTERVALS)))

    def means(self, window: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (vns,) the mean drops and service over the last ``window`` (vns,) readings; NaN where none is known.

        The paper: over the last 100 ms, of samples of 10 ms (section 3.1).
        """
        within = np.arange(self.dropped_bps.shape[1]) < window[:, None]
        counted = within & ~np.isnan(self.dropped_bps)
        count = counted.sum(axis=1)
        sums = (np.where(counted, ring, 0.0).sum(axis=1) for ring in (self.dropped_bps, self.served_bps))
        nan = np.full(len(window), np.nan)
        dropped, served = (np.divide(one, count, out=nan.copy(), where=count > 0) for one in sums)
        return dropped, served


def thresholds(capacity_bps: FloatArray, threshold: FloatArray, window_s: FloatArray) -> FloatArray:
    """Return (vns,) the mean drops above which a VN is congested.

    Choice: the threshold is a part of the port's capacity. The paper gives none; it sizes its queue so that 256 TCP
    connections drop 20 Mb/s of 1 Gb/s at most (section 3.1). A window that lasted no time, before the first interval,
    shows nothing.
    """
    least_bps = np.divide(MIN_DROPPED_BITS, window_s, out=np.full(len(window_s), np.inf), where=window_s > 0)
    result: FloatArray = np.maximum(threshold * capacity_bps, least_bps)
    return result


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

    def only(self, rows: IntArray) -> Pairs:
        """Return some of the pairs."""
        sender, receiver = self.sender[rows], self.receiver[rows]
        return Pairs(sender, receiver, self.active[rows], self.measured_bps[rows], self.weight[rows])


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


def guarantee_needs(before_bps: FloatArray, sent_bps: FloatArray, guarantee_bps: FloatArray) -> FloatArray:
    """Return (vns,) what VNs need of their guarantees: what their senders send or sent lately, ``sent_bps``.

    Choice: it fades over NEED_INTERVALS. TCP that a flood starves sends nothing for several time-outs.
    """
    faded_bps = np.nan_to_num(before_bps) * (1.0 - 1.0 / NEED_INTERVALS)
    result: FloatArray = np.minimum(np.maximum(sent_bps, faded_bps), guarantee_bps)
    return result


def within_port(
    served_bps: FloatArray, needed_bps: FloatArray, guarantee_bps: FloatArray, capacity_bps: FloatArray, port: IntArray
) -> FloatArray:
    """Return (vns,) what a queue serves, as far as the port's other VNs do not need it.

    ``port`` is the row of the VN's port. Deviation: a flood that starves another VN before it reaches the port is
    served all of it, and would keep it.
    """
    others_bps = np.bincount(port, needed_bps)[port] - needed_bps
    result: FloatArray = np.minimum(served_bps, np.maximum(guarantee_bps, capacity_bps - others_bps))
    return result


def port_shares(pairs: Pairs, capacity_bps: FloatArray, everybody: BoolArray) -> FloatArray:
    """Return (entries,) each pair's part, by what it sends, of what its receiver's port carries, (vns,).

    Deviation: limits that together are far above what the port carries change nothing when they are halved: ten
    senders would need four rounds of messages. Where one sender gets the message (not ``everybody``): infinite.
    """
    sums = np.bincount(pairs.receiver, pairs.measured_bps, minlength=len(capacity_bps))[pairs.receiver]
    part = np.divide(pairs.measured_bps, sums, out=np.ones(len(pairs)), where=sums > 0)
    return np.where(everybody[pairs.receiver], capacity_bps[pairs.receiver] * part, np.inf)


def estimated_drops(
    received_bps: FloatArray, guarantee_bps: FloatArray, capacity_bps: FloatArray, port: IntArray
) -> FloatArray:
    """Return (vns,) what a port must drop of its VN's traffic, where no queue says so.

    ``received_bps`` is what passes the meters of a VN's senders, ``port`` the row of its port.
    """
    at_port_bps = np.bincount(port, received_bps)[port]
    left_bps = np.maximum(guarantee_bps, capacity_bps - (at_port_bps - received_bps))
    result: FloatArray = np.maximum(received_bps - left_bps, 0.0)
    return result
