"""The rate allocators' communication part: congestion, and the messages to and from the senders (DETS, section III).

Every receiving VN has a rate allocator of two parts (section III, figure 4). The communication part declares congestion
(section II) and exchanges messages with the senders (II.A); the allocation part (III.A) is the policy of the VLAN. All
allocators run at once, as columns over VNs.
"""

from __future__ import annotations

from operator import is_
from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray, Int16Array, IntArray
from controller.dets import messages_native
from controller.dets.messages import (
    DeactivateTrafficControl,
    InitializeTrafficControl,
    KeepAlive,
    ReceiverLoads,
    SetRate,
    TrafficReport,
)
from controller.dets.send_rate_controller import KEEP_ALIVE_INTERVALS
from controller.fabric.link_table import LinkTable
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.metering import measurement_native
from controller.metering.fabric_readings import FabricReadings, ReadingKind
from controller.metering.measurement import sum_by_row
from controller.native_loader import choose
from controller.policy.cross_traffic import cross_traffic_load
from controller.policy.interface import Decision, PolicyView, StaleMode
from controller.policy.policy_groups import PolicyGroup
from controller.policy.policy_state import PolicyState

# Choice: a VN is congested when it receives more than its limit (section II); the paper gives no tolerance. Open
# vSwitch's clock has a resolution of 1 ms, 2 % of an interval, and so has a rate read from its counters.
CONGESTED_ABOVE = 1.02
# Choice: the paper does not say when congestion is over. Here: when no sender was limited and the VN received less than
# this part of its limit, for this many intervals (1.1 s at 55 ms).
CALM_BELOW = 0.90
CALM_INTERVALS = 20
# A grant that differs by less than one part in a million is the same grant.
SAME_RATE = 1e-6
_NO_ROWS = np.empty(0, dtype=np.int64)


class IntervalContext(NamedTuple):
    """Input of policies for an interval, besides the Traffic Reports.

    ``used_bps`` and ``limit_bps`` (pairs,) are the rates through the meters and the effective limits; they are
    undefined where no policy reads links. ``unread_intervals`` (pairs,) counts the intervals since a meter was read,
    ``received_bps`` (vns,) is the rate through the meters of a VN's senders, ``passed_bps`` (pairs,) the rate through
    each meter in the last interval, of ``elapsed_s`` seconds. ``links`` is None if only access links count,
    ``observed`` is None if no policy reads queues or ports.
    """

    now_s: float
    elapsed_s: float
    links: LinkTable | None
    used_bps: FloatArray
    limit_bps: FloatArray
    unread_intervals: IntArray | Int16Array
    received_bps: FloatArray
    passed_bps: FloatArray
    observed: FabricReadings | None = None
    remote_cross_traffic_bps: tuple[FloatArray, FloatArray] | None = None
    """the cross traffic of pairs that are not in the table, and its guaranteed part, (links,) each"""


class RateAllocators(NamedTuple):
    """The state of all rate allocators.

    ``congested`` and ``calm_intervals`` have shape (vns,). ``memories`` is the state of each policy group;
    ``decisions`` are the groups' last decisions, which become invalid when the pair table changes.
    """

    congested: BoolArray
    calm_intervals: IntArray
    memories: tuple[PolicyState, ...]
    decisions: tuple[Decision, ...] = ()

    @classmethod
    def initial(cls, vns: int, groups: tuple[PolicyGroup, ...]) -> RateAllocators:
        """Return the state without congestion."""
        memories = tuple(PolicyState(vns) for _ in groups)
        return cls(np.zeros(vns, dtype=np.bool_), np.zeros(vns, dtype=np.int64), memories)

    def with_groups(self, before: tuple[PolicyGroup, ...], groups: tuple[PolicyGroup, ...]) -> RateAllocators:
        """Return the state after VLANs changed their policy, from the groups of ``before`` to ``groups``.

        Congestion stays. A policy that is still in use keeps its state; VNs that are new to it begin without state.
        """
        old_states = dict(zip((group.key for group in before), self.memories, strict=True))
        empty = PolicyState(len(self.congested))
        memories = tuple(old_states.get(group.key, empty).limited_to(group.vns) for group in groups)
        return self._replace(memories=memories, decisions=())

    def reindexed(self, old_row: IntArray) -> RateAllocators:
        """Return the state for a re-arranged pair table."""
        return self._replace(memories=tuple(memory.reindexed(old_row) for memory in self.memories), decisions=())


