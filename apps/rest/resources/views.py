"""The state of the controller as JSON values: whole columns at a time, unknown numbers as null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np

from apps.rest.resources.service import Service
from apps.rest.schema.change_responses import OverrideView
from apps.rest.schema.fabric_responses import GuaranteeView, ViolatedBy
from apps.rest.schema.responses import (
    AgentView,
    EventView,
    ExplanationView,
    HostView,
    PairView,
    PortLocation,
    PortView,
    UnmeteredPairView,
    VlanView,
    VnView,
)
from apps.settings.settings import ChangeOutcome, Settings
from controller.allocation.parameters import check_parameters, parameters_of
from controller.central.controller import CentralController
from controller.central.port_enforceability import switch_verdicts
from controller.columns import FloatArray, IntArray
from controller.dets.send_rate_controller import MachineState
from controller.events import Event, severity_of
from controller.fabric.agent_ports import AgentSeen, Shaping
from controller.fabric.config_model import EdgePort, Switch
from controller.fabric.topology import PortId
from controller.forwarding.known_hosts import NOWHERE, HostColumns
from controller.forwarding.pairs import Pair
from controller.limits.overrides import Overrides, VnName, vn_value
from controller.loop import control_step
from controller.monitoring.live_rates import connected, flood_rates, granted_bps, live_rates, mark_rates
from controller.monitoring.pair_explanation import explain_pair
from controller.monitoring.policy_metrics import busiest_entries, policy_columns
from controller.monitoring.traffic_totals import VIOLATED, GuaranteeState
from controller.openflow.ethernet import format_mac
from controller.policy.registry import policies
from controller.switch.port_states import PortState
from controller.units import with_whole_numbers

Json = dict[str, Any]


def vlan_views(service: Service, vlan_vids: Sequence[int], outcome: ChangeOutcome | None = None) -> list[Json]:
    """Return VLANs in the form of ``VlanView``, at present or as they would be after ``outcome``."""
    central, settings = service.central, service.settings
    vlans = outcome.values.vlans if outcome else central.config.vlans
    overrides = (outcome.overrides if outcome else settings.overrides).vlans
    vids, counts = np.unique(central.vns.vlan_vid, return_counts=True)
    vns = dict(zip(vids.tolist(), counts.tolist(), strict=True))
    views = []
    for vid in vlan_vids:
        vlan, override = vlans[vid], overrides.get(vid)
        values = (
            vid,
            vlan.name,
            vlan.algorithm,
            _all_parameters(vlan.algorithm, vlan.parameters),
            with_whole_numbers(vlan.weight),
            vlan.send_limit_bps,
            vlan.receive_limit_bps,
            vns.get(vid, 0),
            vlan.shadow,
            _all_parameters(vlan.shadow, vlan.shadow_parameters) if vlan.shadow else {},
            [] if override is None else sorted(override.values),
            settings.vlan_revision(vid),
        )
        views.append(dict(zip(VlanView.model_fields, values, strict=True)))
    return views


def vn_views(service: Service, rows: IntArray, outcome: ChangeOutcome | None = None) -> list[Json]:
    """Return the VNs of these rows in the form of ``VnView``, at present or as they would be after ``outcome``."""
    central, settings = service.central, service.settings
    vns = outcome.values.vns if outcome else central.vns
    overrides = outcome.overrides if outcome else settings.overrides
    congestion, live = central.fabric.congestion, live_rates(central)
    columns = (
        vns.vlan_vid[rows].tolist(),
        *_places(central, rows),
        json_rates(vns.send_limit_bps[rows]),
        json_rates(vns.receive_limit_bps[rows]),
        json_rates(vns.send_ceiling_bps[rows]),
        json_rates(vns.receive_ceiling_bps[rows]),
        list(map(with_whole_numbers, vns.weight[rows].tolist())),
        *(json_rates(column[rows]) for column in live),
        json_rates(_delivered(central, rows)),
        json_rates(granted_bps(central)[rows]),
        *(shares(column[rows], live[0][rows]) for column in mark_rates(central)),
        bottlenecks(central, rows),
        *(json_rates(column[rows]) for column in flood_rates(central)),
        congestion.congested[rows].tolist(),
        [utc(service, since_s) for since_s in congestion.since_s[rows].tolist()],
        json_rates(central.fabric.queue_dropped_bps[rows]),
        central.fabric.notifications[rows].astype(np.int64).tolist(),
        _guarantees(service, rows),
        _hosts(central, rows),
        central.network.known.full_vns()[rows].tolist(),
        *_enforceable(central, rows),
        _overridden(overrides, rows),
        [settings.vn_revision(row) for row in rows.tolist()],
    )
    return _objects(VnView, columns)


def _guarantees(service: Service, rows: IntArray) -> list[Json]:
    """Return the guarantees of these VNs in the form of ``GuaranteeView``."""
    service.observer.sync_vns()
    guarantees, traffic = service.central.fabric.guarantees, service.observer.traffic
    seconds = traffic.seconds[:, rows].round(3)
    by_cause = [dict(zip(ViolatedBy.model_fields, row, strict=True)) for row in seconds[VIOLATED[0] :].T.tolist()]
    columns = (
        json_rates(guarantees.entitled_bps[rows]),
        json_rates(guarantees.received_bps[rows]),
        guarantees.violated[rows].tolist(),
        [utc(service, since_s) for since_s in traffic.missing_since_s[rows].tolist()],
        seconds[GuaranteeState.IDLE].tolist(),
        seconds[GuaranteeState.MET].tolist(),
        traffic.violated_s[rows].round(3).tolist(),
        traffic.violated_last_hour_s[rows].round(3).tolist(),
        by_cause,
    )
    return _objects(GuaranteeView, columns)


def port_views(service: Service, ports: Sequence[tuple[Switch, EdgePort]]) -> list[Json]:
    """Return these edge ports in the form of ``PortView``."""
    central = service.central
    vns, views = central.vns, list[Json]()
    verdicts = {dpid: switch_verdicts(central.fabric, dpid) for dpid in {switch.dpid for switch, _ in ports}}
    for switch, port in ports:
        record, delivery = central.switches[switch.dpid], central.fabric.deliveries[switch.dpid]
        port_no = np.array([port.port_no], dtype=np.int64)
        unknown = np.full(1, np.nan)
        (received_bps,) = json_rates(delivery.port_received_bps(port_no) if record.connected else unknown)
        (sent_bps,) = json_rates(delivery.port_sent_bps(port_no) if record.connected else unknown)
        vn_rows = (vns.row_of(vid, switch.dpid, port.port_no) for vid in port.vlan_vids)
        rows = [row for row in vn_rows if row is not None]
        committed = [int(column[rows].sum()) for column in (vns.send_limit_bps, vns.receive_limit_bps)]
        reported = _reported_state(service, *record.ports.get(port.port_no, (None, np.nan)))
        identity = (switch.name, f"{switch.dpid:016x}", port.port_no, port.label, port.name)
        found = verdicts[switch.dpid][port.port_no]
        agent = central.agents.agent_status(PortId(switch.dpid, port.port_no))
        agent_json = None if agent is None else agent_view(agent)
        frames = list(port.vlan_vids), port.untagged_vid, record.refused.counts_at_port(port.port_no)
        rates = (*committed, received_bps, sent_bps)
        verdict = str(found.verdict), list(found.why)
        capacity = port.capacity_bps, port.admissible_bps
        values = (*identity, *reported, *capacity, *frames, *rates, *verdict, agent_json)
        views.append(dict(zip(PortView.model_fields, values, strict=True)))
    return views


def _reported_state(service: Service, state: PortState | None, since_s: float) -> tuple[str | int | None, ...]:
    """Return what a switch reports about an edge port since ``since_s``, in the order of ``PortView``."""
    if state is None:
        return (None,) * 5
    return state.name, state.state, utc(service, since_s), state.speed_bps or None, state.fence or None


def agent_view(agent: AgentSeen) -> Json:
    """Return the agent behind a port in the form of ``AgentView``."""
    last_seen_ms = max(round(agent.silent_s * 1000), 0) if isfinite(agent.silent_s) else None
    values = (agent.mode, str(agent.state), agent.features, last_seen_ms, agent.refused)
    return dict(zip(AgentView.model_fields, values, strict=True))


def pair_views(central: CentralController, rows: IntArray) -> list[Json]:
    """Return the pairs of these rows of the pair table in the form of ``PairView``."""
    state = central.state
    sender, receiver = state.entries.sender[rows], state.entries.receiver[rows]
    measured, known = state.measured, connected(central)[sender]
    shaping = np.array(central.agents.shaping(), dtype=object)[rows].tolist()
    egress_bps, notification_age_s = central.fabric.sender_limits()
    shown = policy_columns(central.fabric, rows)
    control = [MachineState(value).name.lower() for value in state.machines.control[rows].tolist()]
    columns = (
        central.vns.vlan_vid[sender].tolist(),
        _objects(PortLocation, _places(central, sender)),
        _objects(PortLocation, _places(central, receiver)),
        *(
            json_rates(np.where(known, rate_bps[rows], np.nan))
            for rate_bps in (measured.measured_bps, measured.offered_bps, measured.dropped_bps)
        ),
        json_rates(state.machines.limit_bps[rows]),
        json_rates(control_step.effective_limits_bps(state, central.fabric.shared_vns)[rows]),
        json_rates(state.enforcement.rate_bps[rows]),
        [meter_id or None for meter_id in state.entries.meter_id[rows].tolist()],
        [str(shaper) for shaper in shaping],
        control,
        [
            shaper is not Shaping.METER or central.fabric.record_of_sender(row).capabilities.limits.works
            for row, shaper in zip(sender.tolist(), shaping, strict=True)
        ],
        state.enforcement.unresponsive[rows].tolist(),
        json_rates(central.fabric.control.shadow.rates_of(state.entries)[rows]),
        json_rates(egress_bps[rows]),
        [None if silent_s != silent_s else round(silent_s, 3) for silent_s in notification_age_s[rows].tolist()],
        _shares(shown.marked),
        _shares(shown.lost),
        shown.bottleneck,
    )
    return _objects(PairView, columns)


def host_views(service: Service, hosts: HostColumns) -> list[Json]:
    """Return these hosts in the form of ``HostView``."""
    central = service.central
    moved = hosts.moved_from != NOWHERE
    before = iter(_objects(PortLocation, _places(central, hosts.moved_from[moved])))
    columns = (
        list(map(format_mac, hosts.mac.tolist())),
        hosts.vlan_vid.tolist(),
        *_places(central, hosts.vn),
        [utc(service, since_s) for since_s in hosts.since_s.tolist()],
        [next(before) if has_moved else None for has_moved in moved.tolist()],
    )
    return _objects(HostView, columns)


def unmetered_views(central: CentralController, senders: IntArray) -> list[Json]:
    """Return the active pairs of these senders (rows) without a meter in the form of ``UnmeteredPairView``."""
    pairs = np.array(central.pairs.unmetered, dtype=np.int64).reshape(-1, 2)
    pairs = pairs[np.isin(pairs[:, 0], senders)]
    ends = [_objects(PortLocation, _places(central, pairs[:, end])) for end in (0, 1)]
    why = [central.pairs.why_unmetered(Pair(*pair)) for pair in pairs.tolist()]
    return _objects(UnmeteredPairView, (central.vns.vlan_vid[pairs[:, 0]].tolist(), *ends, why))


def explanation_views(central: CentralController, rows: IntArray) -> list[Json]:
    """Return the explanations of the pairs of these rows in the form of ``ExplanationView``."""
    entries = central.state.entries
    senders = _objects(PortLocation, _places(central, entries.sender[rows]))
    receivers = _objects(PortLocation, _places(central, entries.receiver[rows]))
    shaping = central.agents.shaping()
    explanations = [replace(explain_pair(central.fabric, row), shaping=shaping[row]) for row in rows.tolist()]
    columns = (
        [explanation.vlan_vid for explanation in explanations],
        senders,
        receivers,
        [round(explanation.limit_bps) for explanation in explanations],
        [explanation.constraint for explanation in explanations],
        [explanation.rank for explanation in explanations],
        [explanation.sharers for explanation in explanations],
        [explanation.next_constraint for explanation in explanations],
        [round(explanation.next_limit_bps) for explanation in explanations],
        json_rates(np.array([explanation.sent_bps for explanation in explanations])),
        json_rates(np.array([explanation.send_limit_dropped_bps for explanation in explanations])),
        [str(explanation) for explanation in explanations],
    )
    return _objects(ExplanationView, columns)


def event_views(service: Service, events: Sequence[Event]) -> list[Json]:
    """Return events in the form of ``EventView``."""
    rows = (
        (
            event.number,
            event.at_s,
            utc(service, event.at_s),
            event.kind,
            severity_of(event.kind),
            event.vlan_vid,
            event.switch,
            event.port_no,
            event.text,
        )
        for event in events
    )
    return [dict(zip(EventView.model_fields, row, strict=True)) for row in rows]


def override_views(
    settings: Settings, names: Iterable[int | VnName], outcome: ChangeOutcome | None = None
) -> list[Json]:
    """Return the overrides of these VLANs (ids) and VNs in the form of ``OverrideView``."""
    overrides = outcome.overrides if outcome else settings.overrides
    values = outcome.values if outcome else settings.values
    file, views = settings.file, []
    for name in names:
        if isinstance(name, VnName):
            row = file.row_of.get(name)
            override = overrides.orphaned[name] if row is None else overrides.vn_override(row)
            columns = {} if row is None else {field: getattr(file.vns, field)[row] for field in override.values}
            from_file = {field: vn_value(field, float(value)) for field, value in columns.items()}
            place: tuple[int, str | None, int | None, str | None] = (*name, port_label(settings, *name[1:]))
            active, reason = values.override_status(name)
        else:
            override, vlan = overrides.vlans[name], file.config.vlans.get(name)
            from_file = {field: getattr(vlan, field) for field in override.values} if vlan else {}
            place, reason = (name, None, None, None), values.inactive_vlans.get(name)
            active = reason is None
        shown = with_whole_numbers(override.values), with_whole_numbers(from_file)
        row_values = (*place, *shown, override.revision, active, reason)
        views.append(dict(zip(OverrideView.model_fields, row_values, strict=True)))
    return views


def port_label(settings: Settings, switch: str, port_no: int) -> str:
    """Return the name by which an edge port is configured; its number if the configuration does not have it."""
    configured = settings.file.config.switches.get(switch)
    port = None if configured is None else configured.ports.get(port_no)
    return str(port_no) if port is None else port.label


def utc(service: Service, at_s: float) -> str | None:
    """Return a time on the controller's clock as RFC 3339 in UTC, None for NaN."""
    return None if at_s != at_s else _rfc_3339(service.epoch_s + at_s)


