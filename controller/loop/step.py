"""One control interval as a pure function: counters in, meters to modify out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controller.columns import NEW_ROW, BoolArray, FloatArray, IntArray, ShortArray, carry
from controller.dets.messages import InitializeTrafficControl, SetRate
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
    burst_for,
    least_burst,
    whole_rates,
)
from controller.metering.measurement import Measurement
from controller.metering.observed import Observed, Reading
from controller.metering.receiver_accounts import UNSEEN_S, ReceiverAccounts, standing
from controller.policy.groups import PolicyGroup, held, readings_of
from controller.policy.interface import Newcomers


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


def first_settings(
    state: ControlState,
    vns: VnTable,
    groups: tuple[PolicyGroup, ...],
    sender: IntArray,
    receiver: IntArray,
    elsewhere: IntArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return the rates and bursts at which the meters of new entries start, shape of ``sender`` each.

    ``elsewhere`` (vns,) is how many senders each VN has that are not in ``state`` (None: none). Their policy says.
    Where no queue holds the receiver, all have their part of its reserve at most; half of the burst was for what came
    before (``limits.newcomers``), but where there can be no other sender.
    """
    receivers = np.concatenate([state.entries.receiver, receiver])
    of_vns = np.bincount(receivers, minlength=len(vns))
    senders = (of_vns if elsewhere is None else of_vns + elsewhere)[receiver]
    congested, first_bps = state.allocators.congested[receiver], np.empty(len(sender))
    for group in groups:
        new = np.flatnonzero(np.isin(receiver, group.vns))
        if len(new):
            newcomers = Newcomers(vns, sender[new], receiver[new], senders[new], congested[new], group.parameters)
            first_bps[new] = group.policy.first_bps(newcomers)
    most_bps = np.minimum(vns.send_most_bps[sender], vns.receive_most_bps[receiver])
    rate_bps = whole_rates(np.minimum(first_bps, most_bps))
    burst_bits = first_bursts(rate_bps)
    standing_bps, standing_bits = standing(vns.receive_limit_bps[receiver], senders.astype(np.float64), UNSEEN_S)
    shaped, alone = vns.shaped[receiver], np.bincount(vns.vlan)[vns.vlan[receiver]] == 2
    standing_bits = np.where(alone, standing_bits, standing_bits / 2)
    return (
        np.where(shaped, rate_bps, np.minimum(rate_bps, whole_rates(standing_bps))),
        np.where(shaped, burst_bits, np.minimum(burst_bits, least_burst(standing_bits))),
    )


def add_entries(
    state: ControlState,
    vns: VnTable,
    sender: IntArray,
    receiver: IntArray,
    meter_id: IntArray,
    rate_bps: FloatArray,
    burst_bits: FloatArray,
    now_s: float,
    *,
    added_now: bool,
) -> ControlState:
    """Return the state with more entries, whose meters stand at the given rates and bursts.

    ``added_now`` says whether the meters are new on their switches or were found there. A pair that has an entry
    already must not be given again.

    Choice: a meter that was found below its entry's ceiling was set by an allocator of an earlier run. Its receiver is
    congested and its rate granted, so that a restart does not begin with a blast at the ceilings. Its sender is taken
    to be held back at that rate until it is measured: taken to be silent, it would leave the limit to the others. No
    grant rises above it until the state is ``released``: other senders may not be known yet.
    """
    entries, old_row = state.entries.add(sender, receiver, meter_id)
    new = np.flatnonzero(old_row < 0)
    order = np.lexsort((sender, receiver))
    rates, bursts = np.zeros(len(entries)), np.zeros(len(entries))
    rates[new], bursts[new] = rate_bps[order], burst_bits[order]
    added = ControlState(
        entries,
        state.counters.carried(old_row, added_s=now_s if added_now else None),
        state.measured.carried(old_row),
        state.machines.carried(old_row),
        state.allocators.carried(old_row),
        state.enforcement.carried(old_row, rates, bursts, now_s, full=added_now),
        state.accounts,
        carry(state.unread_intervals, old_row, 0),
        state.decided_s,
        None if state.adopted_bps is None else carry(state.adopted_bps, old_row, np.inf),
    )
    if added_now:
        return _with_saved(added, vns, new)
    ceiling_bps = ceilings(entries, vns)
    granted = new[rates[new] < whole_rates(ceiling_bps)[new]]
    congested = added.allocators.congested.copy()
    congested[entries.receiver[granted]] |= ~vns.always_controlled[entries.receiver[granted]]
    machines = added.machines.on_initialize(InitializeTrafficControl(granted))
    machines = machines.on_set_rate(SetRate(granted, rates[granted]))
    measured = added.measured.held_back(granted, ceiling_bps[granted], rates[granted])
    allocators = added.allocators._replace(congested=congested)
    adopted_bps = np.full(len(entries), np.inf) if added.adopted_bps is None else added.adopted_bps.copy()
    adopted_bps[granted] = rates[granted]
    return added._replace(allocators=allocators, machines=machines, measured=measured, adopted_bps=adopted_bps)


