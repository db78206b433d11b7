"""Gatekeeper's policy: guaranteed access links in both directions, idle bandwidth is lent (HPL-2010-151, section 2).

Receiving and sending side share rows of the pair table only, and exchange messages: the receiving side detects drops in
its queues and sends notifications, the sending side halves limits, raises them, and schedules its port.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.allocation.explanation import Explanation
from controller.allocation.network_max_min import MIN_DEMAND_BPS, ByDemands, FlowCounters, estimate_demands
from controller.allocation.parameters import parameter, switch
from controller.columns import BoolArray, FloatArray
from controller.errors import InvalidValueError
from controller.gatekeeper import egress_limits, ingress_monitor
from controller.gatekeeper.decision import GatekeeperDecision
from controller.gatekeeper.explanation import explain
from controller.gatekeeper.ingress_monitor import IngressMonitor, Pairs
from controller.metering.fabric_readings import ReadingKind
from controller.policy.demand_trials import DemandTrials
from controller.policy.feedback import CongestionFeedback
from controller.policy.interface import Decision, LocationName, NewPairs, Policy, PolicyView, StaleMode
from controller.policy.policy_state import PolicyState
from controller.units import MIN_RATE_BPS

# Choice: without a reading of its queue for this many intervals (1.1 s at 55 ms), a receiver lets its senders rise
# again.
BLIND_INTERVALS = 20
# Choice: a later notification would leave UDP at full rate for half a second.
MAX_HOLD_MS = 500
# Choice: a sender whose limit falls below this part of its previous one forfeits its saved burst. A sender near its
# floor, which is notified again and again, would otherwise get less than its limit.
FORFEITS_BELOW = 0.6
FLOOR_BPS, ROOM_BPS = "floor_bps", "room_bps"
"""The columns of a notification. Deviation: the paper's are empty."""


