"""What VNs send and get in the last interval, as columns."""

from __future__ import annotations

import numpy as np

from controller.central.controller import CentralController
from controller.central.policy_columns import marked_and_lost
from controller.columns import BoolArray, FloatArray
from controller.dets.send_rate_controller import Control
from controller.metering.measurement import sums_by


def live_rates(central: CentralController) -> tuple[FloatArray, ...]:
    """Return what VNs receive and send, what was meant for them and by them, and what was dropped of that.

    Seven columns of shape (vns,) in bit/s, in the order of ``VnView`` from ``measured_receive_bps`` on. The last one is
    what their send limits dropped. NaN is unknown: where the switch that counts it is not connected, for a receiver
    with a sender there, and for both ends of a pair without a meter. Of a part of the fabric they are what its own
    senders bring; those of all parts add up.
    """
    state, vns, send_limits = central.state, len(central.vns), central.fabric.send_limits
    entries, measured, online = state.entries, state.measured, connected(central)
    part = central.fabric.part
    known = [online.copy() if part is None else online | ~part.receives, online.copy()]
    for pair in central.pairs.unmetered:
        known[0][pair.receiver] = known[1][pair.sender] = False
    times = send_limits.offered_to_passed
    meant_bps = measured.offered_bps * times[entries.sender] if (times != 1.0).any() else measured.offered_bps
    told_bps = (measured.passed_bps, meant_bps, measured.dropped_bps)
    if not online.all():
        heard = online[entries.sender]
        passed, meant, dropped = (np.where(heard, rate_bps, np.nan) for rate_bps in told_bps)
        told_bps = (passed, meant, dropped)
    at_receivers, at_senders = (sums_by(end, told_bps, vns) for end in (entries.receiver, entries.sender))
    received, meant_for, dropped_for = (np.where(known[0], sum_bps, np.nan) for sum_bps in at_receivers)
    sent, meant_by, dropped_by = (np.where(known[1], sum_bps, np.nan) for sum_bps in at_senders)
    in_all, over = (np.where(online, one, np.nan) for one in (send_limits.offered_bps, send_limits.dropped_bps))
    meant_by = np.where(np.isnan(in_all), meant_by, in_all)
    return received, sent, meant_for, meant_by, dropped_for, dropped_by, over


def flood_rates(central: CentralController) -> tuple[FloatArray, ...]:
    """Return what VNs may flood, flood, have dropped of that, and get of others' floods: four columns (vns,), bit/s."""
    floods, online = central.fabric.floods, connected(central)
    now = (np.where(online, rate_bps, np.nan) for rate_bps in (floods.passed_bps, floods.dropped_bps))
    return (central.fabric.flood_limit_bps, *now, floods.taken_bps)


def mark_rates(central: CentralController) -> tuple[FloatArray, FloatArray]:
    """Return what of that which VNs receive counts as marked, and as lost on its way: two columns (vns,), bit/s.

    NaN where the VN's policy reports no such thing, and where nothing is known of it.
    """
    online = connected(central)
    marked_bps, lost_bps = (np.where(online, rate_bps, np.nan) for rate_bps in marked_and_lost(central.fabric))
    return marked_bps, lost_bps


def granted_bps(central: CentralController) -> FloatArray:
    """Return the sum of the grants of each VN's active senders, shape (vns,); NaN: it is not congested."""
    state, entries = central.state, central.state.entries
    counted = (state.machines.control == Control.LIMITED) & state.measured.active
    (sums_bps,) = sums_by(entries.receiver[counted], (state.machines.limit_bps[counted],), len(central.vns))
    return np.where(central.fabric.congestion.congested, sums_bps, np.nan)


def congested_here(central: CentralController) -> BoolArray:
    """Return which VNs are congested, (vns,), of those that no other node speaks for."""
    congested, part = central.fabric.congestion.congested, central.fabric.part
    return congested if part is None else congested & part.receives


def connected(central: CentralController) -> BoolArray:
    """Return whether the switch of each VN is connected, shape (vns,): what another counts is unknown, not zero."""
    dpids = [dpid for dpid, record in central.switches.items() if record.connected]
    if len(dpids) == len(central.switches):
        return np.ones(len(central.vns), dtype=np.bool_)
    return np.isin(central.vns.dpid, np.array(dpids, dtype=np.uint64))