def received_rates(entries: PairTable, passed_bps: FloatArray, vns: int) -> FloatArray:
    """Return the rate that each VN is sent, shape (vns,): the sum of what passed the meters of its senders.

    Deviation: the paper's receiving node measures what arrives there. A switch's port counter does not separate VLANs,
    and lacks what the receiver's queue holds back: it would hide the congestion that the queue causes.
    """
    return sum_by_row(entries.receiver, (passed_bps,), vns)[0]


def _native_watch(before: RateAllocators, loads: ReceiverLoads, vns: VnTable) -> RateAllocators:
    """Return what ``_plain_watch`` returns, by the native function."""
    columns = (*loads[:3], vns.receive_max_bps, before.congested, before.calm_intervals)
    congested, calm_intervals, changed = messages_native.watch_congestion(
        CONGESTED_ABOVE, CALM_BELOW, CALM_INTERVALS, columns
    )
    congested = congested if changed else before.congested  # the same array: ``initialize`` compares identities
    return RateAllocators(congested, calm_intervals, before.memories, before.decisions)


def _plain_watch(before: RateAllocators, loads: ReceiverLoads, vns: VnTable) -> RateAllocators:
    """Return the allocators after an interval with these loads: congestion begins, continues or ends.

    1) A VN that receives more than its receive limit is congested.
    2) Congestion ends after CALM_INTERVALS intervals with less than CALM_BELOW of the limit and no limited sender.
    """
    limit_bps = vns.receive_max_bps
    # 1
    exceeded = loads.passed_bps > CONGESTED_ABOVE * limit_bps
    # 2
    has_limited_sender = loads.dropped_bps > 0.0
    calm = ~exceeded & ~has_limited_sender & (loads.smoothed_bps < CALM_BELOW * limit_bps)
    calm_intervals = np.where(calm, before.calm_intervals + 1, 0)
    congested = exceeded | (before.congested & (calm_intervals < CALM_INTERVALS))
    return before._replace(congested=congested, calm_intervals=calm_intervals)


def initialize(
    allocators: RateAllocators, entries: PairTable, controlled: BoolArray, always: BoolArray
) -> tuple[InitializeTrafficControl, DeactivateTrafficControl]:
    """Return the first messages: Initialize to senders not yet controlled, Deactivate where congestion is over.

    ``controlled`` (pairs,) is the mask of pairs under control, ``always`` (vns,) the mask of VNs that always have their
    senders under control. Usually there are no messages: then the columns are stored, and nothing is computed until one
    of them becomes another array.
    """
    columns, without_messages = (allocators.congested, controlled, always), entries.__dict__.get("_settled")
    if without_messages is not None and all(map(is_, columns, without_messages)):
        return InitializeTrafficControl(_NO_ROWS), DeactivateTrafficControl(_NO_ROWS)
    must_control = (allocators.congested | always)[entries.receiver]
    begin, end = np.flatnonzero(must_control & ~controlled), np.flatnonzero(controlled & ~must_control)
    if not len(begin) and not len(end):
        entries.__dict__["_settled"] = columns
    return InitializeTrafficControl(begin), DeactivateTrafficControl(end)


def answer_reports(
    before: RateAllocators,
    groups: tuple[PolicyGroup, ...],
    entries: PairTable,
    vns: VnTable,
    reports: TrafficReport,
    context: IntervalContext,
) -> tuple[RateAllocators, SetRate, KeepAlive]:
    """Return the allocators after the policies' decisions, and the answers to the Traffic Reports.

    Changed grants are sent as Set Rate, unchanged ones as Keep Alive.

    Choice: the paper does not say when Keep Alive is sent. Here each sender gets either Set Rate or Keep Alive in every
    interval.

    ``reports`` must be in ascending order of ``entry``, which keeps the senders of a receiver together.
    """
    is_only_group = len(groups) == 1  # then the group's reports are all reports, and need no selection
    grants_bps = np.empty(0 if is_only_group else len(reports.entry))
    # The reports' receivers; a single group does not use them.
    receiver = entries.receiver[reports.entry] if len(groups) > 1 else entries.receiver
    congested, decisions = before.congested, []
    for group, memory in zip(groups, before.memories, strict=True):
        in_group = group.member_mask(len(vns))
        chosen = slice(None) if is_only_group else in_group[receiver]
        view = _view(before, group, in_group, entries, vns, reports, chosen, context)
        links = view.links.names if view.links is not None else None
        decision = group.policy.decide(view, memory.aligned(view.rows, links))
        group_grants_bps = _with_stale_mode(group.policy.silence, decision)
        if is_only_group:
            grants_bps = np.ascontiguousarray(group_grants_bps, dtype=np.float64)
        else:
            grants_bps[chosen] = group_grants_bps
        if decision.congested is not None:
            congested = np.where(in_group, decision.congested, congested)
        decisions.append(decision)
    set_rate, keep_alive = _messages(reports, grants_bps)
    memories = tuple(decision.memory for decision in decisions)
    return RateAllocators(congested, before.calm_intervals, memories, tuple(decisions)), set_rate, keep_alive


