"""Asynchronous messages of switches: packet-in, flow-removed, port-status, error.

A message belongs to the connection that carried it, whatever dpid is in it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from apps.runtime.connection.connection_limits import MAX_PORTS, EvictionReason, LogRateLimiter
from apps.southbound.agent_frames import AgentFrames
from apps.southbound.bring_up import note_port
from apps.southbound.connected_switches import MAX_COMPLAINTS, REPEAT_S, ConnectedSwitch, ConnectedSwitches
from apps.southbound.edge_ports import EdgePorts
from apps.southbound.link_discovery import LinkDiscovery
from controller.errors import ProtocolError, SwitchReplyError
from controller.forwarding.pipeline import OWN_COOKIE, OWN_COOKIE_MASK, Table
from controller.openflow import constants as ofp
from controller.openflow.constants import MessageType
from controller.openflow.ethernet import is_control
from controller.openflow.messages import (
    ErrorMessage,
    FlowRemoved,
    PacketIn,
    PortStatus,
    parse_error,
    parse_flow_removed,
    parse_packet_in,
    parse_port_status,
)

LOG = logging.getLogger("dets.southbound")


class AsyncMessageHandler:
    """Processes asynchronous messages.

    ``push_soon`` schedules the sending of due messages; ``on_ports`` is called with a dpid when a switch's ports have
    changed, ``on_slave`` when a switch reports another controller as its master.
    """

    def __init__(
        self,
        peers: ConnectedSwitches,
        link_discovery: LinkDiscovery,
        agents: AgentFrames,
        edge_ports: EdgePorts,
        push_soon: Callable[[], None],
        on_ports: Callable[[int], None],
        on_slave: Callable[[ConnectedSwitch], None] = lambda peer: None,
    ) -> None:
        self._agents, self._edge_ports, self._on_slave = agents, edge_ports, on_slave
        self._peers, self._link_discovery, self._push_soon, self._on_ports = peers, link_discovery, push_soon, on_ports
        self._log_limiter = LogRateLimiter(peers.clock)
        self._handlers: dict[int, tuple[Callable[[bytes], Any], Callable[[ConnectedSwitch, Any], bool | None]]] = {
            MessageType.PACKET_IN: (parse_packet_in, self._packet_in),
            MessageType.FLOW_REMOVED: (parse_flow_removed, self._entry_removed),
            MessageType.PORT_STATUS: (parse_port_status, self._port_changed),
            MessageType.ERROR: (parse_error, self._error),
        }

    def handle(self, peer: ConnectedSwitch, kind: int, message: bytes) -> bool:
        """Process one message; return False if it was dropped.

        ``kind`` is an OpenFlow message type with a handler. A packet-in above the rate limit of its port or its VN is
        dropped, and so is every message of a connection that the switch has replaced.
        """
        if not self._peers.is_current(peer):
            return False
        parse, act = self._handlers[kind]
        try:
            return act(peer, parse(message)) is not False
        except ProtocolError as error:
            dpid = peer.connection.dpid
            if self._log_limiter.due((dpid, kind)):
                LOG.warning("switch %016x sent a malformed message: %s", dpid, error)
        return True

    def replay_port_status(self, peer: ConnectedSwitch) -> None:
        """Process the port-status messages that arrived while a switch was brought up."""
        early, peer.early_port_status = peer.early_port_status, {}
        for status in early.values():
            self._port_changed(peer, status)

    def _packet_in(self, peer: ConnectedSwitch, packet: PacketIn) -> bool:
        """Process a packet-in; return False if it was dropped.

        Packet-ins that arrive before the switch's tables have been read are dropped: the flow entries in the tables
        give more hosts and pairs than such packet-ins.
        """
        central, dpid = self._peers.central, peer.connection.dpid
        if peer.probe is not None and peer.probe.on_packet_in(packet):
            return True
        if not central.switches[dpid].connected or packet.in_port > ofp.PORT_MAX:
            return False
        if packet.table_id == Table.CLASSIFY and is_control(packet.data):
            return self._agents.on_packet_in(dpid, packet)
        if packet.table_id == Table.CLASSIFY:
            self._link_discovery.on_packet_in(dpid, packet)
        elif not central.on_packet_in(dpid, packet, self._peers.clock()):
            return False
        self._push_soon()
        return True

    def _entry_removed(self, peer: ConnectedSwitch, removed: FlowRemoved) -> None:
        """Process the idle timeout of one of the controller's flow entries; audits handle other removals."""
        central, dpid = self._peers.central, peer.connection.dpid
        own = removed.cookie & OWN_COOKIE_MASK == OWN_COOKIE
        if own and removed.reason == ofp.FlowRemovedReason.IDLE_TIMEOUT and central.switches[dpid].connected:
            central.on_flow_removed(dpid, removed, self._peers.clock())
            self._push_soon()

    def _port_changed(self, peer: ConnectedSwitch, status: PortStatus) -> None:
        """Process a port-status: record the port, and take down its link if the port is gone, down or renamed."""
        central, dpid, port = self._peers.central, peer.connection.dpid, status.port
        early = peer.early_port_status
        # The sum counts ports that are in both twice. It is quick; only if it is too high, the union is counted.
        if len(peer.ports) + len(early) >= MAX_PORTS < len({port.port_no} | peer.ports.keys() | early.keys()):
            peer.connection.disconnect(EvictionReason.PORTS)
            return
        if not central.switches[dpid].connected:
            early.pop(port.port_no, None)  # so that the ports stay in the order of their last messages
            early[port.port_no] = status
            return
        before = peer.ports.get(port.port_no)
        note_port(peer, status)
        is_down = status.reason == ofp.PortReason.DELETE or not port.up
        is_renamed = before is not None and before.name != port.name  # another interface has the number now
        if is_down or is_renamed:
            central.port_down(dpid, port.port_no, self._peers.clock())
        self._edge_ports.touch(peer)
        if not is_down:
            self._link_discovery.send_probe(dpid, port.port_no)
        self._on_ports(dpid)
        self._push_soon()

    def _error(self, peer: ConnectedSwitch, error: ErrorMessage) -> None:
        """Process an error reply: record an event, and request an audit of the switch's tables if something is missing.

        An event with the same text is recorded at most once in REPEAT_S. If the rejected message was a request, its
        sender gets the error as the reply and reports it. Only for a barrier request may no sender wait: an error of
        one is recorded here.
        """
        rejected_type = error.data[1] if len(error.data) > 1 else None  # data begins with the rejected message's header
        was_request = peer.connection.fail(error.xid, SwitchReplyError(error.text))
        if was_request and rejected_type != MessageType.BARRIER_REQUEST:
            return
        if peer.probe is not None and peer.probe.on_error(error):
            return
        if error.is_slave:
            self._on_slave(peer)
            if not self._peers.is_current(peer):  # another node of the cluster controls it: no fault of the switch
                return
        may_be_meter_mod = rejected_type in (None, MessageType.METER_MOD)
        if rejected_type == MessageType.METER_MOD:
            peer.meters_refused_s = self._peers.clock()
        self._report_error(peer, rejected_type, error.text)
        # The text of an error is "TYPE / CODE".
        central, dpid, code = self._peers.central, peer.connection.dpid, error.text.rpartition(" / ")[2]
        is_handled = was_request or (may_be_meter_mod and central.meter_refused(dpid, error.data, code))
        peer.audit_requested = peer.audit_requested or not is_handled

    def _report_error(self, peer: ConnectedSwitch, rejected_type: int | None, reason: str) -> None:
        """Record an event for an error reply, with each text at most once in REPEAT_S.

        Only MAX_COMPLAINTS texts of a switch are remembered. While all of them are newer than REPEAT_S, other texts are
        not recorded.
        """
        rejected = MessageType(rejected_type).name if rejected_type in set(MessageType) else "a message"
        text = f"refused {rejected}: {reason}"
        now_s, reported_s = self._peers.clock(), peer.reported_errors  # ordered by time, the oldest report first
        if now_s - reported_s.get(text, -math.inf) < REPEAT_S:
            return
        reported_s.pop(text, None)
        oldest_s = next(iter(reported_s.values()), -math.inf)
        if len(reported_s) >= MAX_COMPLAINTS and now_s - oldest_s < REPEAT_S:
            return
        while len(reported_s) >= MAX_COMPLAINTS:
            del reported_s[next(iter(reported_s))]
        reported_s[text] = now_s
        self._peers.report_fault(peer.connection.dpid, text)
