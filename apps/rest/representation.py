"""The state of the controller as JSON values: whole columns at a time, unknown numbers as null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from apps.rest.models import EntryView, EventView, ExplanationView, PortView, VlanView, VnView
from controller import step
from controller.algorithms import parameters_of
from controller.allocation.parameters import check_parameters
from controller.central import CentralController
from controller.columns import BoolArray, FloatArray, IntArray
from controller.events import Event
from controller.explanation import explain_entry
from controller.openflow.frames import format_mac
from controller.policies import Policy
from controller.send_rate_controller import Control

Json = dict[str, Any]


def vlan_views(central: CentralController, vlan_vids: Sequence[int]) -> list[Json]:
    """Return VLANs as ``VlanView`` has them."""
    vids, counts = np.unique(central.vns.vlan_vid, return_counts=True)
    vns = dict(zip(vids.tolist(), counts.tolist(), strict=True))
    views = []
    for vid in vlan_vids:
        vlan, policy = central.config.vlans[vid], central.policies[vid]
        shadow = central.shadow.policies.get(vid)
        values = (
            vid,
            vlan.name,
            policy.algorithm,
            _all_parameters(policy),
            vlan.weight,
            vlan.send_limit_bps,
            vlan.receive_limit_bps,
            vns.get(vid, 0),
            shadow.algorithm if shadow else None,
            _all_parameters(shadow) if shadow else {},
        )
        views.append(dict(zip(VlanView.model_fields, values, strict=True)))
    return views


def vn_views(central: CentralController, rows: IntArray) -> list[Json]:
    """Return the VNs of these rows of the VN table as ``VnView`` has them."""
    vns, state = central.vns, central.state
    entries, congested = state.entries, state.allocators.congested
    online = _online(central)
    passed_bps = np.where(online[entries.sender], state.measured.passed_bps, np.nan)
    received_bps = np.where(online, _sums(entries.receiver, passed_bps, len(vns)), np.nan)
    sent_bps = np.where(online, _sums(entries.sender, passed_bps, len(vns)), np.nan)
    counted = (state.machines.control == Control.LIMITED) & state.measured.active
    granted_bps = _sums(entries.receiver[counted], state.machines.limit_bps[counted], len(vns))
    columns = (
        vns.vlan_vid[rows].tolist(),
        *_places(central, rows),
        json_rates(vns.send_limit_bps[rows]),
        json_rates(vns.receive_limit_bps[rows]),
        json_rates(vns.send_ceiling_bps[rows]),
        json_rates(vns.receive_ceiling_bps[rows]),
        json_rates(received_bps[rows]),
        json_rates(sent_bps[rows]),
        json_rates(_delivered(central, rows)),
        json_rates(np.where(congested, granted_bps, np.nan)[rows]),
        congested[rows].tolist(),
        _hosts(central, rows),
    )
    return _objects(VnView, columns)


def port_views(central: CentralController) -> list[Json]:
    """Return the edge ports as ``PortView`` has them, in the order of the configuration."""
    vns, views = central.vns, []
    for switch in central.config.switches.values():
        record, delivery = central.switches[switch.dpid], central.deliveries[switch.dpid]
        port_no = np.array(list(switch.ports), dtype=np.int64)
        unknown = np.full(len(port_no), np.nan)
        received = json_rates(delivery.port_received_bps(port_no) if record.connected else unknown)
        sent = json_rates(delivery.port_sent_bps(port_no) if record.connected else unknown)
        for port, received_bps, sent_bps in zip(switch.ports.values(), received, sent, strict=True):
            rows = [vns.row_of(vid, switch.dpid, port.port_no) for vid in port.vlan_vids]
            limits = [int(column[rows].sum()) for column in (vns.send_limit_bps, vns.receive_limit_bps)]
            place = (switch.name, f"{switch.dpid:016x}", port.port_no, port.name, port.capacity_bps)
            values = (*place, list(port.vlan_vids), *limits, received_bps, sent_bps)
            views.append(dict(zip(PortView.model_fields, values, strict=True)))
    return views


def entry_views(central: CentralController, rows: IntArray) -> list[Json]:
    """Return the entries of these rows of the entry table as ``EntryView`` has them."""
    state = central.state
    sender, receiver = state.entries.sender[rows], state.entries.receiver[rows]
    measured, known = state.measured, _online(central)[sender]
    control = [Control(value).name.lower() for value in state.machines.control[rows].tolist()]
    columns = (
        central.vns.vlan_vid[sender].tolist(),
        _objects(("switch", "dpid", "port_no"), _places(central, sender)),
        _objects(("switch", "dpid", "port_no"), _places(central, receiver)),
        *(
            json_rates(np.where(known, rate_bps[rows], np.nan))
            for rate_bps in (measured.measured_bps, measured.offered_bps, measured.dropped_bps)
        ),
        json_rates(state.machines.limit_bps[rows]),
        json_rates(step.limits_in_force_bps(state, central.vns)[rows]),
        json_rates(state.enforcement.rate_bps[rows]),
        state.entries.meter_id[rows].tolist(),
        control,
        state.enforcement.unresponsive[rows].tolist(),
        json_rates(central.shadow.rates_of(state.entries)[rows]),
    )
    return _objects(EntryView, columns)


def explanation_views(central: CentralController, rows: IntArray) -> list[Json]:
    """Return why the entries of these rows have the limits they have, as ``ExplanationView`` has it."""
    entries = central.state.entries
    senders = _objects(("switch", "dpid", "port_no"), _places(central, entries.sender[rows]))
    receivers = _objects(("switch", "dpid", "port_no"), _places(central, entries.receiver[rows]))
    found = [explain_entry(central, row) for row in rows.tolist()]
    columns = (
        [one.vlan_vid for one in found],
        senders,
        receivers,
        [round(one.limit_bps) for one in found],
        [one.bound for one in found],
        [one.place for one in found],
        [one.sharers for one in found],
        [one.next_bound for one in found],
        [round(one.next_limit_bps) for one in found],
        [str(one) for one in found],
    )
    return _objects(ExplanationView, columns)


def event_views(events: Sequence[Event]) -> list[Json]:
    """Return events as ``EventView`` has them."""
    return _objects(EventView, [[getattr(event, name) for event in events] for name in EventView.model_fields])


def json_rates(rate_bps: FloatArray) -> list[int | None]:
    """Return rates in whole bit/s; NaN and infinities, which JSON does not have, become None."""
    known = np.isfinite(rate_bps)
    whole = np.rint(np.where(known, rate_bps, 0.0)).astype(np.int64)
    if known.all():
        return list(whole.tolist())
    values = whole.astype(object)
    values[~known] = None
    return list(values.tolist())


def _all_parameters(policy: Policy) -> dict[str, float]:
    return check_parameters(policy.algorithm, parameters_of[policy.algorithm], policy.parameters)


def _online(central: CentralController) -> BoolArray:
    """Return whether the switch of each VN is connected, shape (vns,): what another counts is unknown, not zero."""
    connected = [dpid for dpid, record in central.switches.items() if record.connected]
    return np.isin(central.vns.dpid, np.array(connected, dtype=np.uint64))


def _delivered(central: CentralController, rows: IntArray) -> FloatArray:
    """Return what the queues of these VNs sent, NaN where the switch has no such queue or is not connected."""
    vns = central.vns
    delivered_bps = np.full(len(rows), np.nan)
    for dpid, record in central.switches.items():
        mine = np.flatnonzero(vns.dpid[rows] == dpid)
        if record.connected and len(mine):
            delivery, vn = central.deliveries[dpid], rows[mine]
            delivered_bps[mine] = delivery.queue_bps(vns.port_no[vn], vns.vlan_vid[vn])
    return delivered_bps


def _sums(rows: IntArray, rate_bps: FloatArray, vns: int) -> FloatArray:
    return np.bincount(rows, weights=rate_bps, minlength=vns).astype(np.float64)


def _places(central: CentralController, rows: IntArray) -> tuple[list[str], list[str], list[int]]:
    """Return switch name, dpid and port number of the VNs of these rows."""
    names = {dpid: record.switch.name for dpid, record in central.switches.items()}
    dpids = central.vns.dpid[rows].tolist()
    return [names[dpid] for dpid in dpids], [f"{dpid:016x}" for dpid in dpids], central.vns.port_no[rows].tolist()


def _hosts(central: CentralController, rows: IntArray) -> list[list[str]]:
    hosts: dict[int, list[str]] = {row: [] for row in rows.tolist()}
    for host, row in central.network.hosts().items():
        if row in hosts:
            hosts[row].append(format_mac(host.mac))
    return [sorted(macs) for macs in hosts.values()]


def _objects(names: Any, columns: Sequence[Sequence[Any]]) -> list[Json]:
    keys = tuple(getattr(names, "model_fields", names))
    return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]
