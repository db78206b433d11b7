"""The rate allocators' communication part: congestion, and the messages to and from the senders (DETS, section III-A).

Every receiving VN has a rate allocator. Its communication part declares congestion and talks to the senders; its
allocation part, an algorithm of ``controller.allocation``, shares the receive limit out. All allocators work at once,
as columns over VNs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.allocation import AlgorithmState, AllocationAlgorithm, Requests
from controller.allocation.network_max_min import NetworkMaxMin
from controller.allocation.registry import Algorithm
from controller.columns import NEW_ROW, BoolArray, FloatArray, IntArray
from controller.dets.messages import (
    DeactivateTrafficControl,
    InitializeTrafficControl,
    KeepAlive,
    SetRate,
    TrafficReport,
)
from controller.dets.network_allocator import NetworkDecision, decide, load_of_others
from controller.errors import InvalidValueError
from controller.fabric.entries import EntryTable
from controller.fabric.links import FabricLinks
from controller.fabric.vns import VnTable
from controller.metering.measurement import Measurement

# Choice: a VN is congested when it receives more than its limit (section II); the paper gives no tolerance. Open
# vSwitch's clock has a resolution of 1 ms, 2 % of an interval, and so has a rate read from its counters.
CONGESTED_ABOVE = 1.02
# Choice: the paper does not say when congestion is over. Here: when no sender was held back and the VN received less
# than this part of its limit, for as many intervals (1.1 s at 55 ms).
CALM_BELOW = 0.90
CALM_INTERVALS = 20
# A grant that differs by less than one part in a million is the same grant.
SAME_RATE = 1e-6


@dataclass(frozen=True)
class AlgorithmGroup:
    """The VNs that share one algorithm: ``vns`` holds their rows, in ascending order.

    All groups with ``max-min`` are shared out together, each with its own parameters.
    """

    algorithm: Algorithm
    vns: IntArray


@dataclass(frozen=True)
class NetworkView:
    """What only a central controller sees, for the allocator of the whole network.

    ``links`` are None where only access links count. ``used_bps`` and ``limit_bps``, shape (entries,), are what passes
    the meters and the limits in force.
    """

    links: FabricLinks | None
    used_bps: FloatArray
    limit_bps: FloatArray


@dataclass(frozen=True)
class ReceiverDecision:
    """What a group's algorithm decided on in the last interval: for explanations.

    ``receivers`` are rows of ``vns`` and ``rows`` of the entry table, both ascending, as in ``requests``. ``state`` is
    what the algorithm knew before.
    """

    algorithm: AllocationAlgorithm
    vns: VnTable
    receivers: IntArray
    rows: IntArray
    requests: Requests
    state: AlgorithmState

    def of_receiver(self, number: int) -> tuple[Requests, AlgorithmState, IntArray]:
        """Return requests and state of one receiver, by its number in ``receivers``, and the rows of its entries."""
        one = slice(number, number + 1)
        first, last = self.requests.offsets[number : number + 2].tolist()
        rows, state, requests = slice(first, last), self.state, self.requests
        alone = Requests(
            np.array([0, last - first], dtype=np.int64),
            requests.limit_bps[one],
            requests.received_bps[one],
            requests.measured_bps[rows],
            requests.granted_bps[rows],
            requests.available_bps[rows],
            requests.dropped_bps[rows],
            requests.weight[rows],
            requests.active[rows],
        )
        memory = AlgorithmState(
            1,
            last - first,
            {name: column[one] for name, column in state.receiver_columns.items()},
            {name: column[rows] for name, column in state.entry_columns.items()},
        )
        return alone, memory, self.rows[rows]


@dataclass(frozen=True)
class RateAllocators:
    """The state of all rate allocators.

    ``congested`` and ``calm_intervals`` have shape (vns,). ``states`` holds one algorithm state per group, for the
    congested receivers of the group and their controlled entries, whose rows of the VN and the entry table are
    in ``receivers`` and ``rows``. ``network`` is what the allocator of the whole network decided last, ``decisions``
    what the groups with other algorithms decided on; neither stands when the entry table is re-arranged.
    """

    congested: BoolArray
    calm_intervals: IntArray
    states: tuple[AlgorithmState, ...]
    receivers: tuple[IntArray, ...]
    rows: tuple[IntArray, ...]
    network: NetworkDecision | None = None
    decisions: tuple[ReceiverDecision, ...] = ()

    @classmethod
    def calm(cls, vns: int, groups: tuple[AlgorithmGroup, ...]) -> RateAllocators:
        """Return the state in which nothing is congested."""
        none = np.empty(0, dtype=np.int64)
        return cls(
            congested=np.zeros(vns, dtype=np.bool_),
            calm_intervals=np.zeros(vns, dtype=np.int64),
            states=tuple(_initial_state(group) for group in groups),
            receivers=tuple(none for _ in groups),
            rows=tuple(none for _ in groups),
        )

    def with_groups(self, before: tuple[AlgorithmGroup, ...], groups: tuple[AlgorithmGroup, ...]) -> RateAllocators:
        """Return the state after VLANs changed their algorithm, from those of ``before`` to those of ``groups``.

        Congestion stays. An algorithm that is still in use remembers; of VNs new to it it knows nothing yet.
        """
        state = RateAllocators.calm(len(self.congested), groups)
        states, receivers, rows = list(state.states), list(state.receivers), list(state.rows)
        for old, group in enumerate(before):
            for number in [n for n, other in enumerate(groups) if other.algorithm == group.algorithm]:
                states[number], receivers[number], rows[number] = self.states[old], self.receivers[old], self.rows[old]
        return replace(self, states=tuple(states), receivers=tuple(receivers), rows=tuple(rows))

    def carried(self, old_row: IntArray) -> RateAllocators:
        """Return the state for a re-arranged entry table."""
        new_row = np.full(int(old_row.max(initial=-1)) + 1, NEW_ROW, dtype=np.int64)
        kept = np.flatnonzero(old_row != NEW_ROW)
        new_row[old_row[kept]] = kept

        def moved(rows: IntArray) -> IntArray:
            inside = rows < len(new_row)
            return np.where(inside, new_row[np.where(inside, rows, 0)], NEW_ROW) if len(new_row) else rows * 0 + NEW_ROW

        return replace(self, rows=tuple(moved(rows) for rows in self.rows), network=None, decisions=())


def received_rates(entries: EntryTable, passed_bps: FloatArray, vns: int) -> FloatArray:
    """Return what each VN is sent, shape (vns,): the sum of what passed the meters of its senders.

    Deviation: the paper's receiving node measures what arrives there. A switch's port counter does not tell VLANs
    apart, and what the receiver's queue holds back would be missing: it would hide the congestion that it shapes.
    """
    return np.bincount(entries.receiver, weights=passed_bps, minlength=vns).astype(np.float64)


def watch_congestion(
    before: RateAllocators, entries: EntryTable, vns: VnTable, measured: Measurement
) -> tuple[RateAllocators, FloatArray]:
    """Declare congestion begun or over; return the new state and the received rates, shape (vns,).

    1) A VN that receives more than its receive limit is congested.
    2) It stays so until it was calm for CALM_INTERVALS: below CALM_BELOW of its limit, and no sender held back.
    """
    # 1
    received_bps = received_rates(entries, measured.passed_bps, len(vns))
    most_bps = vns.receive_most_bps
    exceeded = received_bps > CONGESTED_ABOVE * most_bps
    # 2
    smoothed_bps = received_rates(entries, measured.smoothed_bps, len(vns))
    held_back = received_rates(entries, measured.dropped_bps, len(vns)) > 0.0
    calm = ~exceeded & ~held_back & (smoothed_bps < CALM_BELOW * most_bps)
    calm_intervals = np.where(calm, before.calm_intervals + 1, 0)
    congested = exceeded | (before.congested & (calm_intervals < CALM_INTERVALS))
    return replace(before, congested=congested, calm_intervals=calm_intervals), received_bps


def initialize(
    allocators: RateAllocators, entries: EntryTable, controlled: BoolArray, always: BoolArray | None = None
) -> tuple[InitializeTrafficControl, DeactivateTrafficControl]:
    """Return what the allocators say first: initialize at senders not yet controlled, deactivate where it is over.

    VNs of ``always``, shape (vns,), have their senders under control whether they are congested or not.
    """
    under_control = allocators.congested if always is None else allocators.congested | always
    wanted = under_control[entries.receiver]
    return (
        InitializeTrafficControl(np.flatnonzero(wanted & ~controlled)),
        DeactivateTrafficControl(np.flatnonzero(controlled & ~wanted)),
    )


def answer(
    before: RateAllocators,
    groups: tuple[AlgorithmGroup, ...],
    entries: EntryTable,
    vns: VnTable,
    reports: TrafficReport,
    network: NetworkView | None = None,
) -> tuple[RateAllocators, SetRate, KeepAlive]:
    """Answer the Traffic Reports: run each group's algorithm, Set Rate where the grant changed, Keep Alive elsewhere.

    A receiver's rate is the sum of what its senders report, each at most its limit: what passed in one interval shows
    how meters follow the grants (docs/enforcement.md), and an algorithm that steers by it swings with them.
    Groups with ``max-min`` need the view of the ``network``.
    ``reports`` must be in ascending order of ``entry``, which keeps the senders of a receiver together.
    """
    grants_bps = np.empty(len(reports.entry))
    report_receiver = entries.receiver[reports.entry]
    received_bps = np.bincount(report_receiver, weights=reports.measured_bps, minlength=len(vns)).astype(np.float64)
    states, all_receivers, all_rows, decisions = [], [], [], []
    for number, group in enumerate(groups):
        if isinstance(group.algorithm, NetworkMaxMin):
            states.append(before.states[number])
            all_receivers.append(before.receivers[number])
            all_rows.append(before.rows[number])
            continue
        chosen = _members(report_receiver, group, len(groups), len(vns))
        senders = np.bincount(report_receiver[chosen], minlength=len(vns))
        receivers = np.flatnonzero(senders)
        rows = reports.entry[chosen]
        state = _follow(before, number, group, receivers, rows)
        requests = Requests(
            offsets=np.concatenate([[0], np.cumsum(senders[receivers])]).astype(np.int64),
            limit_bps=vns.receive_limit_bps[receivers],
            received_bps=received_bps[receivers],
            measured_bps=reports.measured_bps[chosen],
            granted_bps=reports.limit_bps[chosen],
            available_bps=reports.available_bps[chosen],
            dropped_bps=reports.dropped_bps[chosen],
            weight=vns.weight[entries.sender[rows]],
            active=reports.active[chosen],
        )
        decisions.append(ReceiverDecision(group.algorithm, vns, receivers, rows, requests, state))
        granted_bps, state = group.algorithm.allocate(requests, state)
        grants_bps[chosen] = np.where(requests.active, granted_bps, _standing_rate(requests))
        states.append(state)
        all_receivers.append(receivers)
        all_rows.append(rows)
    decision = _share_network(before, groups, entries, vns, reports, network, grants_bps)
    changed = np.abs(grants_bps - reports.limit_bps) > SAME_RATE * np.minimum(grants_bps, reports.limit_bps)
    after = replace(
        before,
        states=tuple(states),
        receivers=tuple(all_receivers),
        rows=tuple(all_rows),
        network=decision,
        decisions=tuple(decisions),
    )
    return after, SetRate(reports.entry[changed], grants_bps[changed]), KeepAlive(reports.entry[~changed])


def _share_network(
    before: RateAllocators,
    groups: tuple[AlgorithmGroup, ...],
    entries: EntryTable,
    vns: VnTable,
    reports: TrafficReport,
    network: NetworkView | None,
    grants_bps: FloatArray,
) -> NetworkDecision | None:
    """Put the grants of all ``max-min`` groups into ``grants_bps``, and return how they came about."""
    together = [(g.algorithm, g.vns) for g in groups if isinstance(g.algorithm, NetworkMaxMin)]
    if not together:
        return None
    if network is None:
        raise InvalidValueError("network", network, f"is needed: {NetworkMaxMin.name} shares out all of it")
    receiver = entries.receiver[reports.entry]
    chosen = np.flatnonzero(vns.lends[receiver])
    mine = TrafficReport(*(getattr(reports, name)[chosen] for name in TrafficReport.__slots__))
    algorithms = [(algorithm, np.isin(receiver[chosen], rows)) for algorithm, rows in together]
    links = network.links or FabricLinks.of_access(vns)
    others_bps = load_of_others(entries, vns, links, network.used_bps, network.limit_bps)
    decision = decide(before.network, algorithms, entries, vns, links, mine, others_bps)
    grants_bps[chosen] = decision.grants.grant_bps
    return decision


def _initial_state(group: AlgorithmGroup) -> AlgorithmState:
    if isinstance(group.algorithm, NetworkMaxMin):
        return AlgorithmState(0, 0)
    return group.algorithm.initial_state(0, 0)


def _members(report_receiver: IntArray, group: AlgorithmGroup, groups: int, vns: int) -> BoolArray | slice:
    if groups == 1:
        return slice(None)
    in_group = np.zeros(vns, dtype=np.bool_)
    in_group[group.vns] = True
    chosen: BoolArray = in_group[report_receiver]
    return chosen


def _follow(
    before: RateAllocators, number: int, group: AlgorithmGroup, receivers: IntArray, rows: IntArray
) -> AlgorithmState:
    """Return the group's algorithm state for today's receivers and entries; most of the time they are yesterday's."""
    old_receivers, old_rows = before.receivers[number], before.rows[number]
    if np.array_equal(receivers, old_receivers) and np.array_equal(rows, old_rows):
        return before.states[number]
    return before.states[number].carried_over(_positions(old_receivers, receivers), _positions(old_rows, rows))


def _positions(old: IntArray, new: IntArray) -> IntArray:
    """Return where each of ``new`` stood in ``old``, NEW_ROW where it did not."""
    order = np.argsort(old, kind="stable")
    found = np.searchsorted(old, new, sorter=order)
    at = order[np.minimum(found, len(old) - 1)] if len(old) else np.zeros(len(new), dtype=np.int64)
    same = old[at] == new if len(old) else np.zeros(len(new), dtype=np.bool_)
    return np.where(same, at, NEW_ROW)


def _standing_rate(requests: Requests) -> FloatArray:
    """Return what a silent sender may start with: an equal share, as if it were one more active sender.

    Choice: the paper shares among active nodes and does not say what limit the others keep. With none, a sender that
    starts would be free for an interval; with zero, it could not show that it has traffic.
    """
    counts = np.diff(requests.offsets)
    starts = requests.offsets[:-1]
    active = np.add.reduceat(np.append(requests.active, False).astype(np.int64), starts) if len(starts) else counts
    share_bps = requests.limit_bps / (np.where(counts > 0, active, 0) + 1)
    standing_bps: FloatArray = np.minimum(np.repeat(share_bps, counts), requests.available_bps)
    return standing_bps
