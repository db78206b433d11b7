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
_ROOM_BYTES, _ROOM_REPLIES = 4 * READ_BYTES, 64 * MESSAGE_BATCH
_MULTIPART, _MULTIPART_BYTES = int(MessageType.MULTIPART_REPLY), 16
_KINDS = sum(1 << kind for kind in REPLIES)


class ReceivedBytes(NamedTuple):
    """The received bytes of a socket, empty if it was closed; valid until the next read.

    ``replies`` are complete messages at the beginning: type, xid, and range. ``only_replies`` tells whether nothing
    else follows, except an incomplete message.
    """

    fileno: int
    octets: memoryview
    replies: Sequence[Sequence[int]]
    only_replies: bool


class SocketReader:
    """Reads many sockets without waiting; replies to bulk requests go to these."""

    def __init__(self, meters: BulkMeterStats, barriers: BulkBarrier) -> None:
        self._calls = meters, barriers
        self._room = (
            None if native_sockets.library is None else native_sockets.ReceiveBuffer(_ROOM_BYTES, _ROOM_REPLIES)
        )
        self._octets = memoryview(bytearray(READ_BYTES if self._room is None else 0))

    def receive(self, filenos: Sequence[int], now_s: float) -> Iterator[ReceivedBytes]:
        """Yield the other received bytes of each readable socket, at most READ_BYTES; the rest stays."""
        if self._room is not None:
            return self._receive_at_once(self._room, filenos, now_s)
        return self._receive(filenos)

    def _receive(self, filenos: Sequence[int]) -> Iterator[ReceivedBytes]:
        """Yield what each socket has received, one call for each."""
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
        self, room: native_sockets.ReceiveBuffer, filenos: Sequence[int], now_s: float
    ) -> Iterator[ReceivedBytes]:
        """Yield what each socket has received; one native call reads as many as fit the buffer."""
        what = READ_BYTES, ofp.VERSION, _KINDS, MESSAGE_BATCH
        meters, barriers = self._calls
        while filenos:
            rolls = (*meters.columns, *barriers.columns)
            arrivals, replies = room.receive(filenos, rolls, now_s, *what)
            first = start = 0
            for fileno, (length, count, only_replies) in zip(filenos, arrivals, strict=False):
                if length >= 0:
                    octets = room.octets[start : start + length]
                    yield ReceivedBytes(fileno, octets, replies[first : first + count], bool(only_replies))
                    start, first = start + length, first + count
            filenos = filenos[len(arrivals) :]


def replies_in(octets: memoryview) -> tuple[list[tuple[int, int, int, int]], bool]:
    """Return the complete replies at the beginning, at most MESSAGE_BATCH, and whether there is nothing else."""
    found: list[tuple[int, int, int, int]] = []
    start, end = 0, len(octets)
    for _ in range(MESSAGE_BATCH):
        if end - start < HEADER.size:
            return found, True
        version, kind, length, xid = HEADER.unpack_from(octets, start)
        if length > end - start:
            return found, True
        least = _MULTIPART_BYTES if kind == _MULTIPART else HEADER.size
        if version != ofp.VERSION or kind not in REPLIES or length < least:
            return found, False
        found.append((kind, xid, start, start + length))
        start += length
    return found, False
