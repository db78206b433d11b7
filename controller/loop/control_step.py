"""One control interval as a pure function: counters in, meters to modify out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controller.columns import NEW_ROW, BoolArray, FloatArray, Int16Array, IntArray
from controller.dets.messages import ReceiverLoads, SetRate
from controller.dets.rate_allocator import (
    IntervalContext,
    RateAllocators,
)
from controller.dets.send_rate_controller import SendRateControllers
from controller.fabric.link_table import LinkTable
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.loop.grant_side import apply_grants
from controller.loop.receiver_side import ReceiverSide, watch_receivers
from controller.loop.remote_side import NO_REMOTE_SIDE, RemoteSide, SenderMessages
from controller.loop.sender_side import SenderSide, read_meters
from controller.metering.counters import MeterCounters, Readings
from controller.metering.enforcement import (
    Enforcement,
    MeterChanges,
)
from controller.metering.fabric_readings import FabricReadings, ReadingKind
from controller.metering.measurement import Measurement
from controller.metering.receive_budgets import ReceiveBudgets
from controller.policy.interface import notifications
from controller.policy.policy_groups import PolicyGroup, held_while_stale, required_readings


class ControlState(NamedTuple):
    """The state that one interval passes to the next.

    ``unread_intervals`` (pairs,) counts the intervals since a meter was read. ``decided_s`` is the time of the last
    interval, NaN before the first. ``adopted_bps`` (pairs,) are adopted grants, infinite for other pairs: no grant
    rises above an adopted one until ``with_released_grants``. None: no grant is adopted, or all have been released.
    """

    entries: PairTable
    counters: MeterCounters
    measured: Measurement
    machines: SendRateControllers
    allocators: RateAllocators
    enforcement: Enforcement
    accounts: ReceiveBudgets
    unread_intervals: Int16Array
    decided_s: float = np.nan
    adopted_bps: FloatArray | None = None

    @classmethod
    def start(cls, vns: VnTable, groups: tuple[PolicyGroup, ...]) -> ControlState:
        """Return the state without active pairs."""
        return cls(
            PairTable.empty(),
            MeterCounters.initial(0),
            Measurement.initial(0),
            SendRateControllers.initial(0),
            RateAllocators.initial(len(vns), groups),
            Enforcement.empty(),
            ReceiveBudgets.initial(len(vns)),
            np.empty(0, dtype=np.int16),
        )


class StepResult(NamedTuple):
    """The decisions of one interval, besides the next state, and the loads of VNs.

    ``changes`` are the meters to modify, ``backstops`` the meters of pairs that agents shape. ``limit_bps`` (pairs,)
    are the new effective limits, ``agent_bps`` (pairs,) the rates to which agents shape: where no queue holds a
    receiver, the rates of its senders are together within its receive budget. ``received_bps`` has shape (vns,).
    ``implausible`` are rows of the pair table with impossible counter changes. ``receiver_loads_bps`` are the rates
    offered to each VN, passed and dropped at its senders' meters, (vns,) each. ``notified`` (vns,) is the number of
    senders that each VN notified of congestion; None: no policy has such messages.
    """

    changes: MeterChanges
    backstops: MeterChanges
    limit_bps: FloatArray
    agent_bps: FloatArray
    received_bps: FloatArray
    implausible: IntArray
    receiver_loads_bps: tuple[FloatArray, FloatArray, FloatArray]
    notified: IntArray | None


def ceilings(entries: PairTable, vns: VnTable) -> FloatArray:
    """Return the rate that a pair may carry without congestion, shape (pairs,).

    The rate is the lower of the sender's and the receiver's limit, or, where a VN uses its ceiling, its ceiling.

    Deviation: in the paper senders are unlimited until their receiver is congested. Here a meter at the lower limit is
    installed before that, so that no single sender can exceed either limit: only several together exceed a receive
    limit, for a while.
    """
    return entries.min_of_ends(vns.send_max_bps, vns.receive_max_bps)


def current_ceilings(state: ControlState, vns: VnTable) -> FloatArray:
    """Return the rate that a pair may carry now, whatever its grant, shape (pairs,)."""
    ceiling_bps = ceilings(state.entries, vns)
    return ceiling_bps if state.adopted_bps is None else np.minimum(ceiling_bps, state.adopted_bps)


def with_frozen_grants(state: ControlState) -> ControlState:
    """Return the state in which no grant rises until ``with_released_grants``, since some senders may be unknown."""
    granted_bps = np.where(state.machines.controlled, state.machines.limit_bps, np.inf)
    if state.adopted_bps is not None:
        granted_bps = np.minimum(granted_bps, state.adopted_bps)
    return state._replace(adopted_bps=granted_bps)


def with_released_grants(state: ControlState) -> ControlState:
    """Return the state in which grants may rise above adopted ones, since all senders are known.

    While grants were frozen, policies learned from only a part of the senders and from grants without effect: at the
    receivers of frozen grants the policies begin again.
    """
    if state.adopted_bps is None:
        return state
    receiver = state.entries.receiver
    vns = len(state.allocators.congested)
    was_frozen = np.bincount(receiver, np.isfinite(state.adopted_bps), vns) > 0
    old_row = np.where(was_frozen[receiver], NEW_ROW, np.arange(len(receiver)))  # as if their pairs were new
    kept_vns = np.flatnonzero(~was_frozen)
    memories = tuple(memory.reindexed(old_row).limited_to(kept_vns) for memory in state.allocators.memories)
    return state._replace(allocators=state.allocators._replace(memories=memories), adopted_bps=None)


class ReadResult(NamedTuple):
    """The result of ``read``, which ``decide`` takes: the senders' side, and the loads on receivers."""

    senders: SenderSide
    loads: ReceiverLoads