@dataclass(frozen=True)
class Gatekeeper(Policy):
    """Guaranteed access links in both directions: receivers report drops to senders, whose limits halve and rise.

    The paper has ``decrease`` 0.5, ``feedback`` 1, and 0 for ``floor``, ``served``, ``targets`` and ``pair`` (section
    2); its ``window`` is 100 ms (section 3.1). It found threshold and slope by experiment (section 2), and gives
    neither. Choice: ``threshold``, ``slope``, and ``hold``, which the paper does not have.
    """

    threshold: float = parameter(
        0.02, "drops above this part of the port's capacity are congestion", above=0.0, maximum=0.5
    )
    window: float = parameter(
        2.0,
        "number of intervals over which drops are averaged",
        minimum=1.0,
        maximum=float(ingress_monitor.MAX_WINDOW),
        whole=True,
    )
    hold: float = parameter(
        2.0,
        "intervals between two rounds of messages of a receiver; shorter than the window, one congestion halves many "
        "times",
        minimum=1.0,
        maximum=40.0,
        whole=True,
    )
    decrease: float = parameter(0.5, "part by which a message lowers a limit", minimum=0.05, maximum=0.99)
    slope: float = parameter(
        0.4,
        "part of a receiving port's capacity by which the limits of all its senders together rise in a second",
        above=0.0,
        maximum=10.0,
    )
    floor: float = parameter(
        1.0,
        "lower bound of a limit, as a part of the sender's share of the receive guarantee; 0 is the paper",
        minimum=0.0,
        maximum=1.0,
    )
    served: float = parameter(
        1.0,
        "lower bound of a limit, as a part of the sender's share of the queue's service rate; 0 is the paper",
        minimum=0.0,
        maximum=1.0,
    )
    targets: float = switch(
        True, "whether every sender above its share of the guarantee gets the message; off: only the largest"
    )
    pair: float = switch(True, "whether each pair has a limit; off is the paper: one limit per sending VN")
    feedback: float = switch(True, "whether messages are sent at all")

    name: ClassVar[str] = "gatekeeper"
    title: ClassVar[str] = "Gatekeeper"
    borrows: ClassVar[bool] = True
    port_ceilings: ClassVar[bool] = True
    weighted: ClassVar[bool] = True
    needs_headroom: ClassVar[bool] = True
    declares_congestion: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    silence: ClassVar[StaleMode] = StaleMode.HOLD
    required_readings: ClassVar[frozenset[ReadingKind]] = frozenset({ReadingKind.LINKS, ReadingKind.QUEUES})

    def check_interval(self, interval_ms: int) -> None:
        """Raise InvalidValueError if two rounds of messages would be more than half a second apart."""
        if self.hold * interval_ms > MAX_HOLD_MS:
            most = MAX_HOLD_MS // interval_ms
            fits = f"at most {most} fit" if most else "none fits"
            reason = f"intervals of {interval_ms} ms are more than {MAX_HOLD_MS} ms between two messages: {fits}"
            raise InvalidValueError("hold", self.hold, reason)

    def decide(self, view: PolicyView, memory: PolicyState) -> GatekeeperDecision:
        """Run one interval.

        Receiving side:
        1. The queue's drops and service, or an estimate where the port has no queue for the VLAN; their means.
        2. Above the threshold, and ``hold`` intervals after the last round, messages go out.
        Sending side:
        3. Limits start at the maximum rate, and rise linearly, but not where a message arrived. They rise when meter
           and queue were read, for the time since they last rose: a reading shows the drops of all that time.
        4. A message halves the limit.
        5. The sending port's scheduler: guarantees, then the excess by weight. A VN that may be crowded out demands
           more than it sends.
        6. The lowest of limit, scheduled rate and ceilings is effective.

        Raises InvalidValueError without links: sending ports are rows of them.
        """
        if view.links is None or view.cross_traffic_bps is None or view.cross_guaranteed_bps is None:
            raise InvalidValueError("links", view.links, f"are needed: {self.name} schedules sending ports")
        pairs = Pairs(view.sender, view.receiver, view.active, view.measured_bps, view.vns.weight[view.sender])
        seen = _receiving_side(view, memory, pairs)  # 1, 2
        ceiling_bps = view.ceiling_bps
        limits = _sending_side(view, memory, pairs, seen, ceiling_bps)  # 3, 4
        together = _of(view, "pair") == 0.0
        demand_bps, trials = _demands(view, memory, ceiling_bps)
        shared_bps = egress_limits.shared_limits(pairs, limits.limit_bps, together, demand_bps)
        scheduled_bps, sending_bps = _scheduled(view, pairs, np.minimum(demand_bps, shared_bps))  # 5
        grant_bps = np.minimum(np.minimum(shared_bps, scheduled_bps), ceiling_bps)  # 6
        notified = limits.notified
        record = _record(view, memory, notified, limits.limit_bps < limits.most_bps, seen.dropped_bps)
        by_vn = {**seen.watch.columns(), **trials.columns(), "needed_bps": seen.needed_bps}
        by_entry = {"limit_bps": limits.limit_bps, "waited_s": limits.waited_s, **record}
        next_state = memory.updated(by_vn=by_vn, by_entry=by_entry)
        share_bps = ingress_monitor.shares_of(pairs, view.vns.receive_limit_bps)
        settled_bps = np.minimum(np.minimum(np.maximum(shared_bps, share_bps), scheduled_bps), ceiling_bps)
        return GatekeeperDecision(
            view,
            np.maximum(grant_bps, MIN_RATE_BPS),
            next_state,
            shared_bps,
            limits.floor_bps,
            scheduled_bps,
            limits.rise_bps_per_s,
            record["halvings"],
            record["first_told_s"],
            record["told_s"],
            record["told_drops_bps"],
            seen.dropped_bps,
            seen.threshold_bps,
            sending_bps,
            congested=seen.watch.congested & view.in_group,
            feedback=seen.messages,
            forfeits=notified & (grant_bps < FORFEITS_BELOW * view.limit_bps),
            final_bps=np.maximum(settled_bps, MIN_RATE_BPS),
        )

    def explain(self, decision: Decision, at: int, format_location: LocationName) -> Explanation:
        """Return what binds the pair: its egress limit, its share of the sending port, or its ceilings."""
        assert isinstance(decision, GatekeeperDecision)
        return explain(decision, at, format_location)

    def first_bps(self, new_pairs: NewPairs) -> FloatArray:
        """Return the maximum rates of new pairs: no pair is limited before a message (paper: "the physical link")."""
        vns = new_pairs.vns
        return np.minimum(vns.send_max_bps[new_pairs.sender], vns.receive_max_bps[new_pairs.receiver])


@dataclass(frozen=True, slots=True)
class _Limits:
    """Egress limits, (rows,); ``waited_s`` is the time since each last rose or was lowered."""

    notified: BoolArray
    limit_bps: FloatArray
    most_bps: FloatArray
    floor_bps: FloatArray
    rise_bps_per_s: FloatArray
    waited_s: FloatArray


def _of(view: PolicyView, name: str) -> FloatArray:
    """Return a parameter by VN, (vns,); the default for VNs of other policies, where it is not used."""
    return np.where(view.in_group, view.parameters[name], getattr(Gatekeeper, name))