@lru_cache(maxsize=4096)  # many VNs became congested in the same interval
def _rfc_3339(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def json_rates(rate_bps: FloatArray) -> list[int | None]:
    """Return rates in whole bit/s; NaN and infinities, which JSON does not have, become None."""
    known = np.isfinite(rate_bps)
    whole = np.rint(np.where(known, rate_bps, 0.0)).astype(np.int64)
    if known.all():
        return list(whole.tolist())
    values = whole.astype(object)
    values[~known] = None
    return list(values.tolist())


def shares(part_bps: FloatArray, whole_bps: FloatArray) -> list[float | None]:
    """Return ``part_bps`` as shares of ``whole_bps``; None where one is unknown or the whole is 0."""
    divisor_bps = np.where(whole_bps > 0.0, whole_bps, np.nan)
    return _shares(np.minimum(part_bps / divisor_bps, 1.0))


def bottlenecks(central: CentralController, vns: IntArray) -> list[str | None]:
    """Return the bottleneck of the pair with the highest rate to each of these VNs; None: its policy names none."""
    busiest_pairs = busiest_entries(central.fabric, vns)  # -1: no pair
    rows = np.unique(busiest_pairs[busiest_pairs >= 0])
    bottleneck_of = dict(zip(rows.tolist(), policy_columns(central.fabric, rows).bottleneck, strict=True))
    return [bottleneck_of.get(row) for row in busiest_pairs.tolist()]


def _shares(column: FloatArray) -> list[float | None]:
    """Return shares rounded for JSON, None for NaN."""
    return [None if share != share else round(share, 4) for share in column.tolist()]


def _all_parameters(algorithm: str, parameters: Mapping[str, object]) -> dict[str, float]:
    """Return all parameters of an algorithm: those that are set, and the defaults of the others."""
    return dict(with_whole_numbers(check_parameters(algorithm, parameters_of(policies[algorithm]), parameters)))


def _overridden(overrides: Overrides, rows: IntArray) -> list[list[str]]:
    """Return the names of the overridden values of each of these VNs."""
    masks = {name: ~np.isnan(column[rows]) for name, column in overrides.columns.items()}
    if not any(mask.any() for mask in masks.values()):
        return [[] for _ in rows]
    return [[name for name, mask in masks.items() if mask[index]] for index in range(len(rows))]


def _delivered(central: CentralController, rows: IntArray) -> FloatArray:
    """Return the sent rates of these VNs' queues, NaN without such a queue or without a connection."""
    vns = central.vns
    delivered_bps = np.full(len(rows), np.nan)
    for dpid, record in central.switches.items():
        of_switch = np.flatnonzero(vns.dpid[rows] == dpid)  # positions in ``rows``
        if record.connected and len(of_switch):
            delivery, vn = central.fabric.deliveries[dpid], rows[of_switch]
            delivered_bps[of_switch] = delivery.queue_bps(vns.port_no[vn], vns.vlan_vid[vn])
    return delivered_bps


def _enforceable(central: CentralController, rows: IntArray) -> tuple[list[str], list[list[str]]]:
    """Return whether limits are enforceable at the port of each of these VNs, and the reasons why not."""
    ports = list(zip(central.vns.dpid[rows].tolist(), central.vns.port_no[rows].tolist(), strict=True))
    by_switch = {dpid: switch_verdicts(central.fabric, dpid) for dpid in {dpid for dpid, _ in ports}}
    results = [by_switch[dpid][port_no] for dpid, port_no in ports]
    return [str(result.verdict) for result in results], [list(result.why) for result in results]


def _places(central: CentralController, rows: IntArray) -> tuple[list[str], list[str], list[int], list[str]]:
    """Return switch name, dpid, number and configured name of the ports of the VNs of these rows."""
    switches = {dpid: record.switch for dpid, record in central.switches.items()}
    dpids, numbers = central.vns.dpid[rows].tolist(), central.vns.port_no[rows].tolist()
    labels = [switches[dpid].ports[port_no].label for dpid, port_no in zip(dpids, numbers, strict=True)]
    return [switches[dpid].name for dpid in dpids], [f"{dpid:016x}" for dpid in dpids], numbers, labels


def _hosts(central: CentralController, rows: IntArray) -> list[list[str]]:
    hosts_of_vn = central.network.hosts_of_vn
    return [sorted(format_mac(host.mac) for host in hosts_of_vn(row)) for row in rows.tolist()]


def _objects(names: Any, columns: Sequence[Sequence[Any]]) -> list[Json]:
    """Return an object for each row of columns; ``names`` are the keys, or a model with these fields."""
    keys = tuple(getattr(names, "model_fields", names))
    return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]
