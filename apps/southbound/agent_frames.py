"""Control frames of hosts' agents: received by packet-in, sent by packet-out, one write per switch."""

from __future__ import annotations

from functools import partial

from apps.southbound.connected_switches import ConnectedSwitches
from controller.openflow.actions import Output
from controller.openflow.constants import PORT_CONTROLLER
from controller.openflow.messages import PacketIn, encode_packet_out


class AgentFrames:
    """Passes control frames between the central controller and the agents behind edge ports."""

    def __init__(self, peers: ConnectedSwitches) -> None:
        self._peers = peers

    def on_packet_in(self, dpid: int, packet: PacketIn) -> bool:
        """Process a packet-in with a control frame; return whether it was processed."""
        return self._peers.central.on_control_frame(dpid, packet.in_port, packet.data, self._peers.clock())

    def send_due(self) -> None:
        """Send the control frames that are due, in one write per switch.

        A frame for a disconnected switch is lost; the central controller sends its content again later.
        """
        frames_by_dpid: dict[int, list[tuple[int, bytes]]] = {}
        for port, octets in self._peers.central.drain_agent_frames():
            frames_by_dpid.setdefault(port.dpid, []).append((port.port_no, octets))
        for dpid, frames in frames_by_dpid.items():
            peer = self._peers.get(dpid)
            if peer is not None:
                peer.connection.send(partial(_encode_packet_outs, frames), len(frames))


def _encode_packet_outs(frames: list[tuple[int, bytes]], xid_first: int) -> bytes:
    """Return one packet-out per frame (port_no, bytes), with consecutive xids from ``xid_first`` on."""
    return b"".join(
        encode_packet_out(xid_first + number, PORT_CONTROLLER, (Output(port_no),), octets)
        for number, (port_no, octets) in enumerate(frames)
    )
