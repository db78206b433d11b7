"""Received bytes of switches' sockets, with the complete replies at the beginning separated.

A reply is separated by its header only; matching it to a request, and its limits, are up to the connection
(docs/adr/0150).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from apps.runtime.sockets import native as native_sockets
from apps.runtime.sockets.bulk_request import BulkBarrier, BulkMeterStats
from controller.openflow import constants as ofp
from controller.openflow.bounded_reader import HEADER
from controller.openflow.constants import MessageType

REPLIES = frozenset(
    {
        *(MessageType.ECHO_REPLY, MessageType.FEATURES_REPLY, MessageType.GET_CONFIG_REPLY),
        *(MessageType.MULTIPART_REPLY, MessageType.BARRIER_REPLY, MessageType.QUEUE_GET_CONFIG_REPLY),
        *(MessageType.ROLE_REPLY, MessageType.GET_ASYNC_REPLY),
    }
)
# Messages of one connection that are handled before other greenlets run.
MESSAGE_BATCH = 32
READ_BYTES = 256 << 10
_BUFFER_BYTES, _BUFFER_REPLIES = 4 * READ_BYTES, 64 * MESSAGE_BATCH
_MULTIPART, _MULTIPART_BYTES = int(MessageType.MULTIPART_REPLY), 16  # length of the header of a multipart reply
_KINDS = sum(1 << kind for kind in REPLIES)  # the types of replies, one bit each


class ReceivedBytes(NamedTuple):
    """The received bytes of a socket, empty if the socket was closed; valid until the next read.

    ``replies`` are the complete replies at the beginning: (type, xid, start, end in ``octets``). ``only_replies`` is
    whether nothing else follows, except an incomplete message.
    """

    fileno: int
    octets: memoryview
    replies: Sequence[Sequence[int]]
    only_replies: bool


class SocketReader:
    """Reads many sockets without waiting. Replies to the two bulk requests are decoded into their columns."""

    def __init__(self, meters: BulkMeterStats, barriers: BulkBarrier) -> None:
        self._bulk_requests = meters, barriers
        self._room = (
            None if native_sockets.library is None else native_sockets.ReceiveBuffer(_BUFFER_BYTES, _BUFFER_REPLIES)
        )
        self._octets = memoryview(bytearray(READ_BYTES if self._room is None else 0))

    def receive(self, filenos: Sequence[int], now_s: float) -> Iterator[ReceivedBytes]:
        """Yield the bytes of each readable socket that are no bulk replies, at most READ_BYTES per socket.

        More bytes stay in the socket. ``now_s`` is recorded as the arrival time of bulk replies.
        """
        if self._room is not None:
            return self._receive_at_once(self._room, filenos, now_s)
        return self._receive(filenos)

    def _receive(self, filenos: Sequence[int]) -> Iterator[ReceivedBytes]:
        """Yield the received bytes of each socket, with one system call for each; without native code."""
        for fileno in filenos:
            try:
                size_bytes = os.readv(fileno, [self._octets])
            except BlockingIOError:
                continue
            except OSError:
                size_bytes = 0
            octets = self._octets[:size_bytes]
            yield ReceivedBytes(fileno, octets, *replies_in(octets))

    def _receive_at_once(
        self, buffer: native_sockets.ReceiveBuffer, filenos: Sequence[int], now_s: float
    ) -> Iterator[ReceivedBytes]:
        """Yield the received bytes of each socket; one native call reads as many sockets as fit the buffer."""
        limits = READ_BYTES, ofp.VERSION, _KINDS, MESSAGE_BATCH
        meters, barriers = self._bulk_requests
        while filenos:
            bulk_columns = (*meters.columns, *barriers.columns)
            arrivals, replies = buffer.receive(filenos, bulk_columns, now_s, *limits)
            first_reply = start = 0
            for fileno, (length, count, only_replies) in zip(filenos, arrivals, strict=False):
                if length >= 0:  # -1: all bytes of the socket were bulk replies
                    octets = buffer.octets[start : start + length]
                    own_replies = replies[first_reply : first_reply + count]
                    yield ReceivedBytes(fileno, octets, own_replies, bool(only_replies))
                    start, first_reply = start + length, first_reply + count
            filenos = filenos[len(arrivals) :]


def replies_in(octets: memoryview) -> tuple[list[tuple[int, int, int, int]], bool]:
    """Return the complete replies at the beginning, at most MESSAGE_BATCH, and whether nothing else follows.

    A reply is (type, xid, start, end). An incomplete message may follow.
    """
    replies: list[tuple[int, int, int, int]] = []
    start, end = 0, len(octets)
    for _ in range(MESSAGE_BATCH):
        if end - start < HEADER.size:
            return replies, True
        version, kind, length, xid = HEADER.unpack_from(octets, start)
        if length > end - start:
            return replies, True
        min_bytes = _MULTIPART_BYTES if kind == _MULTIPART else HEADER.size
        if version != ofp.VERSION or kind not in REPLIES or length < min_bytes:
            return replies, False
        replies.append((kind, xid, start, start + length))
        start += length
    return replies, False
