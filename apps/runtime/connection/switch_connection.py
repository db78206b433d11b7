"""The controller's side of a switch's connection: bytes out, replies and asynchronous messages in, as bytes.

Ryu's applications see the same connection as ``PeerDatapath`` (ryu_datapath.py), which offers every message here first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from ryu.lib import hub

from apps.runtime.connection.connection_limits import EvictionReason, MessageCounts
from apps.runtime.sockets import native as native_sockets
from apps.runtime.sockets.bulk_request import BulkBarrier
from controller.errors import ProtocolError
from controller.openflow.bounded_reader import HEADER, MAX_XID, Buffer
from controller.openflow.constants import MessageType
from controller.openflow.messages import encode_barrier_request
from controller.openflow.multipart import multipart_header

MAX_REPLY_BYTES = 16 << 20  # of all unfinished replies of one switch; 100,000 flow entries
_PART_BYTES = 100  # overhead of a part besides its body
_MULTIPART_REPLY, _ROLE_REPLY = int(MessageType.MULTIPART_REPLY), int(MessageType.ROLE_REPLY)
MAX_FORGOTTEN = 1000  # remembered xids of requests whose replies are no longer awaited


class Gate(Protocol):
    """Decides whether messages may go to a switch."""

    def allows(self, data: Buffer) -> bool:
        """Return whether these messages may be sent now."""


class Transport(Protocol):
    """The part of the socket's side that the connection needs; ``xid`` is the last transaction id used."""

    id: int
    address: Any
    xid: int
    eviction_reason: EvictionReason | None
    gate: Gate | None
    fileno: int  # the socket for replies to bulk requests; -1: none

    def keep(self) -> None:
        """Treat the peer as a switch under control."""

    def close(self) -> None:
        """Close the connection."""

    def evict(self, reason: EvictionReason) -> None:
        """Close the connection of a switch that misbehaves."""

    def enqueue(self, data: Buffer) -> bool:
        """Send messages without waiting; return whether the connection is open."""

    def direct_socket(self) -> int | None:
        """Return the socket for a bulk request, if it can be used now."""

    def direct_send_socket(self) -> int | None:
        """Return the socket for direct writes, if they are equivalent to ``enqueue``: no gate, an empty queue."""

    def push_back(self, octets: bytes) -> None:
        """Return the beginning of a message that a bulk request has read: the rest is read normally."""


@dataclass(slots=True)
class Reply:
    """The pending or complete reply to one request.

    ``parts`` are the bodies of its messages. ``begun`` is the beginning (METER_STATS) that a bulk request has decoded,
    if the request was one. ``arrived_s`` is when the latest part arrived, ``received_s`` when the last one did.
    ``octets`` is what the reply counts for in its connection's limit.
    """

    xid: int = 0
    received_s: float = 0.0
    arrived_s: float = -math.inf
    error: ProtocolError | None = None
    done: bool = False
    octets: int = 0
    parts: list[Buffer] = field(default_factory=list)
    begun: NDArray[np.void] | None = None
    _event: Any = None  # most replies arrive before a caller waits

    def wait(self, timeout_s: float) -> bytes | None:
        """Return the bodies of all parts, joined, or None if they are incomplete in time.

        Raises ProtocolError for a malformed reply or an error reply.
        """
        return b"".join(self.parts) if self.wait_complete(timeout_s) else None

    def wait_complete(self, timeout_s: float) -> bool:
        """Wait at most ``timeout_s``; return whether all ``parts`` have arrived. Raises errors as ``wait`` does."""
        if not self.done:
            if timeout_s <= 0.0:
                return False
            if self._event is None:
                self._event = hub.Event()
            if not self._event.wait(timeout_s):
                return False
        if self.error is not None:
            raise self.error
        return True

    def add(self, body: Buffer) -> int:
        """Add the body of a part; return the bytes that the part counts for in the connection's limit."""
        self.parts.append(body)
        self.octets += len(body) + _PART_BYTES
        return len(body) + _PART_BYTES

    def begin(self, meters: NDArray[np.void]) -> int:
        """Set the beginning that a bulk request has decoded; return the bytes that it counts for."""
        self.begun, self.octets = meters, meters.nbytes
        return meters.nbytes

    def fail(self, error: ProtocolError) -> None:
        """Fail with ``error``; received parts are freed at once."""
        self.error = error
        self.parts.clear()
        self.begun = None
        self.finish()

    def finish(self) -> None:
        """Mark the reply complete and wake the waiting greenlet."""
        self.done = True
        if self._event is not None:
            self._event.set()