def _with_saved(state: ControlState, vns: VnTable, new: IntArray) -> ControlState:
    """Return the state in which those of the ``new`` rows whose receivers have no other sender have a bucket saved.

    They have sent next to nothing, and nobody is hurt if they use what a sender has after a pause. Its meter stands
    lower until the next interval, when it is known whether others came, too: the account then tells what they may use.
    """
    receiver = state.entries.receiver
    alone = ~vns.shaped[receiver[new]] & (np.bincount(receiver, minlength=len(vns))[receiver[new]] == 1)
    rows = new[alone & (np.bincount(vns.vlan)[vns.vlan[receiver[new]]] > 2)]
    credit_bits = state.enforcement.credit_bits.copy()
    credit_bits[rows] = first_bursts(ceilings(state.entries, vns)[rows])
    return state._replace(enforcement=state.enforcement._replace(credit_bits=credit_bits))


def remove_entries(state: ControlState, rows: IntArray) -> ControlState:
    """Return the state without the entries of ``rows``."""
    kept = np.ones(len(state.entries), dtype=np.bool_)
    kept[rows] = False
    entries, old_row = state.entries.keep(kept)
    nothing = np.zeros(len(entries))  # no row is new
    return ControlState(
        entries,
        state.counters.carried(old_row),
        state.measured.carried(old_row),
        state.machines.carried(old_row),
        state.allocators.carried(old_row),
        state.enforcement.carried(old_row, nothing, nothing, 0.0),
        state.accounts,
        carry(state.unread_intervals, old_row, 0),
        state.decided_s,
        None if state.adopted_bps is None else carry(state.adopted_bps, old_row, np.inf),
    )


def with_meters(
    state: ControlState, rows: IntArray, meter_id: IntArray, rate_bps: FloatArray, burst_bits: FloatArray, now_s: float
) -> ControlState:
    """Return the state in which the entries have the meters ``meter_id`` (entries,), those of ``rows`` new ones.

    New meters stand at ``rate_bps`` and ``burst_bits``, shape of ``rows``, and have been added now.
    """
    old_row = np.arange(len(state.entries))
    old_row[rows] = NEW_ROW
    rates, bursts = np.zeros(len(old_row)), np.zeros(len(old_row))
    rates[rows], bursts[rows] = rate_bps, burst_bits
    return state._replace(
        entries=EntryTable(state.entries.sender, state.entries.receiver, meter_id),
        counters=state.counters.carried(old_row, added_s=now_s),
        enforcement=state.enforcement.carried(old_row, rates, bursts, now_s),
    )


def first_bursts(rate_bps: FloatArray) -> FloatArray:
    """Return the burst of new meters: that of senders which respond to drops, until they show otherwise."""
    return burst_for(rate_bps, np.zeros(len(rate_bps), dtype=np.bool_))


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
