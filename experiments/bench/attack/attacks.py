"""The attacks, by name. ``python -m experiments.bench.attack.attacks NAME HOST PORT SECONDS`` does one of them.

An attack is a function of the controller's OpenFlow or REST address and the time at which it ends. To add one, write it
and give it a row in ATTACKS. The controller knows the switch HOSTILE_DPID, which is the attacker's, and those of
GOOD_DPIDS, which are not.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from controller.forwarding.pipeline import MetadataFlag, Table
from controller.openflow.bounded_reader import HEADER
from controller.openflow.constants import PORT_STATE_LINK_DOWN, MessageType, MultipartType, PortReason
from experiments.bench.attack import clients, hostile_hosts
from experiments.bench.attack.hostile_peer import (
    HOSTILE_DPID,
    Address,
    HostilePeer,
    features_reply,
    message,
    multipart_reply,
    open_connections,
    reconnect_loop,
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


@dataclass(frozen=True)
class Attack:
    """What is done, in words, and what does it; ``on_rest`` is of the REST interface, others of the OpenFlow port."""

    about: str
    run: Callable[[Address, float], None]
    on_rest: bool = False


def idle(address: Address, until_s: float) -> None:
    """Do nothing: what the others are compared with."""
    time.sleep(max(until_s - time.monotonic(), 0.0))


def _pour(peer: HostilePeer, data: bytes, until_s: float) -> None:
    """Send the same for as long as it is taken."""
    while time.monotonic() < until_s and peer.send(data):
        pass


def stop_reading(address: Address, until_s: float) -> None:
    """A switch under control asks for long echoes and reads none of them."""

    def work(peer: HostilePeer) -> None:
        if peer.become_ready(HOSTILE_DPID) is not None:
            _pour(peer, message(MessageType.ECHO_REQUEST, bytes(60_000)), until_s)

    reconnect_loop(address, until_s, work, receive_bytes=4096)


def many_ports(address: Address, until_s: float) -> None:
    """A switch under control reports 20,000 ports, each of which is sent hellos, and reads none of them."""
    ports = b"".join(message(MessageType.PORT_STATUS, bytes(8) + port(number)) for number in range(1, 20_001))

    def work(peer: HostilePeer) -> None:
        if peer.become_ready(HOSTILE_DPID) is not None:
            peer.send(ports)
            while time.monotonic() < until_s and peer.send(b""):
                time.sleep(_PAUSE_S)

    reconnect_loop(address, until_s, work, receive_bytes=4096)


def port(number: int, *, up: bool = True) -> bytes:
    """Return the ofp_port of a port."""
    return replies.port(number, f"p{number}", number, 0, 0 if up else PORT_STATE_LINK_DOWN, 1_000_000)


def hostile_names(address: Address, until_s: float) -> None:
    """A switch under control names its ports again and again, so that a log or a terminal would do as it says."""

    def renamed(number: int, name: bytes) -> bytes:
        whole = port(number)
        return whole[:_NAME_AT] + name.ljust(_NAME_BYTES, b"\0")[:_NAME_BYTES] + whole[_NAME_AT + _NAME_BYTES :]

    said = b"".join(
        message(MessageType.PORT_STATUS, bytes([PortReason.MODIFY]) + bytes(7) + renamed(number, name))
        for name in _HOSTILE_NAMES
        for number in (1, 2)
    )
    refused = b"".join(message(MessageType.ERROR, b"\0\1\0\1" + name) for name in _HOSTILE_NAMES)

    def work(peer: HostilePeer) -> None:
        switch = peer.become_ready(HOSTILE_DPID)
        while switch is not None and not peer.gone and time.monotonic() < until_s:
            peer.send(said + refused)
            peer.behave(switch, lambda: True)

    reconnect_loop(address, until_s, work)


def claim_dpid(address: Address, until_s: float) -> None:
    """Somebody says that it is a switch that is under control already, and leaves again."""

    def work(peer: HostilePeer) -> None:
        peer.shake_hands(GOOD_DPIDS[0])
        peer.wait_gone(0.2)

    reconnect_loop(address, until_s, work)


def claim_dpid_and_stay(address: Address, until_s: float) -> None:
    """The same, and it behaves like a switch for as long as it may."""

    def work(peer: HostilePeer) -> None:
        switch = peer.become_ready(GOOD_DPIDS[0])
        if switch is not None:
            peer.behave(switch, lambda: time.monotonic() > until_s, until_s - time.monotonic())

    reconnect_loop(address, until_s, work)


def errors_in_handshake(address: Address, until_s: float) -> None:
    """Somebody greets, and pours errors that say nothing instead of telling who he is."""

    def work(peer: HostilePeer) -> None:
        peer.send(message(MessageType.HELLO))
        if peer.await_message(MessageType.FEATURES_REQUEST) is not None:
            _pour(peer, _SHORT_ERROR * _PART_BATCH, until_s)

    reconnect_loop(address, until_s, work)


def _flood(data: bytes, dpid: int | None = None, *, ready: bool = False) -> Callable[[Address, float], None]:
    """Return an attack that pours ``data``: before any handshake, after one, or as a switch under control."""

    def attack(address: Address, until_s: float) -> None:
        def work(peer: HostilePeer) -> None:
            if ready and peer.become_ready(HOSTILE_DPID) is None:
                return
            if dpid is not None:
                peer.shake_hands(dpid)
            _pour(peer, data, until_s)

        reconnect_loop(address, until_s, work)

    return attack


def endless_reply(address: Address, until_s: float) -> None:
    """A switch answers the question for its flow entries with parts that never end."""

    def work(peer: HostilePeer) -> None:
        if not peer.shake_hands(HOSTILE_DPID):
            return
        while True:
            asked = peer.await_message(MessageType.MULTIPART_REQUEST)
            if asked is None:
                return
            if int.from_bytes(asked[8:10]) == MultipartType.FLOW:
                break
        part = multipart_reply(MultipartType.FLOW, bytes(60_000), HEADER.unpack_from(asked)[3], more=True)
        _pour(peer, part, until_s)

    reconnect_loop(address, until_s, work)


def _bloat(part_type: MultipartType, record: bytes) -> Callable[[Address, float], None]:
    """Return an attack: a switch under control answers a kind of question with 7 MB of records."""
    bodies = [record * (60_000 // len(record))] * 120

    def attack(address: Address, until_s: float) -> None:
        def work(peer: HostilePeer) -> None:
            switch = peer.become_ready(HOSTILE_DPID)
            while switch is not None and not peer.gone and time.monotonic() < until_s:
                for one in peer.read(0.01):
                    if one[1] == MessageType.MULTIPART_REQUEST and int.from_bytes(one[8:10]) == part_type:
                        xid = HEADER.unpack_from(one)[3]
                        for body in bodies:
                            peer.send(multipart_reply(part_type, body, xid, more=True))
                        peer.send(multipart_reply(part_type, b"", xid))
                    else:
                        switch.receive(one, time.monotonic())
                peer.send(switch.drain_messages())

        reconnect_loop(address, until_s, work)

    return attack


def relay_hellos(address: Address, until_s: float) -> None:
    """A switch under control says that its 1,000 ports hear each other, and that they go down."""

    def work(peer: HostilePeer) -> None:
        switch = peer.become_ready(HOSTILE_DPID, ports=_MANY_PORTS)
        if switch is None:
            return
        heard: dict[int, bytes] = {}
        deadline_s = time.monotonic() + 1.0

        def hear() -> bool:
            heard.update(switch.drain_frames())
            return len(heard) > _MANY_PORTS // 2 or time.monotonic() > deadline_s

        peer.behave(switch, hear)
        draw = random.Random(1)
        while heard and time.monotonic() < until_s and not peer.gone:
            said = draw.choices(list(heard.values()), k=_PART_BATCH)
            ports = draw.choices(range(3, _MANY_PORTS), k=_PART_BATCH)
            hellos = (
                replies.packet_in(1, Table.CLASSIFY, 0, one, frame, 0xFFFF)
                for one, frame in zip(ports, said, strict=True)
            )
            flaps = (
                message(MessageType.PORT_STATUS, bytes([PortReason.MODIFY]) + bytes(7) + port(one, up=False))
                for one in ports[:20]
            )
            peer.send(b"".join([*hellos, *flaps]))
            peer.behave(switch, lambda: True)

    reconnect_loop(address, until_s, work)


def silent_when_polled(address: Address, until_s: float) -> None:
    """A switch under control confirms everything, and never tells its counters."""

    def work(peer: HostilePeer) -> None:
        switch = peer.become_ready(HOSTILE_DPID)
        if switch is not None:
            switch.faults.lose_replies = set(MultipartType)
            peer.behave(switch, lambda: time.monotonic() > until_s, until_s - time.monotonic())

    reconnect_loop(address, until_s, work)


def idle_connections(address: Address, until_s: float) -> None:
    """Connections that say nothing, as many as are taken."""
    while time.monotonic() < until_s:
        with open_connections(address, 500):
            time.sleep(min(1.0, max(until_s - time.monotonic(), 0.0)))


def dribble(address: Address, until_s: float) -> None:
    """Connections that begin a message and go on by a byte now and then."""
    with open_connections(address, 200) as peers:
        for peer in peers:
            peer.send(HEADER.pack(4, MessageType.HELLO, 60_000, 0))
        while time.monotonic() < until_s:
            for peer in peers:
                peer.send(b"\0")
            time.sleep(0.1)


def _crowd(data: bytes, step: int, dpid: int | None = None) -> Callable[[Address, float], None]:
    """Return an attack by _CROWD connections that pour ``data`` again and again, ``step`` bytes at a time.

    Before any handshake; with a ``dpid`` after one, each with another dpid from that one on.
    """

    def attack(address: Address, until_s: float) -> None:
        while time.monotonic() < until_s:
            with open_connections(address, _CROWD) as peers:
                for number, peer in enumerate(peers):
                    if dpid is not None:
                        peer.shake_hands(dpid + number)
                at = 0
                while time.monotonic() < until_s and not all(peer.gone for peer in peers):
                    for peer in peers:
                        peer.send_some(data[at : at + step])
                    at = (at + step) % len(data)

    return attack


def strangers(address: Address, until_s: float) -> None:
    """Switches that nobody has configured, each with another dpid; they stay."""
    draw = random.Random(1)
    while time.monotonic() < until_s:
        with open_connections(address, 100) as peers:
            for peer in peers:
                peer.send(message(MessageType.HELLO))
            for peer in peers:
                asked = peer.await_message(MessageType.FEATURES_REQUEST, 0.2)
                if asked is not None:
                    peer.send(features_reply(draw.getrandbits(64), HEADER.unpack_from(asked)[3]))


def unknown_versions(address: Address, until_s: float) -> None:
    """Connections that speak a version that there is not."""

    def work(peer: HostilePeer) -> None:
        peer.send(message(MessageType.HELLO, version=_UNKNOWN_VERSION))
        peer.send(message(MessageType.ECHO_REQUEST, version=_UNKNOWN_VERSION) * 100)

    while time.monotonic() < until_s:
        try:
            with HostilePeer(address) as peer:
                work(peer)
        except OSError:
            pass


def come_and_go(address: Address, until_s: float) -> None:
    """A switch is brought up and leaves, again and again."""

    def work(peer: HostilePeer) -> None:
        peer.become_ready(HOSTILE_DPID)

    reconnect_loop(address, until_s, work)


def _packet_in() -> bytes:
    draw = random.Random(1)
    frames = (
        draw.randbytes(6) + (0x02_00_00_00_00_00 + number).to_bytes(6) + b"\x81\0\0\x0a\x08\0" + bytes(46)
        for number in range(_PART_BATCH)
    )
    mark = int(MetadataFlag.UNKNOWN_SOURCE) | hostile_hosts.VLAN
    return b"".join(replies.packet_in(1, Table.PACKET_IN, 0, 1, frame, 0xFFFF, mark) for frame in frames)


_NAME_AT, _NAME_BYTES = 16, 16  # of an ofp_port
_HOSTILE_NAMES = (
    b"\x1b[2J\x1b]0;x\x07",  # escapes of C0
    b"\r\n2026 [error] x",  # ends of lines
    b"\xc2\x9b31m\xc2\x85",  # escapes of C1
    "\u202ebil\u2066\u2028".encode(),  # bidi
    b"\xff\xfe\xed\xa0\x80",  # no UTF-8, half a surrogate pair
    b'"},{"a":"\\"%s{}',
    b"'; DROP TABLE x",
    b"x" * _NAME_BYTES,  # without an end
)
_METER = struct.pack("!IH50x", 1, 56)
_ECHO = message(MessageType.ECHO_REQUEST)
_LONG_ECHO = message(MessageType.ECHO_REQUEST, bytes(60_000))
_ERROR = message(MessageType.ERROR, b"\0\1\0\1" + bytes(64))
_SHORT_ERROR = message(MessageType.ERROR, b"\0\1\0\1")
_PORT_DESC = multipart_reply(MultipartType.PORT_DESC, b"".join(map(port, range(1, 1001))))

ATTACKS: dict[str, Attack] = {
    "none": Attack("nothing", idle),
    "stops reading": Attack("asks for echoes of 60 kB, reads none", stop_reading),
    "20,000 ports": Attack("reports 20,000 ports, reads no hellos", many_ports),
    "hostile names": Attack("names ports by escapes, ends of lines and bidi overrides", hostile_names),
    "claims a dpid": Attack("says that it is another switch, and leaves", claim_dpid),
    "claims a dpid, stays": Attack("says that it is another switch, and acts like it", claim_dpid_and_stay),
    "unknown types": Attack("types of message that there are not", _flood(message(_UNKNOWN_TYPE) * _PART_BATCH)),
    "unasked replies": Attack("descriptions of 1,000 ports that nobody asked for", _flood(_PORT_DESC)),
    "errors": Attack("errors before any handshake", _flood(_ERROR * _PART_BATCH)),
    "handshake's errors": Attack("short errors within the handshake", errors_in_handshake),
    "stranger's errors": Attack("errors of a switch not configured", _flood(_ERROR * _PART_BATCH, UNMANAGED_DPID)),
    "switch's errors": Attack("errors of a switch under control", _flood(_ERROR * _PART_BATCH, ready=True)),
    "switch's replies": Attack("replies that nobody asked it for", _flood(_PORT_DESC, ready=True)),
    "switch's frames": Attack("packet-ins from 200 hosts", _flood(_packet_in(), ready=True)),
    "unknown hosts": Attack(
        "a tenant sends to addresses that nobody has", hostile_hosts.tenant(hostile_hosts.unknown_destinations)
    ),
    "group sources": Attack("the same, from addresses of groups", hostile_hosts.tenant(hostile_hosts.from_groups)),
    "broadcast sources": Attack(
        "the same, from everybody's address", hostile_hosts.tenant(hostile_hosts.broadcast_source)
    ),
    "ARP storm": Attack(
        "a tenant asks everybody, from 65,536 addresses", hostile_hosts.tenant(hostile_hosts.arp_storm)
    ),
    "neighbour storm": Attack("the same by Neighbor Solicitations", hostile_hosts.tenant(hostile_hosts.solicit_all)),
    "MAC flapping": Attack("eight addresses move between two ports", hostile_hosts.tenant(hostile_hosts.move)),
    "claimed hosts": Attack(
        "one port has ever new addresses, another one claims them", hostile_hosts.tenant(hostile_hosts.claim)
    ),
    "endless reply": Attack("a reply that never ends", endless_reply),
    "7 MB of meters": Attack("counters of 120,000 meters in each interval", _bloat(MultipartType.METER, _METER)),
    "7 MB of ports": Attack("counters of 60,000 ports in each interval", _bloat(MultipartType.PORT_STATS, bytes(112))),
    "relayed hellos": Attack("says that its 1,000 ports hear each other, and that they go down", relay_hellos),
    "no counters": Attack("confirms all, and never tells its counters", silent_when_polled),
    "idle connections": Attack("500 connections that say nothing", idle_connections),
    "dribble": Attack("200 connections, a byte each now and then", dribble),
    "crowd of echoes": Attack("64 connections ask for echoes before any handshake", _crowd(_ECHO * 200, 1600)),
    "crowd of bytes": Attack("64 connections send single bytes as fast as they can", _crowd(_LONG_ECHO, 1)),
    "crowd of strangers": Attack(
        "64 switches not configured ask for echoes", _crowd(_ECHO * 200, 1600, UNMANAGED_DPID)
    ),
    "strangers": Attack("switches not configured, each with another dpid", strangers),
    "unknown versions": Attack("a version that there is not", unknown_versions),
    "comes and goes": Attack("is brought up and leaves, again and again", come_and_go),
    "bodies held open": Attack(
        "120 bodies of 4 MB of REST, but for their ends", clients.bodies_held_open, on_rest=True
    ),
}


def main(name: str, host: str, port: str, seconds: str) -> None:
    """Do an attack, with the processor time that nobody else wants: an attacker has a machine of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(19)
    ATTACKS[name].run((host, int(port)), time.monotonic() + float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
