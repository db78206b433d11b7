"""The controller's requests and what answers them: parts are joined, failures named, replies bounded."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from support.openflow_bytes import multipart_reply

from apps.runtime.connection.connection_limits import EvictionReason
from apps.runtime.connection.switch_connection import MAX_REPLY_BYTES, MAX_XID, SwitchConnection
from controller.errors import ProtocolError
from controller.openflow.constants import MULTIPART_REPLY_MORE, MessageType


class Peer:
    """The socket's side, which keeps what is sent."""

    def __init__(self) -> None:
        self.id, self.address, self.xid = 1, ("127.0.0.1", 1), 41
        self.eviction_reason: EvictionReason | None = None
        self.gate = None
        self.sent: list[bytes] = []

    def keep(self) -> None: ...

    def close(self) -> None: ...

    def evict(self, reason: EvictionReason) -> None:
        self.eviction_reason = reason

    def enqueue(self, data: bytes) -> bool:
        self.sent.append(data)
        return True

    fileno = -1


def encode(xid: int) -> bytes:
    return struct.pack("!I", xid)


def part(xid: int, body: bytes, flags: int = 0) -> tuple[int, int, bytes]:
    return int(MessageType.MULTIPART_REPLY), xid, multipart_reply(xid, body, flags=flags)


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def connection(peer: Any) -> SwitchConnection:
    return SwitchConnection(peer, lambda: 7.0)


def test_the_parts_of_a_reply_are_joined(connection: SwitchConnection, peer: Peer) -> None:
    reply = connection.ask(encode)
    assert peer.sent == [encode(42)]
    assert not connection.accept_reply(*part(99, b"of somebody else"))
    assert connection.accept_reply(*part(42, b"one ", MULTIPART_REPLY_MORE))
    assert reply.wait(0.0) is None
    assert connection.accept_reply(*part(42, b"two"))
    assert reply.wait(0.0) == b"one two"
    assert reply.received_s == 7.0


def test_transaction_ids_begin_again_after_the_last(connection: SwitchConnection, peer: Peer) -> None:
    peer.xid = MAX_XID - 1
    assert [reply.xid for reply in connection.ask_all(encode, encode, encode)] == [MAX_XID, 0, 1]


def test_a_refused_request_raises_its_reason(connection: SwitchConnection) -> None:
    reply = connection.ask(encode)
    assert connection.fail(reply.xid, ProtocolError("METER_MOD_FAILED"))
    with pytest.raises(ProtocolError, match="METER_MOD_FAILED"):
        reply.wait(0.0)
    assert not connection.fail(reply.xid, ProtocolError("once more"))


def test_a_forgotten_reply_is_taken_and_dropped(connection: SwitchConnection) -> None:
    reply = connection.ask(encode)
    connection.forget(reply)
    assert connection.accept_reply(*part(reply.xid, b"late"))
    assert reply.wait(0.0) is None


def test_replies_without_end_are_cut_off_and_freed(connection: SwitchConnection, peer: Peer) -> None:
    reply = connection.ask(encode)
    body = bytes(60_000)
    for _ in range(MAX_REPLY_BYTES // len(body) + 1):
        connection.accept_reply(*part(reply.xid, body, MULTIPART_REPLY_MORE))
    assert peer.eviction_reason is EvictionReason.REPLY
    with pytest.raises(ProtocolError, match="longer than"):
        reply.wait(0.0)


def test_a_request_after_the_end_fails_at_once(connection: SwitchConnection) -> None:
    connection.close()
    with pytest.raises(ProtocolError, match="disconnected"):
        connection.ask(encode).wait(0.0)
