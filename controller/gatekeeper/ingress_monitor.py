"""The receiving side: it monitors its queue's drops, and notifies senders (Gatekeeper, section 2, figure 3).

The queue's scheduler holds its guarantee. Drops there stop TCP. A sender that does not respond to drops gets a
congestion notification, and the sending side limits it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.policy.policy_state import PolicyState

_RINGS = ("dropped_bps", "served_bps")
MAX_WINDOW = 20
# Choice: fewer drops than this many full-size frames in a window are normal for starting TCP flows at low rates.
MIN_DROPPED_BITS = 24 * 1518 * 8
# Choice: a sender below this part of its share of the guarantee did not cause the congestion.
BELOW_SHARE = 0.9
# Choice: a queue that serves twice what passes the meters of known senders is filled by unknown ones, which cannot be
# notified.
EXPLAINED = 0.5
# Choice: congestion is over when drops were below half of the threshold for this many intervals.
CALM_INTERVALS = 20
# Intervals after which a VN's recent need of its guarantee is forgotten.
NEED_INTERVALS = 20


@dataclass(frozen=True, slots=True)
class IngressMonitor:
    """What the queues of the VNs dropped and served lately; rings of shape (vns, depth), newest first.

    NaN is a missing reading. ``since_round`` (vns,) counts the intervals since the VN's last round of messages
    (infinite: none), ``unread`` (vns,) the intervals since the last reading of its queue, ``calm`` (vns,) the intervals
    since its drops were last significant; ``congested`` (vns,) is the mask of the VNs with declared congestion.
    """

    dropped_bps: FloatArray
    served_bps: FloatArray
    since_round: FloatArray
    unread: FloatArray
    calm: FloatArray
    congested: BoolArray

    @classmethod
    def remembered(cls, memory: PolicyState, depth: int) -> IngressMonitor:
        """Return the state stored in a policy state, with windows of at most ``depth`` readings."""
        rings = [np.column_stack([memory.vn_column(f"{name}_{age}") for age in range(depth)]) for name in _RINGS]
        since, unread, calm, was = (memory.vn_column(name) for name in ("since_round", "unread", "calm", "congested"))
        since = np.where(np.isnan(since), np.inf, since)
        return cls(rings[0], rings[1], since, np.nan_to_num(unread), np.nan_to_num(calm), was == 1.0)

    def columns(self) -> dict[str, FloatArray]:
        """Return the columns to store, by VN."""
        rings = zip(_RINGS, (self.dropped_bps, self.served_bps), strict=True)
        columns = {f"{name}_{age}": ring[:, age].copy() for name, ring in rings for age in range(ring.shape[1])}
        columns |= {"since_round": self.since_round, "unread": self.unread, "calm": self.calm}
        return columns | {"congested": self.congested.astype(np.float64)}

    def updated(self, dropped_bps: FloatArray, served_bps: FloatArray) -> IngressMonitor:
        """Return the state after one more interval's readings, (vns,) each, NaN where missing."""
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
        """Return (vns,) the mean drops and service over the last ``window`` (vns,) readings; NaN without readings.

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
    connections drop 20 Mb/s of 1 Gb/s at most (section 3.1). A window without duration, before the first interval, has
    no threshold.
    """
    least_bps = np.divide(MIN_DROPPED_BITS, window_s, out=np.full(len(window_s), np.inf), where=window_s > 0)
    result: FloatArray = np.maximum(threshold * capacity_bps, least_bps)
    return result


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of Gatekeeper VLANs, (pairs,) each: VN rows, activity, measured rates, weights."""

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
    """Return (pairs,) each active pair's part, by weight, of its receiver's amount (vns,); 0 for idle pairs."""
    weight = np.where(pairs.active, pairs.weight, 0.0)
    sums = np.bincount(pairs.receiver, weight, minlength=len(amount_bps))[pairs.receiver]
    return amount_bps[pairs.receiver] * np.divide(weight, sums, out=np.zeros(len(pairs)), where=sums > 0)


def targets(pairs: Pairs, rounds: BoolArray, guarantee_bps: FloatArray, all_above_share: BoolArray) -> BoolArray:
    """Return (pairs,) the pairs to notify, of the receivers with a round of messages now, (vns,).

    Deviation: the paper notifies the sender of the last dropped frame; a switch does not name it. The likeliest sender
    is the pair that sends most: with ``all_above_share`` (vns,) False only that pair is notified (of equal ones the
    first). With True every pair above its part of the guarantee is notified, and only that pair if there is none above.
    With one message per round ten UDP senders cannot be limited: each rises again before its next message.
    """
    candidates = pairs.active & rounds[pairs.receiver]
    above = candidates & (pairs.measured_bps > BELOW_SHARE * shares_of(pairs, guarantee_bps))
    receivers = len(guarantee_bps)
    largest_bps = np.full(receivers, -1.0)
    np.maximum.at(largest_bps, pairs.receiver[candidates], pairs.measured_bps[candidates])
    is_largest = np.flatnonzero(candidates & (pairs.measured_bps == largest_bps[pairs.receiver]))
    first = np.zeros(len(pairs), dtype=np.bool_)  # the first of the largest pairs of each receiver
    first[is_largest[np.unique(pairs.receiver[is_largest], return_index=True)[1]]] = True
    any_above = np.bincount(pairs.receiver, above, minlength=receivers) > 0
    notified: BoolArray = np.where((all_above_share & any_above)[pairs.receiver], above, first)
    return notified


def floors(
    pairs: Pairs,
    guarantee_bps: FloatArray,
    served_bps: FloatArray,
    floor_part: FloatArray,
    served_part: FloatArray,
) -> FloatArray:
    """Return (pairs,) the lower bound of each pair's limit, in bit/s.

    The other columns are (vns,), by receiver; ``served_bps`` is the rate that its queue serves, NaN if unknown.
    ``floor_part`` and ``served_part`` are the policy's parameters ``floor`` and ``served``.

    Deviation: the paper's messages are empty. Without floors two tenants that both send UDP get 77 and 114 % of their
    guarantees, and a single one leaves a third of an idle link unused. The floor is the larger of two rates:
    ``floor_part`` of the pair's share of the guarantee, and ``served_part`` of the served rate, shared in proportion
    to what the pairs send.
    """
    of_guarantee = floor_part[pairs.receiver] * shares_of(pairs, guarantee_bps)
    sums = np.bincount(pairs.receiver, pairs.measured_bps, minlength=len(served_bps))[pairs.receiver]
    part = np.divide(pairs.measured_bps, sums, out=np.zeros(len(pairs)), where=sums > 0)
    of_service = (served_part * np.nan_to_num(served_bps))[pairs.receiver] * part
    result: FloatArray = np.maximum(of_guarantee, of_service)
    return result


def guarantee_needs(before_bps: FloatArray, sent_bps: FloatArray, guarantee_bps: FloatArray) -> FloatArray:
    """Return (vns,) the needed part of guarantees: the present rate ``sent_bps`` of the senders, or the recent one.

    Choice: the recent rate fades over NEED_INTERVALS. TCP that a UDP blast starves sends nothing for several timeouts.
    """
    faded_bps = np.nan_to_num(before_bps) * (1.0 - 1.0 / NEED_INTERVALS)
    result: FloatArray = np.minimum(np.maximum(sent_bps, faded_bps), guarantee_bps)
    return result


def within_port(
    served_bps: FloatArray, needed_bps: FloatArray, guarantee_bps: FloatArray, capacity_bps: FloatArray, port: IntArray
) -> FloatArray:
    """Return (vns,) a queue's service rate, less what the port's other VNs need of their guarantees.

    ``port`` is the row of the VN's port. Deviation: UDP that starves another VN before the port is served completely,
    and would keep that rate.
    """
    cross_traffic_bps = np.bincount(port, needed_bps)[port] - needed_bps
    result: FloatArray = np.minimum(served_bps, np.maximum(guarantee_bps, capacity_bps - cross_traffic_bps))
    return result


def port_shares(pairs: Pairs, capacity_bps: FloatArray, all_above_share: BoolArray) -> FloatArray:
    """Return (pairs,) each pair's part, by its rate, of the capacity of its receiver's port, (vns,).

    Deviation: halving limits whose sum is far above the port's capacity has no effect: ten senders would need four
    rounds of messages. Infinite where one sender gets the message (not ``all_above_share``).
    """
    sums = np.bincount(pairs.receiver, pairs.measured_bps, minlength=len(capacity_bps))[pairs.receiver]
    part = np.divide(pairs.measured_bps, sums, out=np.ones(len(pairs)), where=sums > 0)
    return np.where(all_above_share[pairs.receiver], capacity_bps[pairs.receiver] * part, np.inf)


def estimated_drops(
    received_bps: FloatArray, guarantee_bps: FloatArray, capacity_bps: FloatArray, port: IntArray
) -> FloatArray:
    """Return (vns,) an estimate of a port's drops of its VN's traffic, for ports without queue counters.

    ``received_bps`` is what passes the meters of a VN's senders, ``port`` the row of its port.
    """
    at_port_bps = np.bincount(port, received_bps)[port]
    left_bps = np.maximum(guarantee_bps, capacity_bps - (at_port_bps - received_bps))
    result: FloatArray = np.maximum(received_bps - left_bps, 0.0)
    return result