@dataclass(frozen=True, slots=True)
class _Received:
    """Results of the receiving side in an interval, (vns,), and the messages that it sends."""

    watch: IngressMonitor
    needed_bps: FloatArray
    dropped_bps: FloatArray
    threshold_bps: FloatArray
    messages: CongestionFeedback


def _receiving_side(view: PolicyView, memory: PolicyState, pairs: Pairs) -> _Received:
    """Measure the receivers' ports, and notify senders of those with more drops than the threshold."""
    vns, window, capacity_bps, limit_bps = (
        view.vns,
        _of(view, "window"),
        view.vns.capacity_bps,
        view.vns.receive_limit_bps,
    )
    assert view.links is not None
    watch = IngressMonitor.remembered(memory, int(window.max(initial=1.0)))
    watch = watch.updated(*_queues(view))
    dropped_bps, served_bps = watch.means(window)
    threshold_bps = ingress_monitor.thresholds(capacity_bps, _of(view, "threshold"), window * view.elapsed_s)
    watch = watch.declared(dropped_bps, threshold_bps)
    above: BoolArray = np.nan_to_num(dropped_bps) > threshold_bps
    explained = view.received_bps >= ingress_monitor.EXPLAINED * np.nan_to_num(served_bps)
    sends_messages = (
        view.in_group & above & explained & (watch.since_round >= _of(view, "hold")) & (_of(view, "feedback") > 0.0)
    )
    all_above_share = _of(view, "targets") > 0.0
    candidate_rows = np.flatnonzero(sends_messages[pairs.receiver])
    candidates = pairs.only(candidate_rows)
    notified = ingress_monitor.targets(candidates, sends_messages, limit_bps, all_above_share)
    pairs_bps = np.bincount(view.receiver, view.measured_bps, minlength=len(vns)).astype(np.float64)
    sent_bps = np.where(view.in_group, pairs_bps, view.received_bps)
    needed_bps = ingress_monitor.guarantee_needs(memory.vn_column("needed_bps"), sent_bps, limit_bps)
    served_bps = ingress_monitor.within_port(served_bps, needed_bps, limit_bps, capacity_bps, view.links.down)
    floor_bps = ingress_monitor.floors(candidates, limit_bps, served_bps, _of(view, "floor"), _of(view, "served"))
    room_bps = ingress_monitor.port_shares(candidates, capacity_bps, all_above_share)
    watch = watch.notified(np.bincount(candidates.receiver[notified], minlength=len(vns)) > 0)
    messages = CongestionFeedback(
        view.rows[candidate_rows[notified]], {FLOOR_BPS: floor_bps[notified], ROOM_BPS: room_bps[notified]}
    )
    return _Received(watch, needed_bps, dropped_bps, threshold_bps, messages)


def _queues(view: PolicyView) -> tuple[FloatArray, FloatArray]:
    """Return (vns,) the drops and service of the queues; NaN unknown. A VN without a queue has estimates."""
    vns, links = view.vns, view.links
    assert links is not None
    nothing = np.full(len(vns), np.nan)
    dropped_bps, served_bps = nothing, nothing
    if view.queues is not None:
        dropped_bps, served_bps = view.queues.dropped_bps, view.queues.served_bps
    estimated_bps = ingress_monitor.estimated_drops(
        view.received_bps, vns.receive_limit_bps, vns.capacity_bps, links.down
    )
    dropped_bps = np.where(vns.has_queue, dropped_bps, estimated_bps)
    served_bps = np.where(vns.has_queue, served_bps, np.maximum(view.received_bps - estimated_bps, 0.0))
    return np.where(view.in_group, dropped_bps, np.nan), np.where(view.in_group, served_bps, np.nan)


