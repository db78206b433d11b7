"""One OpenFlow connection under Ryu: its socket, and its form for Ryu's applications.

``PeerDatapath`` replaces Ryu's receive and send loops, which a peer could block, keep busy or fill (docs/adr/0077).
Ryu's handlers, events and parser stay. They get only messages that an application handles, and replies to its requests.
The controller's own requests and replies are in switch_connection.py, the send queue in connection_io.py.
"""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from eventlet import patcher
from ryu.controller import controller, ofp_event
from ryu.controller.handler import DEAD_DISPATCHER, HANDSHAKE_DISPATCHER, MAIN_DISPATCHER
from ryu.lib import hub
from ryu.ofproto import ofproto_v1_3_parser

from apps.runtime.connection.connection_io import SendQueue, SharedReader
from apps.runtime.connection.connection_limits import (
    MAX_PORTS,
    SWITCH_ALLOWANCE,
    UNMANAGED_ALLOWANCE,
    ConnectionCounts,
    EvictionReason,
    LogRateLimiter,
    MessageBudget,
)
from apps.runtime.connection.switch_connection import Gate, SwitchConnection
from apps.runtime.sockets import native as native_sockets
from apps.runtime.sockets.socket_reader import REPLIES, ReceivedBytes, replies_in
from controller.openflow import constants as ofp
from controller.openflow.bounded_reader import HEADER, Buffer
from controller.openflow.constants import MessageType
from controller.openflow.messages import supports_version

LOG = logging.getLogger("dets.openflow")
_SLICE_S = 0.003  # how long the messages of one connection are processed before other greenlets run
_READ_BYTES = 64 << 10
READER = SharedReader()
_PlainSocket = patcher.original("socket").socket
MAX_RYU_REQUESTS = 1000  # remembered requests of Ryu and its applications
_AUXILIARY_ID_AT = 21  # offset in bytes of auxiliary_id in a features reply
_MULTIPART_MORE_AT = 10  # offset in bytes of the flags in a multipart reply
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: discard what has not been sent

_REQUESTS = frozenset(
    {
        *(MessageType.ECHO_REQUEST, MessageType.FEATURES_REQUEST, MessageType.GET_CONFIG_REQUEST),
        *(MessageType.MULTIPART_REQUEST, MessageType.BARRIER_REQUEST, MessageType.QUEUE_GET_CONFIG_REQUEST),
        *(MessageType.ROLE_REQUEST, MessageType.GET_ASYNC_REQUEST),
    }
)
# The asynchronous messages that the controller reads itself, and Ryu's events for them.
_REPORTS = {
    int(MessageType.PACKET_IN): ofp_event.EventOFPPacketIn,
    int(MessageType.FLOW_REMOVED): ofp_event.EventOFPFlowRemoved,
    int(MessageType.PORT_STATUS): ofp_event.EventOFPPortStatus,
    int(MessageType.ERROR): ofp_event.EventOFPErrorMsg,
}
# Without a listener, Ryu would only parse these messages.
_FOR_LISTENERS = frozenset({MessageType.PACKET_IN, MessageType.FLOW_REMOVED, MessageType.ERROR})
# The types that are processed besides hello and replies; messages of other types are dropped.
_ALWAYS = frozenset({*_REPORTS, MessageType.ECHO_REQUEST, MessageType.EXPERIMENTER})