class DecideResult(NamedTuple):
    """The result of ``decide``, which ``enforce`` takes.

    ``messages`` are the answers to local senders. ``ceiling_bps`` (pairs,) bounds each pair, whatever its grant.
    ``received_bps`` is what each VN receives, (vns,); ``notified`` is as in StepResult.
    """

    senders: SenderSide
    receivers: ReceiverSide
    messages: SenderMessages
    ceiling_bps: FloatArray
    received_bps: FloatArray
    notified: IntArray | None


def control_step(
    state: ControlState,
    vns: VnTable,
    groups: tuple[PolicyGroup, ...],
    readings: Readings,
    now_s: float,
    links: LinkTable | None = None,
    observed: FabricReadings | None = None,
    shaped: BoolArray | None = None,
) -> tuple[ControlState, StepResult]:
    """Run one interval (DETS, sections II.A and III) of a controller without peers.

    ``links``: None where only access links count. ``observed`` are the readings of queues and links, for policies that
    use them; None: no policy does. ``shaped`` (pairs,) is the mask of pairs that an agent on the sender's host shapes
    (None: none).

    The senders' side, the receivers' side and the grants' side have a module each, and exchange only the values in
    ``read``, ``decide`` and ``enforce``: they may run on different machines.
    """
    read_result = read(state, vns, groups, readings, now_s)
    decided = decide(read_result, state, vns, groups, now_s, links, observed)
    return enforce(decided, state, vns, now_s, shaped)


def read(
    state: ControlState,
    vns: VnTable,
    groups: tuple[PolicyGroup, ...],
    readings: Readings,
    now_s: float,
    remote: RemoteSide = NO_REMOTE_SIDE,
) -> ReadResult:
    """Begin an interval: return the senders' side with new rates, and its loads on receivers.

    1) Senders: turn counters into rates, and rates into what each sender sends. The loads go to the receivers.
    """
    pairs = state.entries
    # 1
    stays_controlled = remote.crosses(pairs) | held_while_stale(groups, pairs.receiver, len(vns))
    before = state.counters, state.measured, state.machines, state.unread_intervals
    senders = read_meters(pairs, *before, readings, vns, stays_controlled)
    return ReadResult(senders, senders.loads(state.enforcement, vns, now_s))


def decide(
    read_result: ReadResult,
    state: ControlState,
    vns: VnTable,
    groups: tuple[PolicyGroup, ...],
    now_s: float,
    links: LinkTable | None = None,
    observed: FabricReadings | None = None,
    remote: RemoteSide = NO_REMOTE_SIDE,
) -> DecideResult:
    """Share the receivers' limits: return both sides after the decision, and the messages to local senders.

    2) Receivers: compare what a VN receives with its limit: congestion begins, continues or ends. 3) Receivers:
    Initialize Traffic Control at senders of congested VNs, Deactivate where congestion is over. 4) Senders: those under
    control send Traffic Reports. 5) Receivers: the policies decide, and the allocators answer with Set Rate or Keep
    Alive.
    """
    # 2
    loads = remote.with_loads(read_result.loads)
    receivers = remote.watched(watch_receivers(state.allocators, state.accounts, loads, vns, now_s), now_s)
    # 3
    begin, end = receivers.first_messages(state.entries, read_result.senders.machines.controlled, vns)
    begin = begin._replace(entry=remote.local_rows(begin.entry))
    end = end._replace(entry=remote.local_rows(end.entry))
    senders = read_result.senders.after_messages(begin, end)
    # 4
    ceiling_bps = current_ceilings(state, vns)
    context = IntervalContext(
        now_s,
        0.0 if np.isnan(state.decided_s) else now_s - state.decided_s,  # the length of this interval
        links,
        *_link_use(senders, ceiling_bps, groups),
        senders.seen.unread_intervals,
        loads.passed_bps,
        senders.seen.measured.passed_bps,
        observed,
    )
    view = remote.view(senders, receivers, vns, context)
    # 5
    receivers, set_rate, keep_alive = receivers.answer(groups, view.entries, view.vns, view.reports, view.seen)
    notified = notifications(receivers.allocators.decisions, view.entries.receiver, len(vns))
    receivers, messages = remote.answered(view, receivers, set_rate, keep_alive)
    messages = messages._replace(set_rate=cap_at_adopted(messages.set_rate, state.adopted_bps))
    return DecideResult(senders, receivers, messages, ceiling_bps, loads.passed_bps, notified)


