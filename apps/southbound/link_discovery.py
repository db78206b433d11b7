"""Link discovery: LLDP probes from which links between switches are found."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from apps.southbound.connected_switches import ConnectedSwitches
from controller.fabric.topology import PortId
from controller.openflow import constants as ofp
from controller.openflow import lldp
from controller.openflow.actions import Output
from controller.openflow.messages import PacketIn, encode_packet_out

# Probes made before other greenlets run.
_BATCH_SIZE = 50


class LinkDiscovery:
    """Sends probes out of ports that may lead to other switches, and processes those that arrive.

    Probes are signed with ``key``, which this process or all nodes of a sharded cluster have. ``yield_control`` lets
    other greenlets run.
    """

    def __init__(self, peers: ConnectedSwitches, yield_control: Callable[[], None]) -> None:
        self._peers, self._yield_control = peers, yield_control
        self.key = secrets.token_bytes(32)

    def send_all(self) -> None:
        """Send a probe out of every port of every switch that may lead to another switch."""
        sent = 0
        for dpid, peer in list(self._peers.items()):  # switches and ports may change during the loop
            network = self._peers.central.network
            for port_no in [port_no for port_no in peer.ports if not network.is_edge(PortId(dpid, port_no))]:
                self.send_probe(dpid, port_no)
                sent += 1
                if sent % _BATCH_SIZE == 0:
                    self._yield_control()

    def resend_overdue(self, now_s: float) -> None:
        """Send a probe out of ports whose last probes did not arrive; call it every interval."""
        for port in self._peers.central.network.topology.overdue_probes(now_s):
            self.send_probe(*port)

    def send_probe(self, dpid: int, port_no: int) -> None:
        """Send a probe out of a port, unless the switch has no such port, the port is down, or it is an edge port."""
        peer = self._peers.get(dpid)
        port = peer.ports.get(port_no) if peer is not None else None
        if peer is None or port is None or not port.up or not 1 <= port_no <= ofp.PORT_MAX:
            return
        if self._peers.central.network.is_edge(PortId(dpid, port_no)):
            return
        frame = lldp.build(dpid, port_no, lldp.authenticator(self.key, dpid, port_no))
        action = (Output(port_no),)
        peer.connection.send(lambda xid: encode_packet_out(xid, ofp.PORT_CONTROLLER, action, frame), 1)

    def on_packet_in(self, dpid: int, packet: PacketIn) -> None:
        """Process an LLDP frame: record the link that a probe has crossed.

        Other LLDP frames of neighbours, and forged probes, are ignored.
        """
        probe = lldp.parse(packet.data)
        if probe is None or not lldp.is_authentic(probe, self.key):
            return
        central, receiver = self._peers.central, PortId(dpid, packet.in_port)
        is_new_link = not central.network.topology.is_linked(receiver)
        central.on_discovery_frame(PortId(probe.dpid, probe.port_no), receiver, self._peers.clock())
        if is_new_link:  # send a probe back at once, so that the link is up after one round trip
            self.send_probe(*receiver)
