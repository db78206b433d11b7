"""Frames between nodes over loopback: who is believed, what is bounded, and what heals by itself."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest
import zmq
from prometheus_client import CollectorRegistry, generate_latest
from support.paths import ROOT

from apps.cluster import peer_transport
from apps.cluster.metrics import LinksMetrics
from apps.cluster.peer_transport import QUEUE_LENGTH, RECONNECT_AFTER, UNCONFIRMED_MS, PeerTransport
from controller.errors import InvalidValueError

TIMEOUT_S = 20.0
TCP_USER_TIMEOUT = 18  # of Linux
LARGE = 1 << 20


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return f"127.0.0.1:{sock.getsockname()[1]}"


class Node:
    """One node's links, and what has come."""

    def __init__(self, name: str, address: str | None = None) -> None:
        self.name, self.address = name, address or free_address()
        self.links = PeerTransport(self.address, most_octets=LARGE)
        self.heard: list[tuple[str, bytes]] = []

    def listing(self) -> tuple[str, str]:
        return self.address, self.links.public_key

    def know(self, *others: Node) -> None:
        self.links.set_peers({other.name: other.listing() for other in others})

    def round(self) -> None:
        self.heard += self.links.receive()


@pytest.fixture
def node() -> Iterator[Callable[..., Node]]:
    """Makes nodes, and closes them at the end."""
    with ExitStack() as stack:

        def make(name: str, address: str | None = None) -> Node:
            made = Node(name, address)
            stack.callback(made.links.close)
            return made

        yield make