def enforce(
    decided: DecideResult, state: ControlState, vns: VnTable, now_s: float, shaped: BoolArray | None = None
) -> tuple[ControlState, StepResult]:
    """End an interval: return the next state, and the decisions for switches and agents.

    6) Grants: meters enforce the rates. Where no queue holds a receiver, its senders' meters together pass no more than
    the receiver's budget.
    """
    senders, receivers, (set_rate, keep_alive, forfeits) = decided.senders, decided.receivers, decided.messages
    # 6
    before = state.enforcement.forfeited(forfeits) if len(forfeits) else state.enforcement
    grants = set_rate, keep_alive, decided.ceiling_bps
    granted = apply_grants(senders, before, *grants, shaped, receivers.remaining, now_s, vns.meter_bounds)
    result = StepResult(
        changes=granted.changes,
        backstops=granted.backstops,
        limit_bps=granted.limit_bps,
        agent_bps=granted.agent_bps,
        received_bps=decided.received_bps,
        implausible=senders.seen.implausible.nonzero()[0],
        receiver_loads_bps=senders.seen.receiver_loads_bps,
        notified=decided.notified,
    )
    after = ControlState(
        state.entries,
        granted.counters,
        senders.seen.measured,
        granted.machines,
        receivers.allocators,
        granted.enforcement,
        receivers.accounts,
        senders.seen.unread_intervals,
        now_s,
        state.adopted_bps,
    )
    return after, result


def cap_at_adopted(message: SetRate, adopted_bps: FloatArray | None) -> SetRate:
    """Return the rates, capped at the adopted grants ``adopted_bps`` while senders may be missing."""
    if adopted_bps is None:
        return message
    return SetRate(message.entry, np.minimum(message.rate_bps, adopted_bps[message.entry]))


def _link_use(
    senders: SenderSide, ceiling_bps: FloatArray, groups: tuple[PolicyGroup, ...]
) -> tuple[FloatArray, FloatArray]:
    """Return ``used_bps`` and ``limit_bps`` of IntervalContext, (pairs,) each.

    Only policies that read links use these columns. Without such policies the result costs no pass over the pairs.
    """
    measured, limit_bps = senders.seen.measured, senders.machines.limit_bps
    if ReadingKind.LINKS not in required_readings(groups):
        return measured.passed_bps, limit_bps
    return measured.measured_bps, np.minimum(limit_bps, ceiling_bps)


def effective_limits_bps(state: ControlState, vns: VnTable) -> FloatArray:
    """Return the rate limit of each pair, shape (pairs,); the pair's meter follows it within the deadband."""
    return np.minimum(state.machines.limit_bps, current_ceilings(state, vns))


def with_settled_limits(state: ControlState) -> Enforcement:
    """Return the enforcement with the limits that hold after the controller has stopped, as the policies decide."""
    limit_bps = state.enforcement.limit_bps.copy()
    for decision in state.allocators.decisions:
        if decision.final_bps is not None:
            limit_bps[decision.view.rows] = decision.final_bps
    if state.adopted_bps is not None:
        limit_bps = np.minimum(limit_bps, state.adopted_bps)
    return state.enforcement._replace(limit_bps=limit_bps)


def with_groups(state: ControlState, before: tuple[PolicyGroup, ...], groups: tuple[PolicyGroup, ...]) -> ControlState:
    """Return the state after VLANs changed their policy, from the groups ``before`` to ``groups``."""
    return state._replace(allocators=state.allocators.with_groups(before, groups))
