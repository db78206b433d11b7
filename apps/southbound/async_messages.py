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
        hellos: LinkDiscovery,
        agents: AgentFrames,
        edge_ports: EdgePorts,
        push_soon: Callable[[], None],
        on_ports: Callable[[int], None],
        on_slave: Callable[[ConnectedSwitch], None] = lambda peer: None,
    ) -> None:
        self._agents, self._edge_ports, self._on_slave = agents, edge_ports, on_slave
        self._peers, self._hellos, self._push_soon, self._on_ports = peers, hellos, push_soon, on_ports
        self._sparing = LogRateLimiter(peers.clock)
        self._handlers: dict[int, tuple[Callable[[bytes], Any], Callable[[ConnectedSwitch, Any], bool | None]]] = {
            MessageType.PACKET_IN: (parse_packet_in, self._packet_in),
            MessageType.FLOW_REMOVED: (parse_flow_removed, self._entry_removed),
            MessageType.PORT_STATUS: (parse_port_status, self._port_changed),
            MessageType.ERROR: (parse_error, self._error),
        }

    def handle(self, peer: ConnectedSwitch, kind: int, message: bytes) -> bool:
        """Process one message of a type with a handler; return whether it was processed.

        A packet-in above the rate of its port or its VN is not.
        """
        if not self._peers.is_current(peer):
            return False
        parse, act = self._handlers[kind]
        try:
            return act(peer, parse(message)) is not False
        except ProtocolError as error:
            dpid = peer.connection.dpid
            if self._sparing.due((dpid, kind)):
                LOG.warning("switch %016x sent a malformed message: %s", dpid, error)
        return True

    def replay_port_status(self, peer: ConnectedSwitch) -> None:
        """Process the port-status messages that arrived while a switch was brought up."""
        early, peer.early_port_status = peer.early_port_status, {}
        for status in early.values():
            self._port_changed(peer, status)

    def _packet_in(self, peer: ConnectedSwitch, packet: PacketIn) -> bool:
        """Process a packet-in; it is ignored until the switch's tables are read, which have more information."""
        central, dpid = self._peers.central, peer.connection.dpid
        if peer.probe is not None and peer.probe.on_packet_in(packet):
            return True
        if not central.switches[dpid].connected or packet.in_port > ofp.PORT_MAX:
            return False
        if packet.table_id == Table.CLASSIFY and is_control(packet.data):
            return self._agents.on_packet_in(dpid, packet)
        if packet.table_id == Table.CLASSIFY:
            self._hellos.on_packet_in(dpid, packet)
        elif not central.on_packet_in(dpid, packet, self._peers.clock()):
            return False
        self._push_soon()
        return True

    def _entry_removed(self, peer: ConnectedSwitch, removed: FlowRemoved) -> None:
        central, dpid = self._peers.central, peer.connection.dpid
        own = removed.cookie & OWN_COOKIE_MASK == OWN_COOKIE
        if own and removed.reason == ofp.FlowRemovedReason.IDLE_TIMEOUT and central.switches[dpid].connected:
            central.on_flow_removed(dpid, removed, self._peers.clock())
            self._push_soon()

    def _port_changed(self, peer: ConnectedSwitch, status: PortStatus) -> None:
        """Process a port-status: record the port, and take down its link if it was lost."""
        central, dpid, port = self._peers.central, peer.connection.dpid, status.port
        if len(peer.ports) + len(peer.early_port_status) > MAX_PORTS:
            peer.connection.disconnect(EvictionReason.PORTS)
            return
        if not central.switches[dpid].connected:
            peer.early_port_status.pop(port.port_no, None)
            peer.early_port_status[port.port_no] = status
            return
        before = peer.ports.get(port.port_no)
        note_port(peer, status)
        removed = status.reason == ofp.PortReason.DELETE or not port.up
        if removed or (before is not None and before.name != port.name):  # a link of another name is another link
            central.port_down(dpid, port.port_no, self._peers.clock())
        self._edge_ports.touch(peer)
        if not removed:
            self._hellos.send_probe(dpid, port.port_no)
        self._on_ports(dpid)
        self._push_soon()

    def _error(self, peer: ConnectedSwitch, error: ErrorMessage) -> None:
        """Process an error reply: record an event, and schedule an audit of the switch's tables.

        Each at most once in REPEAT_S for the same reason. The sender of a rejected request reports the error itself,
        except for a barrier request, which may have no waiting sender.
        """
        kind = error.data[1] if len(error.data) > 1 else None
        was_asked = peer.connection.fail(error.xid, SwitchReplyError(error.text))
        if was_asked and kind != MessageType.BARRIER_REQUEST:
            return
        if peer.probe is not None and peer.probe.on_error(error):
            return
        if error.is_slave:
            self._on_slave(peer)
            if not self._peers.is_current(peer):  # another node of the cluster controls it: no fault of the switch
                return
        if kind == MessageType.METER_MOD:
            peer.meters_refused_s = self._peers.clock()
        self._complain(peer, kind, error.text)
        central, dpid, code = self._peers.central, peer.connection.dpid, error.text.rpartition(" / ")[2]
        seen_to = was_asked or (kind in (None, MessageType.METER_MOD) and central.meter_refused(dpid, error.data, code))
        peer.audit_requested = peer.audit_requested or not seen_to

    def _complain(self, peer: ConnectedSwitch, kind: int | None, reason: str) -> None:
        """Report an error reply; the same text at most once in REPEAT_S."""
        refused = MessageType(kind).name if kind in set(MessageType) else "a message"
        text = f"refused {refused}: {reason}"
        now_s = self._peers.clock()
        if now_s - peer.reported_errors.get(text, -math.inf) >= REPEAT_S:
            peer.reported_errors.pop(text, None)
            if (
                len(peer.reported_errors) < MAX_COMPLAINTS
                or now_s - next(iter(peer.reported_errors.values())) >= REPEAT_S
            ):
                while len(peer.reported_errors) >= MAX_COMPLAINTS:
                    del peer.reported_errors[next(iter(peer.reported_errors))]
                peer.reported_errors[text] = now_s
                self._peers.report_fault(peer.connection.dpid, text)
