"""Control frames of hosts' agents: received by packet-in, sent by packet-out, one write per switch."""

from __future__ import annotations

from functools import partial

from apps.southbound.connected_switches import ConnectedSwitches
from controller.openflow.actions import Output
from controller.openflow.constants import PORT_CONTROLLER
from controller.openflow.messages import PacketIn, encode_packet_out


class AgentFrames:
    """Carries frames between the central controller and the agents behind edge ports."""

    def __init__(self, peers: ConnectedSwitches) -> None:
        self._peers = peers

    def on_packet_in(self, dpid: int, packet: PacketIn) -> bool:
        """Process a packet-in with a control frame; return whether it was processed."""
        return self._peers.central.on_control_frame(dpid, packet.in_port, packet.data, self._peers.clock())

    def send_due(self) -> None:
        """Send the frames that are due to agents; frames for a disconnected switch are lost, and repeated later."""
        by_switch: dict[int, list[tuple[int, bytes]]] = {}
        for port, octets in self._peers.central.drain_agent_frames():
            by_switch.setdefault(port.dpid, []).append((port.port_no, octets))
        for dpid, frames in by_switch.items():
            peer = self._peers.get(dpid)
            if peer is not None:
                peer.connection.send(partial(_encode, frames), len(frames))


def _encode(frames: list[tuple[int, bytes]], xid_first: int) -> bytes:
    return b"".join(
        encode_packet_out(xid_first + number, PORT_CONTROLLER, (Output(port_no),), octets)
        for number, (port_no, octets) in enumerate(frames)
    )