def until(condition: Callable[[], object], *nodes: Node) -> None:
    """Let these nodes receive until a condition is true."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        for one in nodes:
            one.round()
        time.sleep(0.005)


@pytest.fixture
def pair(node: Callable[..., Node]) -> tuple[Node, Node]:
    """Two nodes that know each other, and have heard each other."""
    here, peer = node("n1"), node("n2")
    introduce(here, peer)
    return here, peer


def introduce(here: Node, *peers: Node) -> None:
    """Let a node and its peers know each other, and nobody else; wait until each has heard the other."""
    here.know(*peers)
    for peer in peers:
        peer.know(here)
    for peer in peers:
        settle(here, peer)


def say(sender: Node, data: bytes, here: Node) -> None:
    """Send a frame to a node, and wait until that has heard something."""
    until(lambda: sender.links.send(here.name, data), here, sender)
    until(lambda: here.heard, here, sender)


def settle(one: Node, other: Node) -> None:
    """Wait until a frame has gone each way."""
    until(lambda: one.links.send(other.name, b"first"), one, other)
    until(lambda: other.links.send(one.name, b"first"), one, other)
    until(lambda: one.heard and other.heard, one, other)
    one.heard.clear()
    other.heard.clear()


def test_three_nodes_hear_each_other_by_name_and_in_order(node: Callable[..., Node]) -> None:
    nodes = [node(name) for name in ("n1", "n2", "n3")]
    for one in nodes:
        one.know(*(other for other in nodes if other is not one))
    threads = threading.active_count()
    for one, other in ((nodes[0], nodes[1]), (nodes[0], nodes[2]), (nodes[1], nodes[2])):
        settle(one, other)
    for number in range(20):
        for one in nodes:
            for other in nodes:
                if one is not other:
                    frame = f"{one.name} {number}".encode()
                    until(lambda one=one, other=other, frame=frame: one.links.send(other.name, frame), *nodes)
    until(lambda: all(len(one.heard) == 40 for one in nodes), *nodes)
    for one in nodes:
        for other in nodes:
            said = [data for name, data in one.heard if name == other.name]
            assert said == ([] if one is other else [f"{other.name} {number}".encode() for number in range(20)])
    assert threading.active_count() == threads
    traffic = nodes[0].links.traffic["n2"]
    assert (traffic.sent, traffic.received, traffic.reconnects) == (21, 21, 0)
    assert traffic.received_octets == sum(len(data) for name, data in nodes[0].heard if name == "n2") + len(b"first")


def test_a_name_is_believed_only_for_its_key(node: Callable[..., Node], pair: tuple[Node, Node]) -> None:
    here, peer = pair
    thief = node("n2")  # it knows where n1 is and n1's key, and calls itself as n2
    thief.know(here)
    for _ in range(5):
        thief.links.send("n1", b"stolen")
        until(lambda: True)
    until(lambda: here.links.rejections["key"], here, thief)
    assert not thief.links.send("n1", b"stolen")
    say(peer, b"mine", here)
    assert here.heard == [("n2", b"mine")]


def test_without_curve_nobody_gets_in(pair: tuple[Node, Node]) -> None:
    here, peer = pair
    with zmq.Context() as context, context.socket(zmq.PUSH) as plain:
        plain.linger = 0
        plain.connect(f"tcp://{here.address}")
        with suppress(zmq.Again):
            plain.send(b"no key", zmq.NOBLOCK)
        until(lambda: here.links.rejections["handshake"], here)
    say(peer, b"mine", here)
    assert here.heard == [("n2", b"mine")]


def test_a_peer_that_never_reads_costs_the_others_nothing(node: Callable[..., Node]) -> None:
    here, deaf, peer = node("n1"), node("n2"), node("n3")
    introduce(here, deaf, peer)
    frame = bytes(LARGE)
    until(lambda: not here.links.send("n2", frame))  # its queues, and those of TCP, are full
    assert here.links.traffic["n2"].sent < 64  # whatever TCP holds; it is not without bound
    for number in range(QUEUE_LENGTH * 10):
        until(lambda: here.links.send("n3", b"still"), peer)
        until(lambda number=number: len(peer.heard) > number, peer)
    assert here.links.traffic["n2"].unsent > 0
    until(lambda: here.links.send("n2", b"again") and deaf.heard, deaf)


def test_a_frame_that_is_too_large_is_neither_sent_nor_taken(pair: tuple[Node, Node]) -> None:
    here, peer = pair
    assert not here.links.send("n2", bytes(LARGE + 1))
    assert here.links.traffic["n2"].unsent > 0
    until(lambda: here.links.send("n2", bytes(LARGE)), peer)
    until(lambda: peer.heard, peer)
    assert [len(data) for _, data in peer.heard] == [LARGE]
    peer.links._most_octets = LARGE + 100  # it has another limit
    peer.links.set_peers({})
    peer.know(here)
    until(lambda: peer.links.send("n1", bytes(LARGE + 100)), here, peer)

    def sent_again() -> bool:  # the connection ends, and what is on its way with it
        peer.links.send("n1", b"small")
        return bool(here.heard)

    until(sent_again, here, peer)
    assert {data for _, data in here.heard} == {b"small"}


def test_a_call_takes_a_bounded_number_of_frames_and_octets(pair: tuple[Node, Node]) -> None:
    here, peer = pair
    for _ in range(4):
        until(lambda: peer.links.send("n1", bytes(LARGE // 2)), peer)
    taken: list[int] = []

    def receive() -> bool:
        taken.append(sum(len(data) for _, data in here.links.receive()))
        return sum(taken) == 2 * LARGE

    until(receive)
    assert max(taken) <= LARGE
    for _ in range(3):
        until(lambda: peer.links.send("n1", b"x"), peer)
    counts: list[int] = []

    def receive_one() -> bool:
        counts.append(len(here.links.receive(max_messages=1)))
        return sum(counts) == 3

    until(receive_one)
    assert max(counts) == 1


def test_a_peer_that_starts_again_with_another_key_is_heard_once_it_is_listed(node: Callable[..., Node]) -> None:
    here, before = node("n1"), node("n2")
    introduce(here, before)
    before.links.close()
    after = node("n2", before.address)
    after.know(here)
    until(lambda: here.links.rejections["key"], here, after)
    assert not here.heard
    here.know(after)
    settle(here, after)
    assert after.links.traffic["n1"].reconnects > 0


def test_a_peer_that_was_removed_is_a_stranger_on_a_connection_that_stands(node: Callable[..., Node]) -> None:
    here, gone, peer = node("n1"), node("n2"), node("n3")
    introduce(here, gone, peer)
    here.know(peer)
    until(lambda: gone.links.send("n1", b"still here"), gone)
    until(lambda: here.links.rejections["frame"], here)
    say(peer, b"me too", here)
    assert here.heard == [("n3", b"me too")]
    assert not here.links.send("n2", b"x")
    assert set(here.links.traffic) == {"n3"}


def test_an_address_at_which_somebody_else_answers_first_heals(node: Callable[..., Node]) -> None:
    here, address = node("n1"), free_address()
    key = PeerTransport(free_address())
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as impostor:
        here.links.set_peers({"n2": (address, key.public_key)})
        connection, _ = impostor.accept()
        with closing(connection), suppress(ConnectionError):
            connection.sendall(b"220 mail.example.com ESMTP\r\n" * 10)
            while connection.recv(1000):
                pass
    key.close()
    peer = node("n2", address)
    introduce(here, peer)


def test_floods_of_connections_are_bounded_counted_and_leave_peers_alone(
    node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 20
    monkeypatch.setattr(peer_transport, "MAX_UNAUTHENTICATED", most)
    here, peer = node("n1"), node("n2")
    introduce(here, peer)
    host, _, port = here.address.rpartition(":")
    before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as stack:
        crowd = []
        for _ in range(10 * most):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex((host, int(port)))
            crowd.append(sock)
            here.round()
        until(lambda: here.links.rejections["flood"], here)
        for sock in crowd[::2]:
            with suppress(OSError):
                sock.send(b"GET / HTTP/1.1\r\n\r\n" * 10)
        held = len(os.listdir("/proc/self/fd")) - before - len(crowd)
        assert held < 4 * most  # as many again may have stood in the kernel's queue
        say(peer, b"through", here)
        assert here.heard == [("n2", b"through")]
    late = node("n3")
    late.know(here)
    here.know(peer, late)
    settle(here, late)  # the listener is open again
    assert here.links.rejections["handshake"] > 0


def test_the_kernel_gives_up_on_a_peer_that_confirms_nothing(pair: tuple[Node, Node]) -> None:
    here, peer = pair
    ports = [int(one.address.rpartition(":")[2]) for one in (here, peer)]
    limits_ms = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as sock:
            if sock.family == socket.AF_INET and sock.getpeername()[1] in ports:
                limits_ms.append(sock.getsockopt(socket.IPPROTO_TCP, TCP_USER_TIMEOUT))
    assert limits_ms == [UNCONFIRMED_MS] * 2


ADDRESSES = ["n2.example.com:6654", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", ""]


@pytest.mark.parametrize(
    ("key", "address", "words"),
    [
        *(("of n2", address, "IP address") for address in ADDRESSES),
        *((key, "127.0.0.1:1", r"peers\.n2") for key in ("", "x" * 39, "~" * 40, "#" * 40, "ä" * 40)),
        ("of n1", "127.0.0.1:1", "is the key of another node"),
        ("of n3", "127.0.0.1:1", "is the key of another node"),
    ],
)
def test_a_peer_has_an_address_of_numbers_and_a_key_of_its_own(
    node: Callable[..., Node], key: str, address: str, words: str
) -> None:
    nodes = {f"of {name}": node(name) for name in ("n1", "n2", "n3")}
    here, third = nodes["of n1"], nodes["of n3"]
    key = nodes[key].links.public_key if key in nodes else key
    with pytest.raises(InvalidValueError, match=words):
        here.links.set_peers({"n3": third.listing(), "n2": (address, key)})
    assert here.links.traffic == {}


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_own_address_is_of_numbers(address: str) -> None:
    with pytest.raises(InvalidValueError, match="IP address"):
        PeerTransport(address)


def test_a_peer_that_is_not_there_is_tried_again_and_again(node: Callable[..., Node]) -> None:
    here, key = node("n1"), node("n3").links.public_key
    here.links.set_peers({"n2": (free_address(), key)})
    for _ in range(3 * RECONNECT_AFTER):
        assert not here.links.send("n2", b"x")
    assert here.links.traffic["n2"].reconnects == 3
    assert here.links.traffic["n2"].unsent == 3 * RECONNECT_AFTER


def test_an_ipv6_address_works(node: Callable[..., Node]) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as sock:
            address = f"[::1]:{sock.getsockname()[1]}"
    except OSError:
        pytest.skip("this machine has no IPv6")
    here, peer = node("n1", address), node("n2")
    introduce(here, peer)


def test_the_counters_are_metrics(pair: tuple[Node, Node]) -> None:
    here, _ = pair
    here.links.rejections["key"] = 3
    registry = CollectorRegistry()
    registry.register(LinksMetrics(here.links))
    page = generate_latest(registry).decode()
    assert 'dets_cluster_messages_total{peer="n2",result="sent"} 1.0' in page
    assert 'dets_cluster_messages_total{peer="n2",result="received"} 1.0' in page
    assert 'dets_cluster_message_bytes_total{direction="sent",peer="n2"} 5.0' in page
    assert 'dets_cluster_rejected_connections_total{cause="key"} 3.0' in page
    assert 'dets_cluster_rejected_connections_total{cause="flood"} 0.0' in page


PAUSED = """
import sys, time
from apps.cluster.peer_transport import PeerTransport
links = PeerTransport(sys.argv[1])
print(links.public_key, flush=True)
links.set_peers({"n1": (sys.argv[2], sys.stdin.readline().strip())})
while not links.receive():
    time.sleep(0.01)
print("heard", flush=True)
sys.stdin.readline()  # receives nothing meanwhile
for _ in range(100):
    links.receive()
    time.sleep(0.01)
print("goes on", flush=True)
"""


def test_a_node_that_takes_nothing_while_its_peer_goes_lives_on(node: Callable[..., Node]) -> None:
    """With heartbeats ZeroMQ aborts such a process."""
    here, there = node("n1"), free_address()
    command = [sys.executable, "-c", PAUSED, there, here.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        key = process.stdout.readline().strip()
        here.links.set_peers({"n2": (there, key)})
        process.stdin.write(f"{here.links.public_key}\n")
        process.stdin.flush()
        until(lambda: here.links.send("n2", b"first") and select.select([process.stdout], [], [], 0)[0], here)
        assert process.stdout.readline() == "heard\n"
        for _ in range(50):
            here.links.send("n2", b"x" * 1000)
            time.sleep(0.002)
        here.links.set_peers({})
        time.sleep(0.5)
        with suppress(BrokenPipeError):
            process.stdin.write("go on\n")
            process.stdin.flush()
        assert process.stdout.readline() == "goes on\n"
        assert process.wait(TIMEOUT_S) == 0
