"""The control state with more pairs, fewer pairs, or other meters; and the initial settings of new meters."""

from __future__ import annotations

import numpy as np

from controller.columns import NEW_ROW, FloatArray, IntArray, reindex
from controller.dets.messages import InitializeTrafficControl, SetRate
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.loop.control_step import ControlState, ceilings
from controller.metering.enforcement import burst_for, least_burst, whole_rates
from controller.metering.receive_budgets import UNSEEN_S, first_meter_setting
from controller.policy.interface import NewPairs
from controller.policy.policy_groups import PolicyGroup


def first_settings(
    state: ControlState,
    vns: VnTable,
    groups: tuple[PolicyGroup, ...],
    sender: IntArray,
    receiver: IntArray,
    remote_senders: IntArray | int = 0,
) -> tuple[FloatArray, FloatArray]:
    """Return the rates and bursts with which the meters of new pairs start, shape of ``sender`` each.

    ``remote_senders`` (vns,) is the number of each VN's senders that are not in ``state``. The policy decides the
    rates. Where no queue holds the receiver, each new pair has at most its part of the receiver's reserve; half of the
    burst was already granted to frames before the meter (``new_pair_limits``), unless there can be no other sender.
    """
    receivers = np.concatenate([state.entries.receiver, receiver])
    senders = (np.bincount(receivers, minlength=len(vns)) + remote_senders)[receiver]
    congested, first_bps = state.allocators.congested[receiver], np.empty(len(sender))
    for group in groups:
        new = np.flatnonzero(np.isin(receiver, group.vns))
        if len(new):
            new_pairs = NewPairs(vns, sender[new], receiver[new], senders[new], congested[new], group.parameters)
            first_bps[new] = group.policy.first_bps(new_pairs)
    most_bps = np.minimum(vns.send_max_bps[sender], vns.receive_max_bps[receiver])
    rate_bps = whole_rates(np.minimum(first_bps, most_bps))
    burst_bits = first_bursts(rate_bps)
    reserve_bps, standing_bits = first_meter_setting(
        vns.receive_limit_bps[receiver], senders.astype(np.float64), UNSEEN_S
    )
    shaped, alone = vns.has_queue[receiver], np.bincount(vns.vlan)[vns.vlan[receiver]] == 2
    standing_bits = np.where(alone, standing_bits, standing_bits / 2)
    return (
        np.where(shaped, rate_bps, np.minimum(rate_bps, whole_rates(reserve_bps))),
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
    """Return the state with more pairs, whose meters have the given rates and bursts.

    ``added_now``: the meters are new on their switches; otherwise they were adopted. Pairs that the state already has
    are not allowed.

    Choice: an adopted meter below its pair's ceiling was set by an allocator of an earlier run. So its receiver counts
    as congested and its rate as granted; otherwise a restart would begin with a surge at the ceilings. Its sender
    counts as limited at that rate until it is measured; as an idle sender it would lose its share to the others. No
    grant rises above it until ``with_released_grants``, since other senders may be unknown yet.
    """
    entries, old_row = state.entries.add(sender, receiver, meter_id)
    new = np.flatnonzero(old_row < 0)
    order = np.lexsort((sender, receiver))
    rates, bursts = np.zeros(len(entries)), np.zeros(len(entries))
    rates[new], bursts[new] = rate_bps[order], burst_bits[order]
    added = ControlState(
        entries,
        state.counters.reindexed(old_row, added_s=now_s if added_now else None),
        state.measured.reindexed(old_row),
        state.machines.reindexed(old_row),
        state.allocators.reindexed(old_row),
        state.enforcement.reindexed(old_row, rates, bursts, now_s, full=added_now),
        state.accounts,
        reindex(state.unread_intervals, old_row, 0),
        state.decided_s,
        None if state.adopted_bps is None else reindex(state.adopted_bps, old_row, np.inf),
    )
    if added_now:
        return _with_saved(added, vns, new)
    ceiling_bps = ceilings(entries, vns)
    granted = new[rates[new] < whole_rates(ceiling_bps)[new]]
    congested = added.allocators.congested.copy()
    congested[entries.receiver[granted]] |= ~vns.always_controlled[entries.receiver[granted]]
    machines = added.machines.on_initialize(InitializeTrafficControl(granted))
    machines = machines.on_set_rate(SetRate(granted, rates[granted]))
    measured = added.measured.assume_backlogged(granted, ceiling_bps[granted], rates[granted])
    allocators = added.allocators._replace(congested=congested)
    adopted_bps = np.full(len(entries), np.inf) if added.adopted_bps is None else added.adopted_bps.copy()
    adopted_bps[granted] = rates[granted]
    return added._replace(allocators=allocators, machines=machines, measured=measured, adopted_bps=adopted_bps)


def _with_saved(state: ControlState, vns: VnTable, new: IntArray) -> ControlState:
    """Return the state in which the ``new`` rows that are their receivers' only senders have a full bucket saved.

    They have sent next to nothing, and no other sender is affected if they use the credit of a sender after a pause.
    The meter is lower until the next interval, which shows whether other senders came too: the receive budget then
    decides what they may use.
    """
    receiver = state.entries.receiver
    alone = ~vns.has_queue[receiver[new]] & (np.bincount(receiver, minlength=len(vns))[receiver[new]] == 1)
    rows = new[alone & (np.bincount(vns.vlan)[vns.vlan[receiver[new]]] > 2)]
    credit_bits = state.enforcement.credit_bits.copy()
    credit_bits[rows] = first_bursts(ceilings(state.entries, vns)[rows])
    return state._replace(enforcement=state.enforcement._replace(credit_bits=credit_bits))


def remove_entries(state: ControlState, rows: IntArray) -> ControlState:
    """Return the state without the pairs of ``rows``."""
    kept = np.ones(len(state.entries), dtype=np.bool_)
    kept[rows] = False
    entries, old_row = state.entries.keep(kept)
    nothing = np.zeros(len(entries))  # no row is new
    return ControlState(
        entries,
        state.counters.reindexed(old_row),
        state.measured.reindexed(old_row),
        state.machines.reindexed(old_row),
        state.allocators.reindexed(old_row),
        state.enforcement.reindexed(old_row, nothing, nothing, 0.0),
        state.accounts,
        reindex(state.unread_intervals, old_row, 0),
        state.decided_s,
        None if state.adopted_bps is None else reindex(state.adopted_bps, old_row, np.inf),
    )


def with_meters(
    state: ControlState, rows: IntArray, meter_id: IntArray, rate_bps: FloatArray, burst_bits: FloatArray, now_s: float
) -> ControlState:
    """Return the state with the meters ``meter_id`` (pairs,), of which those of ``rows`` are new.

    New meters have ``rate_bps`` and ``burst_bits``, shape of ``rows``, and were added now.
    """
    old_row = np.arange(len(state.entries))
    old_row[rows] = NEW_ROW
    rates, bursts = np.zeros(len(old_row)), np.zeros(len(old_row))
    rates[rows], bursts[rows] = rate_bps, burst_bits
    return state._replace(
        entries=PairTable(state.entries.sender, state.entries.receiver, meter_id),
        counters=state.counters.reindexed(old_row, added_s=now_s),
        enforcement=state.enforcement.reindexed(old_row, rates, bursts, now_s),
    )


def first_bursts(rate_bps: FloatArray) -> FloatArray:
    """Return the burst of new meters: that of responsive senders, until drops show otherwise."""
    return burst_for(rate_bps, np.zeros(len(rate_bps), dtype=np.bool_))