class PeerDatapath(controller.Datapath):  # type: ignore[misc]  # Ryu has no types
    """One connection to a switch, called the peer here. Its loops enforce the peer's allowance.

    ``send`` never blocks: a peer that does not read is evicted. ``on_introduced`` is called when the handshake is done,
    ``on_keep`` when the peer becomes a switch under control.
    """

    counts: ClassVar[ConnectionCounts] = ConnectionCounts()
    clock: ClassVar[Callable[[], float]] = time.monotonic
    log_limiter: ClassVar[LogRateLimiter] = LogRateLimiter(time.monotonic)
    unmanaged: ClassVar[set[PeerDatapath]] = set()  # connected, not controlled
    new_gate: ClassVar[Callable[[], Gate | None]] = lambda: None  # in a cluster: the write gate of each connection

    def __init__(self, sock: Any, address: Any) -> None:
        self.connection: SwitchConnection | None = None
        self.eviction_reason: EvictionReason | None = None
        self.on_introduced: Callable[[], None] = lambda: None
        self.on_keep: Callable[[], None] = lambda: None
        raw_socket = getattr(sock, "fd", None)
        self._plain = raw_socket if type(raw_socket) is _PlainSocket else None  # None: the connection is encrypted
        self.fileno = -1 if self._plain is None else int(self._plain.fileno())  # for replies to bulk requests
        self._queue = SendQueue(sock, self._plain)
        self._buffer = bytearray()
        self._ended = self._controlled = self._peer_closed = False
        self._shared = False  # whether the shared reader reads the socket, not the connection's own loop
        self._interrupted = hub.Event()  # the shared reader has found a message for the connection's own loop
        self.gate = PeerDatapath.new_gate()
        self._ryu_requests: OrderedDict[int, None] = OrderedDict()  # xids of requests of other applications
        self._budget = MessageBudget(UNMANAGED_ALLOWANCE, PeerDatapath.clock, lambda: len(PeerDatapath.unmanaged))
        super().__init__(sock, address)
        self.xid = 0  # not Ryu's random one: Mininet ends if telnet, with which it looks for us, shows bytes above 0x7f

    # -- beginning and end

    def serve(self) -> None:
        """Exchange messages until either side closes the connection."""
        PeerDatapath.unmanaged.add(self)
        helpers = [hub.spawn(self._send_loop), hub.spawn(self._echo_request_loop)]
        try:
            self.send_msg(self.ofproto_parser.OFPHello(self))
            self._receive_loop()
        finally:
            self._end()
            if self._plain is not None:
                READER.forget(self.fileno)
            PeerDatapath.unmanaged.discard(self)
            self.send_q = None  # ends Ryu's loop of echo requests
            for helper in helpers:
                hub.kill(helper)
            with suppress(OSError):
                self.socket.close()
            self.is_active = False
            self.set_state(DEAD_DISPATCHER)

    def set_state(self, state: Any) -> None:
        """Store Ryu's state of the connection; at the end of the handshake, create ``connection``."""
        if state == MAIN_DISPATCHER and self.connection is None and not self._ended:
            self.connection = SwitchConnection(self, PeerDatapath.clock)
            self.on_introduced()
        super().set_state(state)

    def keep(self) -> None:
        """Mark the peer as a switch under control, which may send and be sent much more."""
        PeerDatapath.unmanaged.discard(self)
        self._budget = MessageBudget(SWITCH_ALLOWANCE, PeerDatapath.clock)
        self._queue.raise_limit()
        self._controlled = True
        self.on_keep()

    def close(self) -> None:
        """Close the connection. Bytes that were sent still arrive. Never waits."""
        self._end()
        with suppress(OSError, ValueError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def evict(self, reason: EvictionReason) -> None:
        """Close the connection of a switch that misbehaves, and drop unsent bytes. Never waits."""
        if self._ended:
            return
        self.eviction_reason = reason
        PeerDatapath.counts.cut_off[reason] += 1
        if PeerDatapath.log_limiter.due((reason, self.address[0])):
            dpid = "no dpid yet" if self.id is None else f"dpid {self.id:016x}"
            LOG.warning("connection of %s:%s (%s) evicted: %s", *self.address[:2], dpid, reason)
        if self._queue.octets:
            with suppress(OSError, ValueError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.close()

    def _end(self) -> None:
        """Stop the loops, discard unsent bytes and fail pending replies; the socket stays open."""
        self._ended = True
        self._shared = False
        self._queue.end()
        self._interrupted.set()
        if self.connection is not None:
            self.connection.close()

    # -- sending

    def send(self, buf: bytes, close_socket: bool = False) -> bool:
        """Send messages of Ryu and its applications; record their requests, so that Ryu gets the replies.

        Return whether the connection is open.
        """
        offset = 0
        while offset + HEADER.size <= len(buf):
            _version, kind, length, xid = HEADER.unpack_from(buf, offset)
            if kind in _REQUESTS:
                self._ryu_requests[xid] = None
                if len(self._ryu_requests) > MAX_RYU_REQUESTS:
                    self._ryu_requests.popitem(last=False)
            offset += max(length, HEADER.size)  # at least a header: a wrong length must not repeat forever
        return self.enqueue(bytes(buf), close_socket)

    def enqueue(self, data: Buffer, close_socket: bool = False) -> bool:
        """Send messages; return whether the connection is open. Never waits.

        All messages to a switch pass here. Messages that the gate does not allow are dropped.
        """
        if self._ended or self._queue.closing:
            return False
        if self.gate is not None and not self.gate.allows(data):
            return True
        if not self._queue.put(data, last=close_socket):
            self.evict(EvictionReason.UNREAD)
            return False
        return True

    def direct_socket(self) -> int | None:
        """Return the socket for a bulk request (bulk_request.py); None if it cannot be read that way now."""
        return self.fileno if self._shared and not self._buffer and native_sockets.library is not None else None

    def direct_send_socket(self) -> int | None:
        """Return the socket for direct writes, if they are equivalent to ``enqueue``."""
        return None if self.gate is not None or self._queue.octets or self._queue.closing else self.direct_socket()

    def push_back(self, octets: bytes) -> None:
        """Return the beginning of a message that a bulk request has read: the rest is read normally."""
        self._buffer[:0] = octets

    def _send_loop(self) -> None:
        """Send queued bytes until the connection ends."""
        try:
            self._queue.send_all()
            self.close()
        except TimeoutError:
            self.evict(EvictionReason.UNREAD)
        except OSError:
            self.close()

    # -- receiving

    def _receive_loop(self) -> None:
        """Receive until the connection ends: by the shared reader if the switch is under control, otherwise alone."""
        while not self._ended:
            if self._controlled and self._plain is not None:
                self._interrupted.clear()
                READER.watch(self.fileno, self._read_replies)
                self._shared = True
                self._interrupted.wait()
            else:
                self._read()
            if self._peer_closed:
                break
            self._drain_messages()

    def _read(self) -> None:
        """Receive once into the buffer; no data means that the peer has disconnected."""
        try:
            data = self.socket.recv(_READ_BYTES)
        except TimeoutError:
            return
        except (EOFError, OSError):
            data = b""
        self._buffer += data
        self._peer_closed = not data

    def _read_replies(self, arrival: ReceivedBytes) -> bool:
        """Process the replies in received bytes; return whether the shared reader may go on reading this socket.

        The shared reader calls it, so nothing here waits. If there are other messages, or the peer is above its
        allowance or has disconnected, the result is False, and this connection's own loop continues.
        """
        octets, replies, only_replies = arrival[1:]
        self._peer_closed = not octets
        if self._buffer:
            self._buffer += octets
            octets = memoryview(self._buffer)
            replies, only_replies = replies_in(octets)
        try:
            stays_shared = not self._peer_closed and self._drain_replies(octets, replies, only_replies)
        except Exception:  # the bytes stay: this connection's own loop reads them again, raises, and ends it alone
            stays_shared = False
        if not stays_shared:
            self._shared = False
            self._interrupted.set()
        return stays_shared

    def _drain_replies(self, octets: memoryview, replies: Sequence[Sequence[int]], only_replies: bool) -> bool:
        """Process the replies at the beginning of received bytes, and keep the rest in the buffer.

        ``replies`` and ``only_replies`` are as in ReceivedBytes. Return whether all messages were replies to the
        controller's own requests, and the peer is within its allowance.
        """
        connection, accepted, end = self.connection, 0, 0
        assert connection is not None
        try:
            for kind, xid, start, stop in replies:
                if not connection.accept_reply(kind, xid, bytes(octets[start:stop])):
                    only_replies = False
                    break
                accepted, end = accepted + 1, stop
        finally:
            if self._buffer or end < len(octets):
                self._buffer = bytearray(octets[end:])
                connection.fall_back_all()  # a bulk reply cannot be decoded from the socket after buffered bytes
        if not accepted and not only_replies:
            return False
        # Each read counts as a message at least: one that arrives byte by byte costs as much as many messages.
        return self._budget.spend(end, messages=max(accepted, 1)) <= 0.0 and only_replies

    def _drain_messages(self) -> None:
        """Process and remove the complete messages at the start of the buffer.

        Other greenlets run after each _SLICE_S, and while the peer is above its allowance.
        """
        buffer, offset = self._buffer, 0
        slice_began_s = now_s = PeerDatapath.clock()
        while (header := self._header_at(offset)) is not None and not self._ended:
            version, kind, length, xid = header
            if length < HEADER.size:
                self.evict(EvictionReason.LENGTH)
                break
            is_costly = self._handle(version, kind, xid, _copy(buffer, offset, length))
            began_s, now_s = now_s, PeerDatapath.clock()
            offset += length
            wait_s = self._budget.spend(length, processing_s=now_s - began_s if is_costly else 0.0)
            if wait_s > 0.0 or now_s - slice_began_s >= _SLICE_S:
                hub.sleep(wait_s)
                slice_began_s = now_s = PeerDatapath.clock()
        if not offset and (wait_s := self._budget.spend(0)) > 0.0:
            hub.sleep(wait_s)  # a read without a complete message counts as a message
        del buffer[:offset]

    def _header_at(self, offset: int) -> tuple[int, int, int, int] | None:
        """Return version, type, length and xid of the message at an offset; None if it is incomplete."""
        available_bytes = len(self._buffer) - offset
        if available_bytes < HEADER.size:
            return None
        header: tuple[int, int, int, int] = HEADER.unpack_from(self._buffer, offset)
        return header if available_bytes >= header[2] else None

    def _handle(self, version: int, kind: int, xid: int, message: bytes) -> bool:
        """Process one message, or drop it unparsed if nobody uses it; return whether it cost more than a reply.

        A packet-in that the controller ignores counts as cheap. Otherwise the packet-ins of a flooding port would use
        up the switch's allowance for asynchronous messages.
        """
        if kind == MessageType.HELLO and self.state == HANDSHAKE_DISPATCHER:
            self._on_hello(message)
        elif version != ofp.VERSION:
            self._drop("version")
        elif kind in REPLIES:
            self._reply(kind, xid, message)
            return False
        elif kind not in _ALWAYS:
            self._drop("type")
        elif self.state == MAIN_DISPATCHER:
            is_processed = kind in _REPORTS and self.connection is not None and self.connection.report(kind, message)
            if kind in _FOR_LISTENERS and not self.ofp_brick.observers.get(_REPORTS[kind]):
                return is_processed
            self._to_ryu(kind, xid, message)
        elif kind == MessageType.ECHO_REQUEST:
            self._to_ryu(kind, xid, message)
        else:
            self._drop("before the handshake")
        return True

    def _on_hello(self, message: bytes) -> None:
        """Evict a peer that does not support OpenFlow 1.3, or pass its hello to Ryu (OpenFlow 1.3.5, section 6.3.1).

        Ryu gets the header only: its parser loops for ever on a hello with an element of length 0.
        """
        if not supports_version(ofp.VERSION, message):
            error = struct.pack("!HH", ofp.ErrorType.HELLO_FAILED, 0) + b"OpenFlow 1.3 only"
            with suppress(OSError):  # nothing else is queued: the kernel accepts so few bytes at once
                self.socket.send(HEADER.pack(ofp.VERSION, MessageType.ERROR, HEADER.size + len(error), 0) + error)
            self._queue.octets = 0  # otherwise ``evict`` would reset the connection, and the error might be lost
            self.evict(EvictionReason.VERSION)
            return
        self._to_ryu(MessageType.HELLO, 0, HEADER.pack(ofp.VERSION, MessageType.HELLO, HEADER.size, 0))

    def _reply(self, kind: int, xid: int, message: bytes) -> None:
        """Pass a reply to the controller or to Ryu, by the xid of its request; drop it if neither made the request."""
        if self.connection is not None and self.connection.accept_reply(kind, xid, message):
            return
        if xid not in self._ryu_requests:
            self._drop("nobody asked")
            return
        if kind == MessageType.FEATURES_REPLY and message[_AUXILIARY_ID_AT : _AUXILIARY_ID_AT + 1] > b"\0":
            self.evict(EvictionReason.AUXILIARY)
            return
        flags = message[_MULTIPART_MORE_AT : _MULTIPART_MORE_AT + 2] if kind == MessageType.MULTIPART_REPLY else b""
        if not int.from_bytes(flags) & ofp.MULTIPART_REPLY_MORE:  # the last part
            del self._ryu_requests[xid]
        self._to_ryu(kind, xid, message)

    def _to_ryu(self, kind: int, xid: int, message: bytes) -> None:
        """Let Ryu parse a message and pass it to its applications."""
        try:
            parsed = ofproto_v1_3_parser.msg_parser(self, ofp.VERSION, kind, len(message), xid, message)
        except Exception:  # Ryu's parser may raise any error
            self._drop("malformed")
            return
        event = ofp_event.ofp_msg_to_ev(parsed)
        self.ofp_brick.send_event_to_observers(event, self.state)
        if kind == MessageType.ERROR:  # Ryu's own handler only logs it, and fails at non-ASCII texts
            return
        for handler in self.ofp_brick.get_handlers(event):
            if self.state in handler.callers[event.__class__].dispatchers:
                handler(event)
        if len(self._ports or ()) > MAX_PORTS:
            self.evict(EvictionReason.PORTS)

    def _drop(self, reason: str) -> None:
        """Count a message that is dropped unread."""
        PeerDatapath.counts.dropped[reason] += 1


def _copy(octets: bytearray, offset: int, length: int) -> bytes:
    """Return one message as a copy that keeps no other bytes alive."""
    with memoryview(octets) as view:
        return bytes(view[offset : offset + length])


def serve_peer(datapath: PeerDatapath) -> None:
    """Serve a connection to its end."""
    try:
        datapath.serve()
    except Exception:
        LOG.exception("connection of %s:%s failed", *datapath.address[:2])
