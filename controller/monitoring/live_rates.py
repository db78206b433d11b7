"""The rates of VNs in the last interval, as columns."""

from __future__ import annotations

import numpy as np

from controller.central.controller import CentralController
from controller.columns import BoolArray, FloatArray, nan_column
from controller.dets.send_rate_controller import MachineState
from controller.metering.measurement import sum_by_row
from controller.monitoring.policy_metrics import marked_and_lost


def live_rates(central: CentralController, online: BoolArray | None = None) -> tuple[FloatArray, ...]:
    """Return the VNs' received and sent rates, the offered rates in both directions, and the drops.

    Seven columns of shape (vns,) in bit/s, in the order of ``VnView`` from ``measured_receive_bps`` on. The last one is
    the drops at send limits. NaN is unknown: where the switch that counts is not connected, for a receiver with a
    sender there, and for both ends of a pair without a meter. In sharded mode the rates are those of local senders; the
    rates of all nodes add up. ``online`` is the result of ``connected``. The columns are read-only.
    """
    fabric = central.fabric
    state, send_limits = fabric.control.state, fabric.send_limits
    online = connected(central) if online is None else online
    entries, measured, vns = state.entries, state.measured, len(online)
    # ``told_bps`` are columns of pairs; what is named ``_for`` is the traffic to each VN, ``_by`` the traffic from it.
    # What a pair offers before its sender's send limit: what its meter gets, times the VN's ratio there.
    times, all_online = send_limits.offered_to_passed, bool(online.all())
    meant_bps = measured.offered_bps if times is None else measured.offered_bps * times[entries.sender]
    told_bps = (measured.passed_bps, meant_bps, measured.dropped_bps)
    if not all_online:
        local_only = online[entries.sender]
        passed, meant, dropped = (np.where(local_only, rate_bps, np.nan) for rate_bps in told_bps)
        told_bps = (passed, meant, dropped)
    if all_online and times is None:
        meant_for, received, dropped_for = fabric.receiver_loads_bps
    else:
        received, meant_for, dropped_for = sum_by_row(entries.receiver, told_bps, vns)
    sent, meant_by, dropped_by = sum_by_row(entries.sender, told_bps, vns)
    in_all, over = send_limits.offered_bps, send_limits.dropped_bps  # of each VN, at the meter of its send limit
    if not all_online or central.pairs.unmetered:
        of_receivers, of_senders = _known(central, online)
        received, meant_for, dropped_for = _where(of_receivers, received, meant_for, dropped_for)
        sent, meant_by, dropped_by = _where(of_senders, sent, meant_by, dropped_by)
        in_all, over = _where(online, in_all, over)
    meant_by = np.where(np.isnan(in_all), meant_by, in_all)  # that meter also counts floods and pairs without a meter
    return received, sent, meant_for, meant_by, dropped_for, dropped_by, over


def _known(central: CentralController, online: BoolArray) -> tuple[BoolArray, BoolArray]:
    """Return the masks of the VNs with a known receive rate and with a known send rate, (vns,) each."""
    of_receivers, of_senders = online | ~central.fabric.share.receives, online.copy()
    for pair in central.pairs.unmetered:
        of_receivers[pair.receiver] = of_senders[pair.sender] = False
    return of_receivers, of_senders


def _where(known: BoolArray, *columns: FloatArray) -> tuple[FloatArray, ...]:
    """Return the columns with NaN in the rows outside of the mask."""
    return columns if known.all() else tuple(np.where(known, column, np.nan) for column in columns)


def flood_rates(central: CentralController, online: BoolArray | None = None) -> tuple[FloatArray, ...]:
    """Return the VNs' flood limits, flood rates, flood drops, and received floods: four columns (vns,), bit/s."""
    fabric = central.fabric
    floods = fabric.floods
    now = _where(connected(central) if online is None else online, floods.passed_bps, floods.dropped_bps)
    return (fabric.flood_limit_bps, *now, floods.received_bps)


def mark_rates(central: CentralController, online: BoolArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Return the VNs' marked and lost receive rates: two columns (vns,), bit/s.

    NaN where the VN's policy does not report them, or they are unknown.
    """
    online = connected(central) if online is None else online
    marked_bps, lost_bps = _where(online, *marked_and_lost(central.fabric))
    return marked_bps, lost_bps


def granted_bps(central: CentralController) -> FloatArray:
    """Return the sum of the grants of each VN's active senders, shape (vns,); NaN without congestion."""
    fabric = central.fabric
    state, congested = fabric.control.state, fabric.congestion.congested
    if not congested.any():
        return nan_column(len(congested))
    counted = (state.machines.control == int(MachineState.LIMITED)) & state.measured.active
    counted_bps = np.where(counted, state.machines.limit_bps, 0.0)
    (sums_bps,) = sum_by_row(state.entries.receiver, (counted_bps,), len(congested))
    return np.where(congested, sums_bps, np.nan)


def locally_congested(central: CentralController) -> BoolArray:
    """Return the mask of the congested VNs, (vns,), of those that this node decides for."""
    return central.fabric.congestion.congested & central.fabric.share.receives


def connected(central: CentralController) -> BoolArray:
    """Return whether the switch of each VN is connected, shape (vns,); otherwise its rates are unknown."""
    fabric = central.fabric
    dpids = [dpid for dpid, record in fabric.switches.items() if record.connected]
    vn_dpid = fabric.control.vns.dpid
    if len(dpids) == len(fabric.switches):
        return np.ones(len(vn_dpid), dtype=np.bool_)
    return np.isin(vn_dpid, np.array(dpids, dtype=np.uint64))