class SwitchConnection:
    """The controller's side of one switch's connection, from the end of the handshake on.

    Nothing here waits for the switch. ``on_report`` gets (message type, message) of asynchronous messages, and returns
    whether it processed the message; ``on_close`` is called once, in its own greenlet, when the connection has ended.
    An argument ``barrier`` is a bulk request, for barriers or (BulkMeterStats) for meter counters.
    """

    def __init__(self, datapath: Transport, clock: Callable[[], float]) -> None:
        self._datapath = datapath
        self._clock = clock
        self._awaited: dict[int, Reply] = {}
        self._forgotten: dict[int, None] = {}
        self._held_octets = 0
        self._bulk_requests: dict[BulkBarrier, int | Reply] = {}  # the xid, or the reply, of the last bulk requests
        self.dpid: int = datapath.id
        self.address = datapath.address
        self.gate = datapath.gate
        self.count = MessageCounts()
        self.closed = False
        self.on_report: Callable[[int, bytes], bool] = lambda kind, message: True
        self.on_close: Callable[[], None] = lambda: None

    @property
    def cut_off(self) -> EvictionReason | None:
        """Why the controller closed the connection, None if it did not."""
        return self._datapath.eviction_reason

    def keep(self) -> None:
        """Mark the switch as under control: its limits are much higher than those of an unmanaged switch."""
        self._datapath.keep()

    def close(self) -> None:
        """End the controller's use of the connection: nothing more is sent, and pending replies fail."""
        if self.closed:
            return
        self.closed = True
        self.fall_back_all()
        for xid in list(self._awaited):
            self.fail(xid, ProtocolError("the switch disconnected"))
        hub.spawn(self.on_close)

    def disconnect(self, reason: EvictionReason | None = None) -> None:
        """Close the connection; the switch may reconnect. With a reason, unsent bytes are discarded."""
        if reason is None:
            self._datapath.close()
        else:
            self._datapath.evict(reason)

    def send(self, encode: Callable[[int], bytes], messages: int) -> None:
        """Send ``messages`` messages, which ``encode`` returns for the first of as many reserved xids."""
        self.count.sent += messages
        self._datapath.enqueue(encode(self.reserve(messages)))

    def ask(self, encode: Callable[[int], bytes]) -> Reply:
        """Send the request that ``encode`` returns for an xid; return its pending reply."""
        xid = self.reserve(1)
        return self.request(encode(xid), xid, 1)

    def ask_all(self, *encodes: Callable[[int], bytes]) -> tuple[Reply, ...]:
        """Send several requests at once; return their pending replies in the same order, in which they also arrive."""
        xids = [self.reserve(1) for _ in encodes]
        data = b"".join([encode(xid) for encode, xid in zip(encodes, xids, strict=True)])
        return self._send_awaiting(data, xids, len(xids))

    def request(self, data: Buffer, xid: int, messages: int) -> Reply:
        """Send messages, the last of which is a request with a reserved xid; return its pending reply."""
        return self._send_awaiting(data, (xid,), messages)[0]

    def _send_awaiting(self, data: Buffer, xids: Sequence[int], messages: int) -> tuple[Reply, ...]:
        """Send requests and return their pending replies, in the order of ``xids``."""
        replies = tuple([Reply(xid) for xid in xids])
        for reply in replies:
            self._awaited[reply.xid] = reply
        self.count.sent += messages
        self._datapath.enqueue(data)
        if self.closed:
            for xid in xids:
                self.fail(xid, ProtocolError("the switch disconnected"))
        return replies

    def call(self, barrier: BulkBarrier, data: Buffer, xid: int, messages: int) -> int | None:
        """Send messages, the last of which is part of a bulk request; return the socket (fileno) of its reply.

        Return None if nothing was sent, because the reply cannot be read as part of a bulk request now: use
        ``request``.
        """
        fileno = self._datapath.direct_socket()
        if fileno is None or self.closed:
            return None
        self._bulk_requests[barrier] = xid
        self.count.sent += messages
        self._datapath.enqueue(data)
        return None if self.closed else fileno

    def bulk_socket(self, barrier: BulkBarrier) -> tuple[int, int] | None:
        """Reserve an xid for a direct write of a bulk request; return the socket (fileno) and the xid.

        The caller must then write the request to this socket. Return None if the request cannot be written directly
        now: use ``call``, or ``request``.
        """
        fileno = None if self.closed else self._datapath.direct_send_socket()
        if fileno is None:
            return None
        xid = self._bulk_requests[barrier] = self.reserve(1)
        self.count.sent += 1
        return fileno, xid

    def send_rest(self, octets: bytes) -> None:
        """Send the rest of a request that a socket did not accept completely."""
        self._datapath.enqueue(octets)

    def fall_back(self, barrier: BulkBarrier) -> Reply:
        """Turn the pending part of a bulk request into a normal reply; return it, which may be complete by now."""
        request = self._bulk_requests[barrier]
        if not isinstance(request, int):  # it has fallen back before
            return request
        reply = self._bulk_requests[barrier] = Reply(request)
        begun, incomplete_message = barrier.partial_reply(self._datapath.fileno)
        if barrier.cancel(self._datapath.fileno):
            self._awaited[reply.xid] = reply
            if len(begun):
                self._held_octets += reply.begin(begun)
            if incomplete_message:
                self._datapath.push_back(incomplete_message)
        return reply

    def fall_back_all(self) -> None:
        """Turn the pending parts of all bulk requests into normal replies, as ``fall_back`` does."""
        for barrier in self._bulk_requests:
            self.fall_back(barrier)

    def _awaits(self, xid: int) -> Reply | None:
        """Return the pending reply of a request, or None; a bulk request's is turned into a normal one."""
        reply = self._awaited.get(xid)
        if reply is None and xid in self._bulk_requests.values():
            self.fall_back_all()
            reply = self._awaited.get(xid)
        return reply

    def barrier(self) -> Reply:
        """Send a barrier request; its reply confirms all messages before it."""
        return self.ask(encode_barrier_request)

    def forget(self, reply: Reply) -> None:
        """Stop waiting for a reply; if it still arrives, it is dropped."""
        if self._awaited.pop(reply.xid, None) is not None:
            self._held_octets -= reply.octets
            self._forgotten[reply.xid] = None
            if len(self._forgotten) > MAX_FORGOTTEN:
                del self._forgotten[next(iter(self._forgotten))]

    def fail(self, xid: int, error: ProtocolError) -> bool:
        """Fail the request with that xid; return whether it is one of the controller's, pending or forgotten."""
        reply = self._awaits(xid)
        if reply is None:
            return self._forgotten.pop(xid, False) is None  # None: it was there
        del self._awaited[xid]
        self._held_octets -= reply.octets
        reply.fail(error)
        return True

    def reserve(self, messages: int) -> int:
        """Return the first of ``messages`` reserved xids."""
        first = (self._datapath.xid + 1) & MAX_XID
        self._datapath.xid = (self._datapath.xid + messages) & MAX_XID
        return first

    def accept_reply(self, kind: int, xid: int, message: bytes) -> bool:
        """Process a message if it is a reply to a request of the controller; return whether it is."""
        reply = self._awaits(xid)
        if reply is None:
            return xid in self._forgotten  # it stays there: further parts of the reply may follow
        self.count.received += 1
        reply.arrived_s = self._clock()
        part = None
        try:
            if kind == _MULTIPART_REPLY:
                part = multipart_header(message)
        except ProtocolError as error:
            reply.error = error
        if part is not None:
            self._held_octets += reply.add(part.body)
        elif kind == _ROLE_REPLY:
            self._held_octets += reply.add(message[HEADER.size :])
        if self._held_octets > MAX_REPLY_BYTES:
            self.fail(xid, ProtocolError(f"its replies are longer than {MAX_REPLY_BYTES} bytes"))
            self.disconnect(EvictionReason.REPLY)
        elif part is None or not part.more:
            del self._awaited[xid]
            self._held_octets -= reply.octets
            reply.received_s = reply.arrived_s
            reply.finish()
        return True

    def report(self, kind: int, message: bytes) -> bool:
        """Pass on an asynchronous message; return whether it was processed."""
        self.count.received += 1
        self.count.errors += kind == MessageType.ERROR
        return not self.closed and self.on_report(kind, message)


def send_bulk_request(
    barrier: BulkBarrier, connections: Sequence[SwitchConnection], encode: Callable[[int], bytes]
) -> list[tuple[int, int] | None]:
    """Send each connection the request that ``encode`` returns for an xid, as part of a bulk request. Never waits.

    Return for each connection the socket (fileno) of the reply and the xid, or None if nothing was sent: then use
    ``request``. All requests that can be written directly are written in one native call.
    """
    targets: list[tuple[int, int] | None] = [connection.bulk_socket(barrier) for connection in connections]
    message = encode(0)  # ``ask`` puts each target's xid into the header
    sent_bytes = iter(native_sockets.ask([target for target in targets if target is not None], message))
    for index, (connection, target) in enumerate(zip(connections, targets, strict=True)):
        if target is None:
            xid = connection.reserve(1)
            fileno = connection.call(barrier, encode(xid), xid, 1)
            targets[index] = None if fileno is None else (fileno, xid)
        elif (start := next(sent_bytes)) < len(message):
            connection.send_rest(encode(target[1])[start:])
            if connection.closed:
                targets[index] = None
    return targets
