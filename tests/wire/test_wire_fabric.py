"""The fabric over real TCP, against a controller of a few lines that reads with Ryu's parser."""

from __future__ import annotations

import socket
import struct
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from controller.openflow import constants as ofp
from controller.openflow import flows, lldp, messages, multipart
from controller.openflow.actions import Output
from controller.openflow.constants import MessageType
from controller.openflow.ethernet import FrameHeader, build_frame
from controller.openflow.flows import Flow
from controller.openflow.match import Match
from experiments.wire.fabric import ManualClock, WireFabric

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ryu's imports warn of what they themselves use, and warnings are errors here
    from ryu.ofproto.ofproto_parser import msg
    from ryu.ofproto.ofproto_protocol import ProtocolDesc

RYU = ProtocolDesc(version=0x04)
HELLO = bytes.fromhex("0400000800000000")
TIMEOUT_S = 10.0
GBPS = 1e9


class Peer:
    """The controller's end of one connection."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.socket.settimeout(TIMEOUT_S)
        self._buf = b""

    def send(self, *parts: bytes) -> None:
        self.socket.sendall(b"".join(parts))

    def raw(self) -> bytes:
        """The next whole message; EOFError when the switch is gone."""
        while len(self._buf) < 8 or len(self._buf) < int.from_bytes(self._buf[2:4]):
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self._buf += data
        length = int.from_bytes(self._buf[2:4])
        buf, self._buf = self._buf[:length], self._buf[length:]
        return buf

    def next(self) -> Any:
        """The next message as Ryu reads it."""
        buf = self.raw()
        version, kind, length, xid = struct.unpack_from("!BBHI", buf)
        return msg(RYU, version, kind, length, xid, buf)

    def barrier(self, xid: int) -> list[Any]:
        """What the switch says until it has done everything so far."""
        self.send(messages.encode_barrier_request(xid))
        before = []
        while (message := self.next()).msg_type != MessageType.BARRIER_REPLY:
            before.append(message)
        assert message.xid == xid
        return before


class Controller:
    """A listening socket on loopback."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(TIMEOUT_S)
        self.address: tuple[str, int] = self._socket.getsockname()
        self._peers: list[Peer] = []

    def accept(self) -> Peer:
        """The next switch that connects, greeted."""
        peer = Peer(self._socket.accept()[0])
        self._peers.append(peer)
        assert peer.next().msg_type == MessageType.HELLO
        peer.send(HELLO)
        return peer

    def accept_by_dpid(self, count: int) -> dict[int, Peer]:
        peers = {}
        for _ in range(count):
            peer = self.accept()
            peer.send(bytes.fromhex("0405000800000001"))
            peers[peer.next().datapath_id] = peer
        return peers

    def close(self) -> None:
        for peer in self._peers:
            peer.socket.close()
        self._socket.close()


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    yield made
    made.close()


@pytest.fixture
def fabric(controller: Controller) -> Iterator[WireFabric]:
    with WireFabric(controller.address, retry_s=0.01) as made:
        yield made


def flow_add(flow: Flow) -> bytes:
    return flows.encode_flow_mods([(ofp.FlowModCommand.ADD, flow)], 1)


TO_CONTROLLER = flow_add(Flow(0, 0, Match(), 7, actions=(Output(ofp.PORT_CONTROLLER, ofp.MAX_LEN_NO_BUFFER),)))


