"""Reads the identity, the capabilities and the tables of a switch that has connected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from apps.runtime.connection.connection_limits import MAX_PORTS
from apps.southbound.connected_switches import MAX_QUEUED_BYTES, ConnectedSwitch, ConnectedSwitches, check_size
from apps.southbound.edge_ports import EdgePorts
from controller.capability.capabilities import Capabilities
from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.forwarding.flow_table import FlowTable, pack_key
from controller.forwarding.pipeline import OWN_COOKIE, OWN_COOKIE_MASK, Table
from controller.openflow import constants as ofp
from controller.openflow.constants import FlowModCommand, MeterFlags
from controller.openflow.flows import encode_flow_mods
from controller.openflow.messages import PortStatus, decode_role, encode_role_request
from controller.openflow.meters import METER_CONFIG, MeterFeatures, decode_meter_config, decode_meter_features
from controller.openflow.multipart import (
    decode_desc,
    decode_port_desc,
    decode_table_ids,
    encode_desc_request,
    encode_flow_stats_request,
    encode_meter_config_request,
    encode_meter_features_request,
    encode_port_desc_request,
    encode_table_stats_request,
)
from controller.switch.port_entries import misplaced

_PORT_BYTES = 64  # length of a port's description (ofp_port)
NO_METERS = MeterFeatures(0, 0, MeterFlags(0), 0, 0)


@dataclass(frozen=True)
class InstalledState:
    """A switch's tables when it connected.

    ``flows`` are the controller's flow entries, ``foreign`` is the number of other ones. ``meters`` (METER_CONFIG) are
    the meters with one band, ``meter_ids`` the ids of all meters.
    """

    flows: FlowTable
    foreign: int
    meters: NDArray[np.void]
    meter_ids: set[int] = field(default_factory=set)


def read_switch(
    peers: ConnectedSwitches, peer: ConnectedSwitch, edge_ports: EdgePorts, yield_control: Callable[[], None]
) -> InstalledState:
    """Request a switch's ports, capabilities and tables; return its tables, and store the rest.

    Ports go into ``peer``, capabilities into the switch's record, faults into the event log. Flow entries that connect
    an edge port to a foreign VLAN are deleted at once: the port's number may have belonged to another port before.

    A switch may reject requests about meters (then it has none), its role, its tables and its description. Raises
    ProtocolError for any other error reply, a late reply, or a malformed one. ``yield_control`` lets other greenlets
    run.
    """
    requests = [
        peer.connection.ask(encode)
        for encode in (
            encode_port_desc_request,
            lambda xid: encode_flow_stats_request(xid, OWN_COOKIE, OWN_COOKIE_MASK),
            encode_meter_features_request,
            encode_meter_config_request,
            encode_desc_request,
            encode_table_stats_request,
            encode_role_request,
        )
    ]
    ports, flows = (peers.answer(reply) for reply in requests[:2])
    features, meters, desc, tables, role = (peers.answer_or_refusal(reply) for reply in requests[2:])
    check_size("ports", len(ports), MAX_PORTS * _PORT_BYTES)
    check_size("meters", len(meters or b""), 2 * MAX_QUEUED_BYTES)
    check_size("tables", len(tables or b""))
    peer.ports = {port.port_no: port for port in decode_port_desc(ports)}
    early, peer.early_port_status = peer.early_port_status, {}
    for status in early.values():  # if one is older than the port description, a newer one for the port follows it
        note_port(peer, status)
    capabilities = peers.central.switches[peer.connection.dpid].capabilities
    before = (capabilities.features, capabilities.description)
    capabilities.description = decode_desc(desc) if desc is not None else None
    capabilities.features = decode_meter_features(features) if features is not None else NO_METERS
    is_other_switch = before != (capabilities.features, capabilities.description)  # or another release of its software
    if is_other_switch or not capabilities.tested or capabilities.refuses_meters:
        capabilities.discard_tests()
    capabilities.note_features(capabilities.features)
    capabilities.tables = decode_table_ids(tables) if tables is not None else frozenset()
    capabilities.role = decode_role(role) if role is not None else None
    capabilities.queues_set = {}  # its queues must be set and checked again
    edge_ports.check(peer)
    _check_tables(peers, peer, capabilities)
    peer.listing.read(flows, yield_control)
    own_flows = peer.listing.own.copy()  # ``_delete_misplaced`` changes it; the listing stays as the switch reported it
    _delete_misplaced(peers, peer, own_flows, edge_ports.former_links(peer))
    # Meters with several bands are not the controller's: only their ids are decoded.
    config, other_ids = decode_meter_config(meters) if meters is not None else (np.empty(0, METER_CONFIG), np.empty(0))
    meter_ids = {*config["meter_id"].tolist(), *other_ids.tolist()}
    return InstalledState(own_flows, peer.listing.foreign, config, meter_ids)


def note_port(peer: ConnectedSwitch, status: PortStatus) -> None:
    """Add, replace or remove the port of a port-status message in ``peer.ports``."""
    if status.reason == ofp.PortReason.DELETE:
        peer.ports.pop(status.port.port_no, None)
    else:
        peer.ports[status.port.port_no] = status.port


def _delete_misplaced(peers: ConnectedSwitches, peer: ConnectedSwitch, own: FlowTable, former_links: set[int]) -> None:
    """Delete flow entries that connect edge ports to foreign VLANs, on the switch and in ``own``.

    ``own`` are the controller's flow entries. ``former_links`` are the port numbers that led to another switch before,
    and belong to a different port now.
    """
    dpid = peer.connection.dpid
    central, numbers = peers.central, peers.central.network.numbers
    switch = central.switches[dpid].switch
    edge_ports = {numbers.number(PortId(dpid, port_no)): port for port_no, port in switch.ports.items()}
    fenced = {numbers.number(port) for port in central.network.fenced if port.dpid == dpid}
    misplaced_flows = list(misplaced(own, edge_ports, fenced | former_links - edge_ports.keys()))
    if misplaced_flows:
        mods = [(FlowModCommand.DELETE_STRICT, flow) for flow in misplaced_flows]
        peer.connection.send(partial(encode_flow_mods, mods), len(mods))
        for flow in misplaced_flows:
            own.discard(pack_key(flow))
        text = f"switch {switch.name}: {len(misplaced_flows)} entries deleted that led to other VLANs' ports"
        central.note(EventKind.TABLES_REPAIRED, text, peers.clock(), dpid=dpid)


def _check_tables(peers: ConnectedSwitches, peer: ConnectedSwitch, capabilities: Capabilities) -> None:
    """Report a fault if the switch lacks a table of the pipeline. A switch that rejected the request is not judged."""
    dpid = peer.connection.dpid
    missing = sorted(set(Table) - capabilities.tables) if capabilities.tables else []
    if missing:
        peers.report_fault(
            dpid, f"has no table {', '.join(map(str, missing))}: forwarding needs tables 0 to {max(Table):d}"
        )