def _sending_side(
    view: PolicyView, memory: PolicyState, pairs: Pairs, seen: _Received, ceiling_bps: FloatArray
) -> _Limits:
    """Return the egress limits after this interval's messages, or its rise."""
    vns, one_limit = view.vns, _of(view, "pair") == 0.0
    has_one_limit = one_limit[view.sender]
    max_bps = np.where(has_one_limit, vns.send_max_bps[view.sender], ceiling_bps)
    before_bps = memory.pair_column("limit_bps")
    # An installed limit, or one granted by another policy, is the start of a new pair.
    before_bps = np.where(np.isnan(before_bps) & np.isfinite(view.limit_bps), view.limit_bps, before_bps)
    limit_bps = egress_limits.started(before_bps, max_bps)
    message_floor_bps, room_bps = (seen.messages.column_for(name, view.rows) for name in (FLOOR_BPS, ROOM_BPS))
    notified = ~np.isnan(message_floor_bps)
    queue_was_read = (seen.watch.unread == 0.0)[view.receiver]
    queue_is_stale = (seen.watch.unread > BLIND_INTERVALS)[view.receiver]
    rises = ~notified & (view.unread_intervals == 0) & (queue_was_read | queue_is_stale)
    waited_s = np.nan_to_num(memory.pair_column("waited_s")) + view.elapsed_s
    slope_bps_per_s = egress_limits.slopes(pairs, vns.capacity_bps, _of(view, "slope"))
    # A stale queue shows nothing of the time before this interval.
    rise_time_s = np.where(queue_was_read, waited_s, view.elapsed_s)
    limit_bps = egress_limits.risen(limit_bps, max_bps, slope_bps_per_s, rises, rise_time_s)
    offered_bps = view.measured_bps + view.dropped_bps
    if has_one_limit.any():
        sums_bps = np.bincount(view.sender, offered_bps, minlength=len(vns))[view.sender]
        offered_bps = np.where(has_one_limit, sums_bps, offered_bps)
    decrease = _of(view, "decrease")[view.receiver]
    floor_bps = np.nan_to_num(message_floor_bps)
    limit_bps = egress_limits.halved(limit_bps, notified, floor_bps, room_bps, offered_bps, decrease)
    limit_bps = egress_limits.lowest_limits(pairs, limit_bps, one_limit)
    rising = np.where(rises & (limit_bps < max_bps), slope_bps_per_s, 0.0)
    return _Limits(notified, limit_bps, max_bps, floor_bps, rising, np.where(rises | notified, 0.0, waited_s))


def _demands(view: PolicyView, memory: PolicyState, ceiling_bps: FloatArray) -> tuple[FloatArray, DemandTrials]:
    """Return the demands of pairs, (rows,), and the trials of VNs that are crowded out.

    A sender that fills its limit demands at least its guarantee.
    """
    vns, links = view.vns, view.links
    assert links is not None
    assert view.cross_traffic_bps is not None
    counters = FlowCounters(view.measured_bps, view.limit_bps, view.dropped_bps, view.active)
    guaranteed_bps = np.minimum(vns.send_limit_bps[view.sender], ceiling_bps)
    demand_bps = estimate_demands(counters, MIN_DEMAND_BPS, ByDemands.probe, ByDemands.headroom, guaranteed_bps)
    sent_bps = np.bincount(view.sender, view.measured_bps, minlength=len(vns)).astype(np.float64)
    trials = DemandTrials.from_state(memory).updated(
        sent_bps, vns.send_limit_bps, links.up, view.cross_traffic_bps, links.capacity_bps
    )
    factors = trials.factors(sent_bps, vns.send_limit_bps)[view.sender]
    return np.maximum(demand_bps, view.measured_bps * factors), trials


def _scheduled(view: PolicyView, pairs: Pairs, demand_bps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the rates that the sending ports' schedulers allow to pairs, (rows,), and VNs, (vns,)."""
    vns, links = view.vns, view.links
    assert links is not None
    assert view.cross_traffic_bps is not None
    assert view.cross_guaranteed_bps is not None
    sending = egress_limits.SendingVns(links.up, vns.send_limit_bps, vns.send_max_bps, vns.weight)
    promised_bps = np.maximum(links.capacity_bps - view.cross_guaranteed_bps, MIN_RATE_BPS)
    left_bps = np.maximum(links.capacity_bps - view.cross_traffic_bps, MIN_RATE_BPS)
    return egress_limits.scheduled(pairs, demand_bps, sending, promised_bps, left_bps)


def _record(
    view: PolicyView, memory: PolicyState, notified: BoolArray, limited: BoolArray, dropped_bps: FloatArray
) -> dict[str, FloatArray]:
    """Return the record of the messages to each pair, for explanations.

    Halvings and the first message count since the pair was last unlimited; the last message is that of all time.
    """
    halvings = np.where(limited, np.nan_to_num(memory.pair_column("halvings")) + notified, 0.0)
    first_s = memory.pair_column("first_told_s")
    first_s = np.where(halvings == 0.0, np.nan, np.where(np.isnan(first_s), view.now_s, first_s))
    return {
        "halvings": halvings,
        "first_told_s": first_s,
        "told_s": np.where(notified, view.now_s, memory.pair_column("told_s")),
        "told_drops_bps": np.where(notified, dropped_bps[view.receiver], memory.pair_column("told_drops_bps")),
    }
