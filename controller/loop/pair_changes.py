"""The control state with more pairs, fewer pairs, or other meters; and the initial settings of new meters."""

from __future__ import annotations

import numpy as np

from controller.columns import NEW_ROW, FloatArray, IntArray, reindex, with_rows
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
    """Return the first rates (bit/s) and bursts (bits) of the meters of new pairs, shape of ``sender`` each.

    ``sender`` and ``receiver`` are the new pairs' rows of the VN table. ``remote_senders`` (vns,) is the number of each
    VN's senders that are not in ``state``. The policy decides the rates. Where no queue holds the receiver, each new
    pair has at most its part of the receiver's reserve. Half of that part's burst was already granted to the frames
    before the meter (``new_pair_limits``), unless the VLAN has only two VNs, so that there can be no other sender.
    """
    all_receivers = np.concatenate([state.entries.receiver, receiver])
    sender_count = (np.bincount(all_receivers, minlength=len(vns)) + remote_senders)[receiver]
    congested, first_bps = state.allocators.congested[receiver], np.empty(len(sender))
    # Each VN is in one group, so that all of ``first_bps`` is set.
    for group in groups:
        rows = np.flatnonzero(np.isin(receiver, group.vns))
        if len(rows):
            new_pairs = NewPairs(
                vns, sender[rows], receiver[rows], sender_count[rows], congested[rows], group.parameters
            )
            first_bps[rows] = group.policy.first_bps(new_pairs)
    ceiling_bps = np.minimum(vns.send_max_bps[sender], vns.receive_max_bps[receiver])
    rate_bps = whole_rates(np.minimum(first_bps, ceiling_bps))
    burst_bits = first_bursts(rate_bps)
    reserve_bps, reserve_burst_bits = first_meter_setting(
        vns.receive_limit_bps[receiver], sender_count.astype(np.float64), UNSEEN_S
    )
    has_queue = vns.has_queue[receiver]
    only_two_vns = np.bincount(vns.vlan)[vns.vlan[receiver]] == 2
    reserve_burst_bits = np.where(only_two_vns, reserve_burst_bits, reserve_burst_bits / 2)
    return (
        np.where(has_queue, rate_bps, np.minimum(rate_bps, whole_rates(reserve_bps))),
        np.where(has_queue, burst_bits, np.minimum(burst_bits, least_burst(reserve_burst_bits))),
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
    """Return the state with more pairs: their senders, receivers, and their meters' ids, rates and bursts.

    ``added_now``: the meters are new on their switches; otherwise they were adopted. No pair may be in the state
    already.

    Choice: an adopted meter below its pair's ceiling was set by an allocator of an earlier run. So its receiver counts
    as congested and its rate as granted; otherwise a restart would begin with a surge at the ceilings. Its sender
    counts as limited at that rate until it is measured; as an idle sender it would lose its share to the others. No
    grant rises above the adopted rate until ``with_released_grants``, since other senders may be unknown yet.
    """
    entries, old_row = state.entries.add(sender, receiver, meter_id)
    new = np.flatnonzero(old_row < 0)
    table_order = np.lexsort((sender, receiver))  # as the pair table: by receiver, then by sender
    rates, bursts = np.zeros(len(entries)), np.zeros(len(entries))
    rates[new], bursts[new] = rate_bps[table_order], burst_bits[table_order]
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
        return _with_full_credit(added, vns, new)
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


def _with_full_credit(state: ControlState, vns: VnTable, new: IntArray) -> ControlState:
    """Return the state in which ``new`` rows have full credit if they are their receiver's only sender.

    Such a sender has sent next to nothing, and no other sender is affected if it uses the credit of a sender after a
    pause. Its meter is lower until the next interval, which shows whether other senders began too: the receive budget
    then decides what each may use.

    A receiver with a queue needs no such credit. In a VLAN of two VNs the whole burst was granted already.
    """
    receiver = state.entries.receiver
    new_receiver = receiver[new]
    is_only_sender = np.bincount(receiver, minlength=len(vns))[new_receiver] == 1
    has_other_vns = np.bincount(vns.vlan)[vns.vlan[new_receiver]] > 2
    rows = new[~vns.has_queue[new_receiver] & is_only_sender & has_other_vns]
    full_bits = first_bursts(ceilings(state.entries, vns)[rows])
    credit_bits = with_rows(state.enforcement.credit_bits, rows, full_bits)
    return state._replace(enforcement=state.enforcement._replace(credit_bits=credit_bits))


def remove_entries(state: ControlState, rows: IntArray) -> ControlState:
    """Return the state without the pairs of ``rows``."""
    kept = np.ones(len(state.entries), dtype=np.bool_)
    kept[rows] = False
    entries, old_row = state.entries.keep(kept)
    unused = np.zeros(len(entries))  # settings of new rows, of which there are none
    return ControlState(
        entries,
        state.counters.reindexed(old_row),
        state.measured.reindexed(old_row),
        state.machines.reindexed(old_row),
        state.allocators.reindexed(old_row),
        state.enforcement.reindexed(old_row, unused, unused, 0.0),
        state.accounts,
        reindex(state.unread_intervals, old_row, 0),
        state.decided_s,
        None if state.adopted_bps is None else reindex(state.adopted_bps, old_row, np.inf),
    )


def with_meters(
    state: ControlState, rows: IntArray, meter_id: IntArray, rate_bps: FloatArray, burst_bits: FloatArray, now_s: float
) -> ControlState:
    """Return the state with the meters ``meter_id`` (pairs,); the meters of ``rows`` were added at ``now_s``.

    New meters have ``rate_bps`` and ``burst_bits``, shape of ``rows``; all others are unchanged.
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
    """Return the bursts of new meters, in bits: those of responsive senders, until drops show otherwise."""
    return burst_for(rate_bps, np.zeros(len(rate_bps), dtype=np.bool_))