def _native_messages(reports: TrafficReport, grants_bps: FloatArray) -> tuple[SetRate, KeepAlive]:
    """Return what ``_plain_messages`` returns, by the native function."""
    rows, rate_bps, unchanged = messages_native.answers(SAME_RATE, (reports.entry, grants_bps, reports.limit_bps))
    return SetRate(rows, rate_bps), KeepAlive(unchanged)


def _plain_messages(reports: TrafficReport, grants_bps: FloatArray) -> tuple[SetRate, KeepAlive]:
    """Return Set Rate where the grant differs from the effective limit, and Keep Alive elsewhere."""
    changed = np.abs(grants_bps - reports.limit_bps) > SAME_RATE * np.minimum(grants_bps, reports.limit_bps)
    return SetRate(reports.entry[changed], grants_bps[changed]), KeepAlive(reports.entry[~changed])


def _view(
    before: RateAllocators,
    group: PolicyGroup,
    in_group: BoolArray,
    entries: PairTable,
    vns: VnTable,
    reports: TrafficReport,
    chosen: BoolArray | slice,
    context: IntervalContext,
) -> PolicyView:
    """Return the input of a policy: the columns of its pairs, which are the ``chosen`` rows of the reports.

    ``in_group`` (vns,) is the mask of the policy's VNs.
    """
    rows = reports.entry[chosen]
    selection = slice(None) if len(rows) == len(entries) else rows  # all rows need no selection
    links = cross_traffic_bps = within_bps = None
    if ReadingKind.LINKS in group.policy.required_readings:
        links = context.links or LinkTable.access_links(vns)
        cross_traffic_bps, within_bps = cross_traffic_load(
            in_group, entries, vns, links, context.used_bps, context.limit_bps
        )
        if context.remote_cross_traffic_bps is not None:
            cross_traffic_bps, within_bps = (
                cross_traffic_bps + context.remote_cross_traffic_bps[0],
                within_bps + context.remote_cross_traffic_bps[1],
            )
    observed, reads = context.observed or FabricReadings(), group.policy.required_readings
    return PolicyView(
        now_s=context.now_s,
        elapsed_s=context.elapsed_s,
        entries=entries,
        vns=vns,
        in_group=in_group,
        parameters=group.parameters,
        received_bps=context.received_bps,
        passed_bps=context.passed_bps,
        congested=before.congested,
        rows=rows,
        sender=entries.sender[selection],
        receiver=entries.receiver[selection],
        measured_bps=reports.measured_bps[chosen],
        dropped_bps=reports.dropped_bps[chosen],
        drops=reports.drops[chosen],
        limit_bps=reports.limit_bps[chosen],
        available_bps=reports.available_bps[chosen],
        active=reports.active[chosen],
        unread_intervals=context.unread_intervals[selection],
        links=links,
        cross_traffic_bps=cross_traffic_bps,
        cross_guaranteed_bps=within_bps,
        queues=observed.queues if ReadingKind.QUEUES in reads else None,
        ports=observed.ports if ReadingKind.PORTS in reads else None,
        marks=observed.marks if ReadingKind.MARKS in reads else None,
    )


def _with_stale_mode(silence: StaleMode, decision: Decision) -> FloatArray:
    """Return the grants; for pairs with unread meters, the grants of the policy's stale mode."""
    view, grant_bps = decision.view, decision.grant_bps
    if silence is StaleMode.FREE:
        return np.where(view.unread_intervals >= KEEP_ALIVE_INTERVALS, view.ceiling_bps, grant_bps)
    if silence is StaleMode.HOLD:
        return np.where(view.unread_intervals > 0, np.minimum(grant_bps, view.limit_bps), grant_bps)
    return grant_bps


watch_congestion = choose(measurement_native, _native_watch, _plain_watch)
_messages = choose(measurement_native, _native_messages, _plain_messages)
