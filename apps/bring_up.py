"""Finds out what a switch that has connected is, can do and holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apps.peer import ANSWER_TIMEOUT_S, Peer, Peers
from controller.flow_counting import FlowCounting
from controller.forwarding.pipeline import OWN_COOKIE, OWN_COOKIE_MASK
from controller.openflow import constants as ofp
from controller.openflow.constants import MeterFlags
from controller.openflow.flows import Flow, UnknownFlow, decode_flow_stats
from controller.openflow.messages import PortStatus
from controller.openflow.meters import MeterFeatures, decode_meter_config, decode_meter_features
from controller.openflow.stats import (
    decode_port_desc,
    encode_flow_stats_request,
    encode_meter_config_request,
    encode_meter_features_request,
    encode_port_desc_request,
)


@dataclass(frozen=True)
class Holdings:
    """What a switch has in its tables: flow entries of ours, and meters (METER_CONFIG)."""

    flows: Iterable[Flow | UnknownFlow]
    meters: NDArray[np.void]


def introduce(peers: Peers, peer: Peer) -> Holdings:
    """Ask a switch for its ports, abilities and tables; note them in ``peer``, and say what it cannot do.

    Raises ProtocolError when it refuses, does not answer in time, or answers what cannot be read.
    """
    asked = [
        peer.connection.ask(encode)
        for encode in (
            encode_port_desc_request,
            encode_meter_features_request,
            encode_meter_config_request,
            lambda xid: encode_flow_stats_request(xid, OWN_COOKIE, OWN_COOKIE_MASK),
        )
    ]
    deadline_s = peers.clock() + ANSWER_TIMEOUT_S
    ports, features, meters, flows = (peers.answer(reply, deadline_s) for reply in asked)
    peer.ports = {port.port_no: port for port in decode_port_desc(ports)}
    for status in peer.early:  # in order: what is older than the description has something newer behind it
        note_port(peer, status)
    _judge_meters(peers, peer, decode_meter_features(features))
    _judge_ports(peers, peer)
    peer.known_flows = decode_flow_stats(flows)
    return Holdings(peer.known_flows.flows, decode_meter_config(meters)[0])


def note_port(peer: Peer, status: PortStatus) -> None:
    """Note what a port-status says."""
    if status.reason == ofp.PortReason.DELETE:
        peer.ports.pop(status.port.port_no, None)
    else:
        peer.ports[status.port.port_no] = status.port


def _judge_meters(peers: Peers, peer: Peer, can: MeterFeatures) -> None:
    dpid = peer.connection.dpid
    if not can.can_drop:
        peers.complain(dpid, "has no meters that drop: its senders cannot be limited")
    elif not can.capabilities & MeterFlags.STATS:
        peer.counting = FlowCounting()
        peers.complain(dpid, "has meters that do not count: flow-stats stand in, up to 500 ms stale")
    peers.central.switches[dpid].meter_ids.limit_to(can.max_meter)


def _judge_ports(peers: Peers, peer: Peer) -> None:
    dpid = peer.connection.dpid
    absent = sorted(peers.central.switches[dpid].switch.ports.keys() - peer.ports.keys())
    if absent:
        peers.complain(dpid, f"has no port {', '.join(map(str, absent))}, which the configuration names")
