"""What waits for a peer to read it is bounded, kept in order, sent in few calls; one reader serves many sockets."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import pytest
from ryu.lib import hub

from apps.runtime.connection import connection_io
from apps.runtime.connection.connection_io import (
    MAX_UNREAD_BYTES,
    MAX_UNREAD_UNMANAGED_BYTES,
    SendQueue,
    SharedReader,
)
from apps.runtime.sockets.socket_reader import ReceivedBytes
from controller.openflow.constants import VERSION, MessageType


class Socket:
    """A socket that keeps what each call sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def sendall(self, data: memoryview) -> None:
        self.sent.append(bytes(data))


def test_short_messages_are_sent_in_one_call_and_a_long_one_by_itself_in_order():
    sock = Socket()
    queue = SendQueue(sock)
    for number in range(100):
        assert queue.put(bytes([number]) * 8)
    queue.put(b"b" * 100_000)
    queue.put(b"c" * 8, last=True)
    queue.send_all()
    assert sock.sent == [b"".join(bytes([number]) * 8 for number in range(100)), b"b" * 100_000, b"c" * 8]
    assert queue.octets == 0


def test_nothing_is_sent_after_the_end():
    sock = Socket()
    queue = SendQueue(sock)
    queue.put(b"never sent")
    queue.end()
    queue.send_all()
    assert sock.sent == []


class Full:
    """A plain socket that takes so many bytes at once, or is full (None)."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.taken = b""

    def send(self, data: bytes) -> int:
        if self.most is None:
            raise BlockingIOError
        self.taken += data[: self.most]
        return len(data[: self.most])


def test_what_a_plain_socket_takes_at_once_does_not_wait():
    sock, plain = Socket(), Full(100)
    queue = SendQueue(sock, plain)
    assert queue.put(b"a" * 60)
    assert (plain.taken, queue.octets) == (b"a" * 60, 0)
    assert queue.put(b"b" * 150)
    assert queue.octets == 50
    assert queue.put(b"c" * 10, last=True)  # behind what waits, though the socket would take it
    queue.send_all()
    assert plain.taken == b"a" * 60 + b"b" * 100
    assert b"".join(sock.sent) == b"b" * 50 + b"c" * 10


@pytest.mark.parametrize("plain", [None, Full(None)])
def test_a_stranger_leaves_less_unread_than_a_switch(plain: Full | None):
    queue = SendQueue(Socket(), plain)
    assert queue.put(bytes(MAX_UNREAD_UNMANAGED_BYTES))
    assert not queue.put(b"x")
    queue = SendQueue(Socket(), plain)
    queue.raise_limit()
    assert queue.put(bytes(MAX_UNREAD_BYTES))
    assert not queue.put(b"x")


def test_the_last_bytes_end_the_queue_though_they_went_at_once():
    queue = SendQueue(Socket(), Full(100))
    assert queue.put(b"bye", last=True)
    queue.send_all()
    assert queue.closing


class Watched:
    """Three sockets with one reader, and what has come at each; a socket that hears "stop" is left alone."""

    def __init__(self) -> None:
        self.reader, self.got = SharedReader(), []
        self.pairs = [socket.socketpair() for _ in range(3)]
        self.mine, self.others = zip(*self.pairs, strict=True)
        for mine in self.mine:
            mine.setblocking(False)
            self.watch(mine)

    def watch(self, mine: socket.socket) -> None:
        self.reader.watch(mine.fileno(), partial(self._on_arrival, self.mine.index(mine)))

    def _on_arrival(self, number: int, arrival: ReceivedBytes) -> bool:
        self.got.append((number, bytes(arrival.octets)))
        return bytes(arrival.octets) != b"stop"

    def close(self) -> None:
        for mine, other in self.pairs:
            self.reader.forget(mine.fileno())
            mine.close()
            other.close()


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.close()


def test_one_reader_serves_all_sockets_until_they_are_to_be_left_alone(watched: Watched):
    watched.reader.forget(watched.mine[2].fileno())
    for text in (b"one", b"stop", b"unread"):
        for other in watched.others:
            other.send(text)
        for _ in range(3):
            hub.sleep(0.01)
    assert sorted(watched.got) == [(0, b"one"), (0, b"stop"), (1, b"one"), (1, b"stop")]
    watched.watch(watched.mine[0])
    hub.sleep(0.01)
    hub.sleep(0.01)
    assert watched.got[-1] == (0, b"unread")


def test_what_comes_soon_after_a_look_is_read_in_the_next_one_together(watched: Watched, monkeypatch):
    gathered = hub.Event()
    monkeypatch.setattr(connection_io, "hub", SimpleNamespace(spawn=hub.spawn, sleep=lambda _seconds: gathered.wait()))
    watched.others[0].send(b"first")
    while not watched.got:
        hub.sleep(0.0)
    for _ in range(2):
        for other in watched.others[1:]:
            other.send(b"x")
        hub.sleep(0.0)
    assert watched.got == [(0, b"first")]
    gathered.set()
    while len(watched.got) < 3:
        hub.sleep(0.01)
    assert sorted(watched.got[1:]) == [(1, b"xx"), (2, b"xx")]


def test_once_all_have_answered_nobody_looks_again(watched: Watched, monkeypatch):
    """What else comes is told by the hub; what is not an answer may be a part of something longer."""
    slept: list[float] = []
    monkeypatch.setattr(connection_io, "hub", SimpleNamespace(spawn=lambda _run: None, sleep=slept.append))
    reader, (first, second, _) = watched.reader, watched.others
    reader.barriers.start([mine.fileno() for mine in watched.mine[:2]], [1, 2])
    done = [struct.pack("!BBHI", VERSION, MessageType.BARRIER_REPLY, 8, xid) for xid in (1, 2)]
    assert not reader._poll(), "nothing is there"
    first.send(done[0])
    assert reader._poll(), "the other one's is to come"
    second.send(done[1])
    assert not reader._poll()
    assert reader.barriers.is_over
    first.send(done[0])
    assert reader._poll()