def test_switches_connect_and_carry_lldp_and_host_frames(controller: Controller, fabric: WireFabric) -> None:
    for dpid in (1, 2):
        fabric.add_switch(dpid, {1: GBPS, 2: GBPS})
    fabric.link((1, 2), (2, 1))
    peers = controller.accept_by_dpid(2)
    for peer in peers.values():
        peer.send(TO_CONTROLLER)
        assert peer.barrier(5) == []
    probe = lldp.build(1, 2, bytes(16))
    peers[1].send(messages.encode_packet_out(6, ofp.PORT_CONTROLLER, (Output(2),), probe))
    arrived = peers[2].next()
    assert (arrived.match["in_port"], arrived.data) == (1, probe)
    host_frame = build_frame(FrameHeader(2, 1, 10, 0x0800), b"payload")
    fabric.inject(1, 1, host_frame)
    arrived = messages.parse_packet_in(peers[1].raw())
    assert (arrived.in_port, arrived.cookie, arrived.data) == (1, 7, host_frame)
    peers[2].send(messages.encode_packet_out(6, ofp.PORT_CONTROLLER, (Output(2),), host_frame))
    assert fabric.wait_for(lambda: fabric.received(2, 2)) == [host_frame]


def test_flow_stats_of_many_entries_come_in_parts(controller: Controller, fabric: WireFabric) -> None:
    fabric.add_switch(1, {1: GBPS})
    peer = controller.accept()
    wanted = [Flow(0, 5, Match(in_port=1, eth_dst=number), number, goto_table=1) for number in range(2000)]
    peer.send(flows.encode_flow_mods([(ofp.FlowModCommand.ADD, flow) for flow in wanted], 1))
    peer.send(multipart.encode_flow_stats_request(9))
    body, more, parts = b"", True, 0
    while more:
        part = multipart.multipart_header(peer.raw())
        body, more, parts = body + bytes(part.body), part.more, parts + 1
    assert parts > 2
    assert flows.decode_flow_stats(body).flows == wanted


@pytest.mark.parametrize("keep_tables", [True, False])
def test_a_switch_comes_back_with_its_tables_or_without(
    controller: Controller, fabric: WireFabric, keep_tables: bool
) -> None:
    datapath = fabric.add_switch(1, {1: GBPS})
    peer = controller.accept()
    peer.send(TO_CONTROLLER)
    peer.barrier(5)
    fabric.disconnect(1, keep_tables=keep_tables, reconnect=False)
    with pytest.raises((EOFError, ConnectionError)):
        peer.next()
    fabric.wait_for(lambda: not fabric.connected(1))
    assert fabric.connections(1) == 1
    fabric.reconnect(1)
    controller.accept().barrier(6)
    assert len(datapath.tables) == keep_tables
    assert fabric.connections(1) == 2


def test_a_peer_that_speaks_nonsense_is_refused_and_left(controller: Controller, fabric: WireFabric) -> None:
    fabric.add_switch(1, {1: GBPS})
    peer = controller.accept()
    peer.send(b"\x04\x02\x00\x03\x00\x00\x00\x09")
    error = messages.parse_error(peer.raw())
    assert (error.text, error.xid) == ("BAD_REQUEST / BAD_LEN", 9)
    with pytest.raises((EOFError, ConnectionError)):
        peer.next()
    controller.accept().barrier(1)


def test_a_loop_is_noticed(controller: Controller) -> None:
    fabric = WireFabric(controller.address, clock=ManualClock())
    for dpid in (1, 2):
        flood = Flow(0, 1, Match(), 0, actions=(Output(ofp.PORT_ALL),))
        fabric.add_switch(dpid, {1: GBPS, 2: GBPS, 3: GBPS}).receive(flow_add(flood), 0.0)
    fabric.link((1, 2), (2, 2))
    fabric.link((1, 3), (2, 3))
    fabric.start()
    fabric.inject(1, 1, build_frame(FrameHeader(ofp.PORT_ANY, 1, 10, 0x0800), b""))
    with pytest.raises(AssertionError, match="a loop"):
        fabric.stop()


def test_real_time_cannot_be_advanced(fabric: WireFabric) -> None:
    with pytest.raises(TypeError, match="ManualClock"):
        fabric.advance(1.0)


def test_waiting_ends() -> None:
    fabric = WireFabric(("127.0.0.1", 1), clock=ManualClock())
    with pytest.raises(TimeoutError):
        fabric.wait_for(lambda: False, timeout_s=0.01)
