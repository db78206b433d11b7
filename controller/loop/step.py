"""One control interval as a pure function: counters in, meters to modify out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controller.columns import NEW_ROW, BoolArray, FloatArray, IntArray, ShortArray
from controller.dets.messages import SetRate
from controller.dets.rate_allocator import (
    RateAllocators,
    Surroundings,
)
from controller.dets.send_rate_controller import SendRateControllers
from controller.fabric.entries import EntryTable
from controller.fabric.links import FabricLinks
from controller.fabric.vns import VnTable
from controller.loop.grant_side import put_in_force
from controller.loop.receiver_side import watch_receivers
from controller.loop.sender_side import SenderSide, read_meters
from controller.metering.counters import MeterCounters, Readings
from controller.metering.enforcement import (
    Enforcement,
    MeterChanges,
)
from controller.metering.measurement import Measurement
from controller.metering.observed import Observed, Reading
from controller.metering.receiver_accounts import ReceiverAccounts
from controller.policy.groups import PolicyGroup, held, readings_of


class ControlState(NamedTuple):
    """All that one interval hands to the next.

    ``unread_intervals`` (entries,) counts the intervals since a meter was read. ``decided_s`` is when the last interval
    was, NaN before the first. ``adopted_bps`` (entries,) are the grants that were found on switches, infinite for other
    entries: no grant rises above them until ``released``. None: there are none, or they have been released.
    """

    entries: EntryTable
    counters: MeterCounters
    measured: Measurement
    machines: SendRateControllers
    allocators: RateAllocators
    enforcement: Enforcement
    accounts: ReceiverAccounts
    unread_intervals: ShortArray
    decided_s: float = np.nan
    adopted_bps: FloatArray | None = None

    @classmethod
    def start(cls, vns: VnTable, groups: tuple[PolicyGroup, ...]) -> ControlState:
        """Return the state in which nobody talks to anybody."""
        return cls(
            EntryTable.empty(),
            MeterCounters.unknown(0),
            Measurement.none(0),
            SendRateControllers.idle(0),
            RateAllocators.calm(len(vns), groups),
            Enforcement.none(),
            ReceiverAccounts.unused(len(vns)),
            np.empty(0, dtype=np.int16),
        )


class StepResult(NamedTuple):
    """What one interval decided, besides the next state, and what was brought to VNs.

    ``changes`` are the meters to modify, ``backstops`` those of entries that agents shape. ``limit_bps`` (entries,) are
    the limits in force from now on. ``received_bps`` has shape (vns,). ``implausible`` are rows of the entry table
    whose counters moved in a way no traffic can move them. ``brought_bps`` is what was offered to VNs, passed and was
    dropped at these senders' meters, (vns,) each.
    """

    changes: MeterChanges
    backstops: MeterChanges
    limit_bps: FloatArray
    received_bps: FloatArray
    implausible: IntArray
    brought_bps: tuple[FloatArray, FloatArray, FloatArray]


def ceilings(entries: EntryTable, vns: VnTable) -> FloatArray:
    """Return what an entry may carry while nothing is congested, shape (entries,).

    That is the lower of its two limits; where ceilings count, of its two ceilings.

    Deviation: in the paper senders are free until their receiver is congested. Here a meter stands at the lower limit
    before that, so that no sender alone can pass either limit: only several together pass a receive limit, for a while.
    """
    return entries.least_of_ends(vns.send_most_bps, vns.receive_most_bps)


def ceilings_now(state: ControlState, vns: VnTable) -> FloatArray:
    """Return what an entry may carry now, whatever is granted, shape (entries,)."""
    ceiling_bps = ceilings(state.entries, vns)
    return ceiling_bps if state.adopted_bps is None else np.minimum(ceiling_bps, state.adopted_bps)


def frozen(state: ControlState) -> ControlState:
    """Return the state in which no grant rises until ``released``: some senders may not be known for a while."""
    granted_bps = np.where(state.machines.controlled, state.machines.limit_bps, np.inf)
    if state.adopted_bps is not None:
        granted_bps = np.minimum(granted_bps, state.adopted_bps)
    return state._replace(adopted_bps=granted_bps)


def released(state: ControlState) -> ControlState:
    """Return the state in which grants may rise above those that were found on switches: all senders are known.

    What policies have learned meanwhile of receivers whose grants were held they learned of a part of the senders, and
    of grants that had no effect: they begin again there.
    """
    if state.adopted_bps is None:
        return state
    receiver = state.entries.receiver
    vns = len(state.allocators.congested)
    held = np.bincount(receiver, np.isfinite(state.adopted_bps), vns) > 0
    kept_row = np.where(held[receiver], NEW_ROW, np.arange(len(receiver)))
    kept = np.flatnonzero(~held)
    memories = tuple(one.carried(kept_row).limited_to(kept) for one in state.allocators.memories)
    return state._replace(allocators=state.allocators._replace(memories=memories), adopted_bps=None)


def control_step(
    state: ControlState,
    vns: VnTable,
    groups: tuple[PolicyGroup, ...],
    readings: Readings,
    now_s: float,
    links: FabricLinks | None = None,
    observed: Observed | None = None,
    shaped: BoolArray | None = None,
) -> tuple[ControlState, StepResult]:
    """Run one interval (DETS, sections II-A and III). ``links``: None where only access links count.

    ``observed`` are the readings of queues and links, for those that decide by them; None: nobody asked for them.

    ``shaped`` (entries,) are those that an agent on the sender's host holds (None: none).

    The senders' side, the receivers' side and the grants' side have a module each, and tell each other nothing but
    what is named here: they may sit on different machines.

    1) Senders: turn counters into rates, and rates into what each sender sends. Loads go to the receivers.
    2) Receivers: compare what a VN receives with its limit: congestion begins, goes on or is over.
    3) Receivers: Initialize Traffic Control at senders of congested VNs, Deactivate where congestion is over.
    4) Senders: those under control send Traffic Reports.
    5) Receivers: the policies decide, and the allocators answer with Set Rate or Keep Alive.
    6) Grants: the rates are put in force by meters. Where no queue holds a receiver, its senders' meters together let
       through no more than its account leaves.
    """
    entries = state.entries
    # 1
    holds = held(groups, entries.receiver, len(vns))
    counted = state.counters, state.measured, state.machines, state.unread_intervals
    senders = read_meters(entries, *counted, readings, vns, holds)
    loads = senders.loads(state.enforcement, vns, now_s)
    # 2
    receivers = watch_receivers(state.allocators, state.accounts, loads, vns, now_s)
    # 3
    begin, end = receivers.first_messages(entries, senders.machines.controlled, vns)
    # 4
    senders, reports = senders.report(begin, end, vns)
    # 5
    ceiling_bps = ceilings_now(state, vns)
    seen = Surroundings(
        now_s,
        0.0 if np.isnan(state.decided_s) else now_s - state.decided_s,
        links,
        *_in_use(senders, ceiling_bps, groups),
        senders.seen.unread_intervals,
        loads.passed_bps,
        senders.seen.measured.passed_bps,
        observed,
    )
    receivers, set_rate, keep_alive = receivers.answer(groups, entries, vns, reports, seen)
    if state.adopted_bps is not None:
        set_rate = SetRate(set_rate.entry, np.minimum(set_rate.rate_bps, state.adopted_bps[set_rate.entry]))
    # 6
    forfeited = _after_forfeits(state.enforcement, receivers.allocators)
    granted = put_in_force(
        senders, forfeited, set_rate, keep_alive, ceiling_bps, shaped, receivers.rooms, now_s, vns.meter_bounds
    )
    result = StepResult(
        changes=granted.changes,
        backstops=granted.backstops,
        limit_bps=granted.limit_bps,
        received_bps=loads.passed_bps,
        implausible=senders.seen.implausible.nonzero()[0],
        brought_bps=senders.seen.brought_bps,
    )
    after = ControlState(
        entries,
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


def _in_use(
    senders: SenderSide, ceiling_bps: FloatArray, groups: tuple[PolicyGroup, ...]
) -> tuple[FloatArray, FloatArray]:
    """Return ``used_bps`` and ``limit_bps`` of Surroundings, at which only policies that read links look."""
    measured, limit_bps = senders.seen.measured, senders.machines.limit_bps
    if Reading.LINKS not in readings_of(groups):
        return measured.passed_bps, limit_bps
    return measured.measured_bps, np.minimum(limit_bps, ceiling_bps)


def _after_forfeits(before: Enforcement, allocators: RateAllocators) -> Enforcement:
    """Return the enforcement without the bursts that this interval's decisions take back."""
    for decision in allocators.decisions:
        if decision.forfeits is not None:
            before = before.forfeited(decision.view.rows[decision.forfeits])
    return before


def limits_in_force_bps(state: ControlState, vns: VnTable) -> FloatArray:
    """Return the rate each entry is limited to, shape (entries,); its meter follows within its budget."""
    return np.minimum(state.machines.limit_bps, ceilings_now(state, vns))


def with_settled_limits(state: ControlState) -> Enforcement:
    """Return the enforcement with the limits that policies leave in force when nobody decides any more."""
    limit_bps = state.enforcement.limit_bps.copy()
    for decision in state.allocators.decisions:
        if decision.settled_bps is not None:
            limit_bps[decision.view.rows] = decision.settled_bps
    if state.adopted_bps is not None:
        limit_bps = np.minimum(limit_bps, state.adopted_bps)
    return state.enforcement._replace(limit_bps=limit_bps)


def with_groups(state: ControlState, before: tuple[PolicyGroup, ...], groups: tuple[PolicyGroup, ...]) -> ControlState:
    """Return the state after VLANs changed their policy, from those of ``before`` to those of ``groups``."""
    return state._replace(allocators=state.allocators.with_groups(before, groups))
