"""The attacks, by name. ``python -m experiments.bench.attack.attacks NAME HOST PORT SECONDS`` runs one.

An attack is a function of the controller's OpenFlow or REST address and the time at which the attack ends. To add an
attack, write the function and add a row to ATTACKS. The controller's configuration has the attacker's switch,
HOSTILE_DPID, and the well-behaved switches GOOD_DPIDS.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import sys
import time
from dataclasses import dataclass
from functools import cache

from controller.forwarding.pipeline import MetadataFlag, Table
from controller.openflow.bounded_reader import HEADER
from controller.openflow.constants import PORT_STATE_LINK_DOWN, MessageType, MultipartType, PortReason
from experiments.bench.attack import clients, hostile_hosts
from experiments.bench.attack.hostile_peer import (
    HOSTILE_DPID,
    Address,
    AttackFunction,
    HostilePeer,
    features_reply,
    message,
    multipart_reply,
    open_connections,
    reconnecting,
)
from experiments.switch import replies

GOOD_DPIDS = (1, 2, 3)
UNMANAGED_DPID = 0xDEAD

_UNKNOWN_TYPE = 99
_UNKNOWN_VERSION = 0x2A
_PART_BATCH = 200
_CROWD = 64
_MANY_PORTS = 1_000
_PAUSE_S = 0.02
_READ_S = 10.0  # a slow controller needs that long to read all ports


@dataclass(frozen=True)
class Attack:
    """An attack: its description, its function, and whether it targets REST (``on_rest``) or the OpenFlow port."""

    about: str
    run: AttackFunction
    on_rest: bool = False


def idle(address: Address, until_s: float) -> None:
    """Do nothing: the baseline of the attacks."""
    time.sleep(max(until_s - time.monotonic(), 0.0))


def _send_while_read(peer: HostilePeer, data: bytes, until_s: float) -> None:
    """Send the same data until ``until_s``, for as long as the controller reads it."""
    while time.monotonic() < until_s and peer.send(data):
        pass


@reconnecting(receive_bytes=4096)
def stop_reading(peer: HostilePeer, until_s: float) -> None:
    """A controlled switch sends long echo requests and reads no reply."""
    if peer.become_ready(HOSTILE_DPID) is not None:
        _send_while_read(peer, message(MessageType.ECHO_REQUEST, bytes(60_000)), until_s)


@reconnecting(receive_bytes=4096)
def many_ports(peer: HostilePeer, until_s: float) -> None:
    """A controlled switch reports 20,000 ports and reads none of the discovery probes sent to them."""
    if peer.become_ready(HOSTILE_DPID) is not None:
        peer.send(_port_reports())
        read_by_s = max(until_s, time.monotonic() + _READ_S)  # the controller has read all ports by then
        while time.monotonic() < read_by_s and peer.send(b""):  # sends nothing: fails if the connection is closed
            time.sleep(_PAUSE_S)


@cache
def _port_reports() -> bytes:
    """Return the reports of 20,000 ports: made once, so that the attacker does not wait for them."""
    return b"".join(message(MessageType.PORT_STATUS, bytes(8) + port(number)) for number in range(1, 20_001))


def port(number: int, *, up: bool = True) -> bytes:
    """Return the ofp_port of a port."""
    return replies.port(number, f"p{number}", number, 0, 0 if up else PORT_STATE_LINK_DOWN, 1_000_000)


@reconnecting()
def hostile_names(peer: HostilePeer, until_s: float) -> None:
    """A controlled switch renames its ports constantly, with names that would change a log or control a terminal."""

    def renamed(number: int, name: bytes) -> bytes:
        ofp_port = port(number)
        return ofp_port[:_NAME_AT] + name.ljust(_NAME_BYTES, b"\0")[:_NAME_BYTES] + ofp_port[_NAME_AT + _NAME_BYTES :]

    statuses = b"".join(
        message(MessageType.PORT_STATUS, bytes([PortReason.MODIFY]) + bytes(7) + renamed(number, name))
        for name in _HOSTILE_NAMES
        for number in (1, 2)
    )
    errors = b"".join(message(MessageType.ERROR, b"\0\1\0\1" + name) for name in _HOSTILE_NAMES)
    switch = peer.become_ready(HOSTILE_DPID)
    while switch is not None and not peer.closed and time.monotonic() < until_s:
        peer.send(statuses + errors)
        peer.behave(switch, lambda: True)


@reconnecting()
def claim_dpid(peer: HostilePeer, until_s: float) -> None:
    """A connection presents the dpid of a controlled switch, then disconnects."""
    peer.shake_hands(GOOD_DPIDS[0])
    peer.wait_closed(0.2)


@reconnecting()
def claim_dpid_and_stay(peer: HostilePeer, until_s: float) -> None:
    """A connection presents the dpid of a controlled switch and behaves like a switch for as long as possible."""
    switch = peer.become_ready(GOOD_DPIDS[0])
    if switch is not None:
        peer.behave(switch, lambda: time.monotonic() > until_s, until_s - time.monotonic())


@reconnecting()
def errors_in_handshake(peer: HostilePeer, until_s: float) -> None:
    """A connection sends HELLO, then meaningless errors in place of a features reply."""
    peer.send(message(MessageType.HELLO))
    if peer.await_message(MessageType.FEATURES_REQUEST) is not None:
        _send_while_read(peer, _SHORT_ERROR * _PART_BATCH, until_s)


def _flood(data: bytes, dpid: int | None = None, *, ready: bool = False) -> AttackFunction:
    """Return an attack that sends ``data`` repeatedly: before any handshake, after one, or as a controlled switch."""

    @reconnecting()
    def attack(peer: HostilePeer, until_s: float) -> None:
        if ready and peer.become_ready(HOSTILE_DPID) is None:
            return
        if dpid is not None:
            peer.shake_hands(dpid)
        _send_while_read(peer, data, until_s)

    return attack


@reconnecting()
def endless_reply(peer: HostilePeer, until_s: float) -> None:
    """A switch answers the request for its flow entries with a reply of endless parts."""
    if not peer.shake_hands(HOSTILE_DPID):
        return
    while True:
        request = peer.await_message(MessageType.MULTIPART_REQUEST)
        if request is None:
            return
        if int.from_bytes(request[8:10]) == MultipartType.FLOW:
            break
    part = multipart_reply(MultipartType.FLOW, bytes(60_000), HEADER.unpack_from(request)[3], more=True)
    _send_while_read(peer, part, until_s)


def _bloat(part_type: MultipartType, record: bytes) -> AttackFunction:
    """Return an attack in which a controlled switch answers one kind of multipart request with 7 MB of records."""
    bodies = [record * (60_000 // len(record))] * 120

    @reconnecting()
    def attack(peer: HostilePeer, until_s: float) -> None:
        switch = peer.become_ready(HOSTILE_DPID)
        while switch is not None and not peer.closed and time.monotonic() < until_s:
            for request in peer.read(0.01):
                if request[1] == MessageType.MULTIPART_REQUEST and int.from_bytes(request[8:10]) == part_type:
                    xid = HEADER.unpack_from(request)[3]
                    for body in bodies:
                        peer.send(multipart_reply(part_type, body, xid, more=True))
                    peer.send(multipart_reply(part_type, b"", xid))
                else:
                    switch.receive(request, time.monotonic())
            peer.send(switch.drain_messages())

    return attack


@reconnecting()
def relay_probes(peer: HostilePeer, until_s: float) -> None:
    """Relay discovery probes, as a controlled switch, so that its ports seem linked; then report the ports down."""
    switch = peer.become_ready(HOSTILE_DPID, ports=_MANY_PORTS)
    if switch is None:
        return
    probes: dict[int, bytes] = {}  # by port: the last probe that left by it
    deadline_s = time.monotonic() + 1.0

    def receive_probes() -> bool:
        probes.update(switch.drain_frames())
        return len(probes) > _MANY_PORTS // 2 or time.monotonic() > deadline_s

    peer.behave(switch, receive_probes)
    rng = random.Random(1)
    while probes and time.monotonic() < until_s and not peer.closed:
        # A probe that arrives at another port than it left by is the sign of a link between the two ports.
        relayed = rng.choices(list(probes.values()), k=_PART_BATCH)
        ports = rng.choices(range(3, _MANY_PORTS), k=_PART_BATCH)
        relayed_probes = (
            replies.packet_in(1, Table.CLASSIFY, 0, in_port, frame, 0xFFFF)
            for in_port, frame in zip(ports, relayed, strict=True)
        )
        port_downs = (
            message(MessageType.PORT_STATUS, bytes([PortReason.MODIFY]) + bytes(7) + port(port_no, up=False))
            for port_no in ports[:20]
        )
        peer.send(b"".join([*relayed_probes, *port_downs]))
        peer.behave(switch, lambda: True)


@reconnecting()
def send_no_counters(peer: HostilePeer, until_s: float) -> None:
    """A controlled switch confirms everything and never sends counters."""
    switch = peer.become_ready(HOSTILE_DPID)
    if switch is not None:
        switch.faults.lose_replies = set(MultipartType)
        peer.behave(switch, lambda: time.monotonic() > until_s, until_s - time.monotonic())


def idle_connections(address: Address, until_s: float) -> None:
    """Connections that send nothing, as many as the controller accepts."""
    while time.monotonic() < until_s:
        with open_connections(address, 500):
            time.sleep(min(1.0, max(until_s - time.monotonic(), 0.0)))


def dribble(address: Address, until_s: float) -> None:
    """Connections that begin a message and send one more byte every 0.1 s."""
    with open_connections(address, 200) as peers:
        for peer in peers:
            peer.send(HEADER.pack(4, MessageType.HELLO, 60_000, 0))
        while time.monotonic() < until_s:
            for peer in peers:
                peer.send(b"\0")
            time.sleep(0.1)


def _many_connections(data: bytes, step: int, dpid: int | None = None) -> AttackFunction:
    """Return an attack by _CROWD connections that send ``data`` repeatedly, ``step`` bytes at a time.

    Without a ``dpid`` before any handshake; with a ``dpid`` after one, each connection with another dpid, counted from
    ``dpid``.
    """

    def attack(address: Address, until_s: float) -> None:
        while time.monotonic() < until_s:
            with open_connections(address, _CROWD) as peers:
                for number, peer in enumerate(peers):
                    if dpid is not None:
                        peer.shake_hands(dpid + number)
                offset = 0
                while time.monotonic() < until_s and not all(peer.closed for peer in peers):
                    for peer in peers:
                        peer.send_some(data[offset : offset + step])
                    offset = (offset + step) % len(data)

    return attack


def unmanaged_switches(address: Address, until_s: float) -> None:
    """Unmanaged switches, each with another dpid, that stay connected."""
    rng = random.Random(1)
    while time.monotonic() < until_s:
        with open_connections(address, 100) as peers:
            for peer in peers:
                peer.send(message(MessageType.HELLO))
            for peer in peers:
                request = peer.await_message(MessageType.FEATURES_REQUEST, 0.2)
                if request is not None:
                    peer.send(features_reply(rng.getrandbits(64), HEADER.unpack_from(request)[3]))


@reconnecting()
def come_and_go(peer: HostilePeer, until_s: float) -> None:
    """A switch connects, is brought up and disconnects, repeatedly."""
    peer.become_ready(HOSTILE_DPID)


def _packet_in() -> bytes:
    """Return a batch of packet-ins with random destinations and new source addresses, encoded."""
    rng = random.Random(1)
    # Destination, source, a tag of VLAN 10, the EtherType of IPv4.
    frames = (
        rng.randbytes(6) + (0x02_00_00_00_00_00 + number).to_bytes(6) + b"\x81\0\0\x0a\x08\0" + bytes(46)
        for number in range(_PART_BATCH)
    )
    metadata = int(MetadataFlag.UNKNOWN_SOURCE) | hostile_hosts.VLAN
    return b"".join(replies.packet_in(1, Table.PACKET_IN, 0, 1, frame, 0xFFFF, metadata) for frame in frames)


_NAME_AT, _NAME_BYTES = 16, 16  # of an ofp_port
_HOSTILE_NAMES = (
    b"\x1b[2J\x1b]0;x\x07",  # C0 escapes
    b"\r\n2026 [error] x",  # line ends
    b"\xc2\x9b31m\xc2\x85",  # C1 escapes
    "\u202ebil\u2066\u2028".encode(),  # bidi
    b"\xff\xfe\xed\xa0\x80",  # no UTF-8, half a surrogate pair
    b'"},{"a":"\\"%s{}',
    b"'; DROP TABLE x",
    b"x" * _NAME_BYTES,  # no terminator
)
_METER = struct.pack("!IH50x", 1, 56)  # the counters of meter 1: its id, the record's length, zeros
_ECHO = message(MessageType.ECHO_REQUEST)
_LONG_ECHO = message(MessageType.ECHO_REQUEST, bytes(60_000))
# Bad requests (type 1) of a bad type (code 1).
_ERROR = message(MessageType.ERROR, b"\0\1\0\1" + bytes(64))
_SHORT_ERROR = message(MessageType.ERROR, b"\0\1\0\1")
_UNKNOWN_VERSIONS = message(MessageType.HELLO, version=_UNKNOWN_VERSION) + _PART_BATCH * message(
    MessageType.ECHO_REQUEST, version=_UNKNOWN_VERSION
)
_PORT_DESC = multipart_reply(MultipartType.PORT_DESC, b"".join(map(port, range(1, 1001))))

ATTACKS: dict[str, Attack] = {
    "none": Attack("nothing", idle),
    "stops reading": Attack("requests echoes of 60 kB, reads no reply", stop_reading),
    "20,000 ports": Attack("reports 20,000 ports, reads no discovery probe", many_ports),
    "hostile names": Attack("port names with escapes, line ends and bidi overrides", hostile_names),
    "claims a dpid": Attack("presents another switch's dpid, disconnects", claim_dpid),
    "claims a dpid, stays": Attack("presents another switch's dpid, behaves like it", claim_dpid_and_stay),
    "unknown types": Attack("messages of unknown types", _flood(message(_UNKNOWN_TYPE) * _PART_BATCH)),
    "unasked replies": Attack("unrequested descriptions of 1,000 ports", _flood(_PORT_DESC)),
    "errors": Attack("errors before any handshake", _flood(_ERROR * _PART_BATCH)),
    "handshake's errors": Attack("short errors during the handshake", errors_in_handshake),
    "stranger's errors": Attack("errors from an unmanaged switch", _flood(_ERROR * _PART_BATCH, UNMANAGED_DPID)),
    "switch's errors": Attack("errors from a controlled switch", _flood(_ERROR * _PART_BATCH, ready=True)),
    "switch's replies": Attack("unrequested replies of a controlled switch", _flood(_PORT_DESC, ready=True)),
    "switch's frames": Attack("packet-ins from 200 hosts", _flood(_packet_in(), ready=True)),
    "unknown hosts": Attack(
        "a tenant sends to unknown addresses", hostile_hosts.tenant(hostile_hosts.unknown_destinations)
    ),
    "group sources": Attack(
        "a tenant sends to unknown addresses from group addresses", hostile_hosts.tenant(hostile_hosts.from_groups)
    ),
    "broadcast sources": Attack(
        "a tenant sends to unknown addresses from the broadcast address",
        hostile_hosts.tenant(hostile_hosts.broadcast_source),
    ),
    "ARP storm": Attack(
        "a tenant sends ARP requests from 65,536 addresses", hostile_hosts.tenant(hostile_hosts.arp_storm)
    ),
    "neighbour storm": Attack(
        "Neighbor Solicitations from 65,536 addresses", hostile_hosts.tenant(hostile_hosts.solicit_all)
    ),
    "MAC flapping": Attack("eight addresses move between two ports", hostile_hosts.tenant(hostile_hosts.move)),
    "claimed hosts": Attack(
        "one port has constantly new addresses, another port claims them", hostile_hosts.tenant(hostile_hosts.claim)
    ),
    "endless reply": Attack("a reply that never ends", endless_reply),
    "7 MB of meters": Attack("counters of 120,000 meters in every interval", _bloat(MultipartType.METER, _METER)),
    "7 MB of ports": Attack("counters of 60,000 ports in every interval", _bloat(MultipartType.PORT_STATS, bytes(112))),
    "relayed hellos": Attack("relays probes between 1,000 ports, reports them down", relay_probes),
    "no counters": Attack("confirms everything, never sends counters", send_no_counters),
    "idle connections": Attack("500 connections that send nothing", idle_connections),
    "dribble": Attack("200 connections, one byte each every 0.1 s", dribble),
    "crowd of echoes": Attack(
        "64 connections request echoes before any handshake", _many_connections(_ECHO * 200, 1600)
    ),
    "crowd of bytes": Attack("64 connections send single bytes as fast as they can", _many_connections(_LONG_ECHO, 1)),
    "crowd of unmanaged switches": Attack(
        "64 unmanaged switches request echoes", _many_connections(_ECHO * 200, 1600, UNMANAGED_DPID)
    ),
    "unmanaged switches": Attack("unmanaged switches, each with another dpid", unmanaged_switches),
    "unknown versions": Attack("an unknown version of OpenFlow", _flood(_UNKNOWN_VERSIONS)),
    "comes and goes": Attack("connects, is brought up, disconnects, repeatedly", come_and_go),
    "bodies held open": Attack(
        "120 REST bodies of 4 MB whose last bytes never come", clients.bodies_held_open, on_rest=True
    ),
}


def main(name: str, host: str, port: str, seconds: str) -> None:
    """Run an attack at the lowest priority: a real attacker has its own machine."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(19)
    ATTACKS[name].run((host, int(port)), time.monotonic() + float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
