"""One OpenFlow connection under Ryu: its socket, what Ryu's applications see of it, and the controller's own way in.

The second module that knows Ryu (docs/adr/0077). ``PeerDatapath`` replaces Ryu's receive and send loops, which a peer
can make to wait, to run for long or to grow. Ryu's handlers, events and parser go on as they are, with what is worth
parsing: what an application listens to, and replies that somebody awaits.

``SwitchConnection`` is the controller's own side: bytes out, replies to what it asked and reports in, as bytes.
"""

from __future__ import annotations

import logging
import math
import socket
import struct
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ryu.controller import controller, ofp_event
from ryu.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, HANDSHAKE_DISPATCHER, MAIN_DISPATCHER
from ryu.lib import hub
from ryu.ofproto import ofproto_v1_3_parser

from apps.runtime.peer_limits import (
    MOST_PORTS,
    STRANGER,
    SWITCH,
    CutOff,
    MessageCounts,
    PeerBudget,
    PeerCounts,
    Sparing,
)
from controller.errors import ProtocolError
from controller.openflow import constants as ofp
from controller.openflow.buffers import HEADER
from controller.openflow.constants import MessageType
from controller.openflow.messages import encode_barrier_request, speaks
from controller.openflow.stats import multipart_header

LOG = logging.getLogger("dets.openflow")
# What waits for a switch to read it. A switch under control may be told of 100,000 entries at once; who has not said
# that it is a switch is told next to nothing.
MOST_UNREAD_BYTES = 32 << 20
MOST_UNREAD_BY_STRANGER_BYTES = 1 << 20
MOST_REPLY_BYTES = 16 << 20  # of all replies of one switch that are on their way; 100,000 flow entries
_PART_BYTES = 100  # what a part costs besides its body
MOST_UNWANTED = 1000  # answers that may still come though nobody waits for them any more
MAX_XID = 0xFFFF_FFFF
# So many messages, or bytes, of one peer are handled before others in the process get their turn.
_MESSAGES_AT_ONCE, _BYTES_AT_ONCE = 32, 256 << 10
_READ_BYTES = _SEND_BYTES = 64 << 10
_AUXILIARY_ID_AT = 21
_MULTIPART_MORE_AT = 10
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: what has not been sent is thrown away

_REQUESTS = frozenset(
    {
        *(MessageType.ECHO_REQUEST, MessageType.FEATURES_REQUEST, MessageType.GET_CONFIG_REQUEST),
        *(MessageType.MULTIPART_REQUEST, MessageType.BARRIER_REQUEST, MessageType.QUEUE_GET_CONFIG_REQUEST),
        *(MessageType.ROLE_REQUEST, MessageType.GET_ASYNC_REQUEST),
    }
)
_REPLIES = frozenset(
    {
        *(MessageType.ECHO_REPLY, MessageType.FEATURES_REPLY, MessageType.GET_CONFIG_REPLY),
        *(MessageType.MULTIPART_REPLY, MessageType.BARRIER_REPLY, MessageType.QUEUE_GET_CONFIG_REPLY),
        *(MessageType.ROLE_REPLY, MessageType.GET_ASYNC_REPLY),
    }
)
# The reports that the controller looks at itself, and the events of Ryu by which others are told of them.
_REPORTS = {
    int(MessageType.PACKET_IN): ofp_event.EventOFPPacketIn,
    int(MessageType.FLOW_REMOVED): ofp_event.EventOFPFlowRemoved,
    int(MessageType.PORT_STATUS): ofp_event.EventOFPPortStatus,
    int(MessageType.ERROR): ofp_event.EventOFPErrorMsg,
}
# Without a listener, Ryu does nothing with these but to parse them.
_FOR_LISTENERS = frozenset({MessageType.PACKET_IN, MessageType.FLOW_REMOVED, MessageType.ERROR})
_BEFORE_HANDSHAKE = frozenset({MessageType.ECHO_REQUEST, MessageType.ERROR})
_ALWAYS = frozenset({*_REPORTS, MessageType.ECHO_REQUEST, MessageType.EXPERIMENTER})


@dataclass
class Reply:
    """The answer to one request, as it comes in; ``wait`` for it. ``heard_s`` is when its last part so far came."""

    xid: int = 0
    received_s: float = 0.0
    heard_s: float = -math.inf
    error: ProtocolError | None = None
    done: bool = False
    octets: int = 0
    _parts: list[bytes] = field(default_factory=list)
    _event: Any = field(default_factory=hub.Event)

    def wait(self, timeout_s: float) -> bytes | None:
        """Return the bodies of all parts, joined, or None if they have not all come in time.

        Raises ProtocolError when the answer was malformed or the switch refused the request.
        """
        if not self.done and (timeout_s <= 0.0 or not self._event.wait(timeout_s)):
            return None
        if self.error is not None:
            raise self.error
        return b"".join(self._parts)

    def add(self, body: bytes) -> int:
        """Take a part; return how much it takes of what replies may."""
        self._parts.append(body)
        self.octets += len(body) + _PART_BYTES
        return len(body) + _PART_BYTES

    def give_up(self, error: ProtocolError) -> None:
        """Note that it is of no use, and why; what has come of it goes at once, whoever still refers to it."""
        self.error = error
        self._parts.clear()
        self.finish()

    def finish(self) -> None:
        """Note that all has come that will come."""
        self.done = True
        self._event.set()


class SwitchConnection:
    """The controller's side of one switch's connection, from the end of the handshake on.

    Nothing here waits for the switch. ``on_report`` gets (message type, message) of what the switch reports;
    ``on_close`` is called once, in a greenlet of its own, when the connection is no more.
    """

    def __init__(self, datapath: PeerDatapath, clock: Callable[[], float]) -> None:
        self._datapath = datapath
        self._clock = clock
        self._awaited: dict[int, Reply] = {}
        self._unwanted: dict[int, None] = {}
        self._held_octets = 0
        self.dpid: int = datapath.id
        self.address = datapath.address
        self.count = MessageCounts()
        self.closed = False
        self.on_report: Callable[[int, bytes], None] = lambda kind, message: None
        self.on_close: Callable[[], None] = lambda: None

    @property
    def cut_off(self) -> CutOff | None:
        """Why the controller cut the connection off, None if it did not."""
        return self._datapath.cut

    def keep(self) -> None:
        """This is a switch under control: it may bring, and be told, much more than a stranger."""
        self._datapath.keep()

    def close(self) -> None:
        """Nothing more is sent or expected; what is still awaited fails."""
        if self.closed:
            return
        self.closed = True
        for xid in list(self._awaited):
            self.fail(xid, ProtocolError("the switch disconnected"))
        hub.spawn(self.on_close)

    def disconnect(self, reason: CutOff | None = None) -> None:
        """Close the connection; the switch may connect again. With a reason: what is not sent yet is not sent."""
        if reason is None:
            self._datapath.close()
        else:
            self._datapath.cut_off(reason)

    def send(self, encode: Callable[[int], bytes], messages: int) -> None:
        """Send messages; ``encode`` is given the first of as many xids."""
        self.count.sent += messages
        self._datapath.enqueue(encode(self._reserve(messages)))

    def ask(self, encode: Callable[[int], bytes]) -> Reply:
        """Send a multipart request and return its reply to wait for."""
        return self.ask_all(encode)[0]

    def ask_all(self, *encodes: Callable[[int], bytes]) -> tuple[Reply, ...]:
        """Send several requests at once; their replies come in the same order."""
        xids = [self._reserve(1) for _ in encodes]
        replies = tuple(Reply(xid) for xid in xids)
        self._awaited.update(zip(xids, replies, strict=True))
        self.count.sent += len(xids)
        self._datapath.enqueue(b"".join(encode(xid) for encode, xid in zip(encodes, xids, strict=True)))
        if self.closed:
            for xid in xids:
                self.fail(xid, ProtocolError("the switch disconnected"))
        return replies

    def barrier(self) -> Reply:
        """Send a barrier request; its reply says that all before it is done."""
        return self.ask(encode_barrier_request)

    def forget(self, reply: Reply) -> None:
        """Wait for a reply no longer. When it comes after all it is dropped."""
        if self._awaited.pop(reply.xid, None) is not None:
            self._held_octets -= reply.octets
            self._unwanted[reply.xid] = None
            if len(self._unwanted) > MOST_UNWANTED:
                del self._unwanted[next(iter(self._unwanted))]

    def fail(self, xid: int, error: ProtocolError) -> bool:
        """Note that the request of that xid failed, and why; tell whether it was one of the controller's."""
        reply = self._awaited.pop(xid, None)
        if reply is None:
            return self._unwanted.pop(xid, False) is None
        self._held_octets -= reply.octets
        reply.give_up(error)
        return True

    def _reserve(self, messages: int) -> int:
        first = (self._datapath.xid + 1) & MAX_XID
        self._datapath.xid = (self._datapath.xid + messages) & MAX_XID
        return first

    def take_reply(self, kind: int, xid: int, message: bytes) -> bool:
        """Take one message if it answers a request of the controller."""
        reply = self._awaited.get(xid)
        if reply is None:
            return xid in self._unwanted
        self.count.received += 1
        reply.heard_s = self._clock()
        part = None
        try:
            if kind == MessageType.MULTIPART_REPLY:
                part = multipart_header(message)
        except ProtocolError as error:
            reply.error = error
        if part is not None:
            self._held_octets += reply.add(bytes(part.body))
        elif kind == MessageType.ROLE_REPLY:
            self._held_octets += reply.add(message[HEADER.size :])
        if self._held_octets > MOST_REPLY_BYTES:
            self.fail(xid, ProtocolError(f"its replies are longer than {MOST_REPLY_BYTES} bytes"))
            self.disconnect(CutOff.REPLY)
        elif part is None or not part.more:
            del self._awaited[xid]
            self._held_octets -= reply.octets
            reply.received_s = reply.heard_s
            reply.finish()
        return True

    def report(self, kind: int, message: bytes) -> None:
        """Hand on what the switch reports."""
        self.count.received += 1
        self.count.errors += kind == MessageType.ERROR
        if not self.closed:
            self.on_report(kind, message)


class PeerDatapath(controller.Datapath):  # type: ignore[misc]  # Ryu has no types
    """One connection, with loops that neither wait for the peer nor let it take more than its allowance.

    ``send`` never blocks: what a peer does not read is a reason to cut it off. ``on_introduced`` and ``on_keep`` are
    called when the handshake is done, and when the peer is a switch under control.
    """

    counts: ClassVar[PeerCounts] = PeerCounts()
    clock: ClassVar[Callable[[], float]] = time.monotonic
    sparing: ClassVar[Sparing] = Sparing(time.monotonic)
    strangers: ClassVar[set[PeerDatapath]] = set()  # connected, and not under control

    def __init__(self, sock: Any, address: Any) -> None:
        self.connection: SwitchConnection | None = None
        self.cut: CutOff | None = None
        self.on_introduced: Callable[[], None] = lambda: None
        self.on_keep: Callable[[], None] = lambda: None
        self._ended = self._end_when_sent = False
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._most_unsent_bytes = MOST_UNREAD_BY_STRANGER_BYTES
        self._to_send = hub.Event()
        self._asked: OrderedDict[int, None] = OrderedDict()  # xids of requests of others than the controller
        self._budget = PeerBudget(STRANGER, PeerDatapath.clock, lambda: len(PeerDatapath.strangers))
        super().__init__(sock, address)

    # -- its life

    def serve(self) -> None:
        """Talk until either side hangs up."""
        PeerDatapath.strangers.add(self)
        helpers = [hub.spawn(self._send_loop), hub.spawn(self._echo_request_loop)]
        try:
            self.send_msg(self.ofproto_parser.OFPHello(self))
            self._receive_loop()
        finally:
            self._end()
            PeerDatapath.strangers.discard(self)
            self.send_q = None  # ends Ryu's loop of echo requests
            for helper in helpers:
                hub.kill(helper)
            with suppress(OSError):
                self.socket.close()
            self.is_active = False
            self.set_state(DEAD_DISPATCHER)

    def set_state(self, state: Any) -> None:
        """Note how far the connection is, and tell whom it concerns."""
        if state == MAIN_DISPATCHER and self.connection is None and not self._ended:
            self.connection = SwitchConnection(self, PeerDatapath.clock)
            self.on_introduced()
        super().set_state(state)

    def keep(self) -> None:
        """This is a switch under control."""
        PeerDatapath.strangers.discard(self)
        self._budget = PeerBudget(SWITCH, PeerDatapath.clock)
        self._most_unsent_bytes = MOST_UNREAD_BYTES
        self.on_keep()

    def close(self) -> None:
        """Hang up. What has been sent already still arrives. Waits for nothing."""
        self._end()
        with suppress(OSError, ValueError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def cut_off(self, reason: CutOff) -> None:
        """Hang up on somebody who misbehaves: nothing is sent any more. Waits for nothing."""
        if self._ended:
            return
        self.cut = reason
        PeerDatapath.counts.cut_off[reason] += 1
        if PeerDatapath.sparing.due((reason, self.address[0])):
            dpid = "no dpid yet" if self.id is None else f"dpid {self.id:016x}"
            LOG.warning("connection of %s:%s (%s) cut off: %s", *self.address[:2], dpid, reason)
        if self._unsent_bytes:
            with suppress(OSError, ValueError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.close()

    def _end(self) -> None:
        self._ended = True
        self._unsent.clear()
        self._to_send.set()
        if self.connection is not None:
            self.connection.close()

    # -- sending

    def send(self, buf: bytes, close_socket: bool = False) -> bool:
        """Send messages of Ryu and its applications; what they ask is remembered, so that answers are let in."""
        offset = 0
        while offset + HEADER.size <= len(buf):
            _version, kind, length, xid = HEADER.unpack_from(buf, offset)
            if kind in _REQUESTS:
                self._asked[xid] = None
                if len(self._asked) > MOST_UNWANTED:
                    self._asked.popitem(last=False)
            offset += max(length, HEADER.size)
        return self.enqueue(bytes(buf), close_socket)

    def enqueue(self, data: bytes, close_socket: bool = False) -> bool:
        """Send messages; tell whether the connection stands. Waits for nothing."""
        if self._ended or self._end_when_sent:
            return False
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes > self._most_unsent_bytes:
            self.cut_off(CutOff.UNREAD)
            return False
        self._end_when_sent = close_socket
        self._to_send.set()
        return True

    def _send_loop(self) -> None:
        try:
            while not self._ended:
                if not self._unsent:
                    if self._end_when_sent:
                        break
                    self._to_send.clear()
                    self._to_send.wait()
                    continue
                data = self._next_bytes()
                self.socket.sendall(memoryview(data))
                self._unsent_bytes -= len(data)
            self.close()
        except TimeoutError:
            self.cut_off(CutOff.UNREAD)
        except OSError:
            self.close()

    def _next_bytes(self) -> bytes:
        """Return what to send next: many short messages in one go."""
        first = self._unsent.popleft()
        if not self._unsent or len(first) >= _SEND_BYTES:
            return first
        some, octets = [first], len(first)
        while self._unsent and octets + len(self._unsent[0]) <= _SEND_BYTES:
            some.append(self._unsent.popleft())
            octets += len(some[-1])
        return b"".join(some)

    # -- receiving

    def _receive_loop(self) -> None:
        buffer = bytearray()
        while not self._ended:
            try:
                data = self.socket.recv(_READ_BYTES)
            except TimeoutError:
                continue
            except (EOFError, OSError):
                break
            if not data:
                break
            buffer += data
            self._take_messages(buffer)

    def _take_messages(self, buffer: bytearray) -> None:
        """Handle the whole messages at the start of ``buffer`` and take them off."""
        offset = since = handled = 0
        while len(buffer) - offset >= HEADER.size and not self._ended:
            version, kind, length, xid = HEADER.unpack_from(buffer, offset)
            if length < HEADER.size:
                self.cut_off(CutOff.LENGTH)
                break
            if len(buffer) - offset < length:
                break
            self._handle(version, kind, xid, bytes(buffer[offset : offset + length]))
            offset += length
            handled += 1
            wait_s = self._budget.spend(length, report=kind not in _REPLIES)
            if wait_s > 0.0 or handled >= _MESSAGES_AT_ONCE or offset - since >= _BYTES_AT_ONCE:
                handled, since = 0, offset
                hub.sleep(wait_s)
        if not offset and (wait_s := self._budget.spend(0, report=False)) > 0.0:
            hub.sleep(wait_s)  # a message that comes byte by byte costs as much as so many
        del buffer[:offset]

    def _handle(self, version: int, kind: int, xid: int, message: bytes) -> None:
        """Handle one message: nothing is parsed that nobody wants."""
        if kind == MessageType.HELLO and self.state == HANDSHAKE_DISPATCHER:
            self._greeted(message)
        elif version != ofp.VERSION:
            self._drop("version")
        elif kind in _REPLIES:
            self._reply(kind, xid, message)
        elif kind not in _ALWAYS:
            self._drop("type")
        elif self.state == MAIN_DISPATCHER:
            if kind in _REPORTS and self.connection is not None:
                self.connection.report(kind, message)
            if kind not in _FOR_LISTENERS or self.ofp_brick.observers.get(_REPORTS[kind]):
                self._to_ryu(kind, xid, message)
        elif kind in _BEFORE_HANDSHAKE and (kind != MessageType.ERROR or self.state == CONFIG_DISPATCHER):
            self._to_ryu(kind, xid, message)
        else:
            self._drop("before the handshake")

    def _greeted(self, message: bytes) -> None:
        """Agree on a version (OpenFlow 1.3.5, section 6.3.1): 1.3, or none.

        Ryu gets the header alone: its parser never comes to the end of a hello whose elements have no length.
        """
        if not speaks(ofp.VERSION, message):
            refusal = struct.pack("!HH", ofp.ErrorType.HELLO_FAILED, 0) + b"OpenFlow 1.3 only"
            with suppress(OSError):  # nothing else waits to be sent: the kernel takes so little at once
                self.socket.send(HEADER.pack(ofp.VERSION, MessageType.ERROR, HEADER.size + len(refusal), 0) + refusal)
            self._unsent_bytes = 0
            self.cut_off(CutOff.VERSION)
            return
        self._to_ryu(MessageType.HELLO, 0, HEADER.pack(ofp.VERSION, MessageType.HELLO, HEADER.size, 0))

    def _reply(self, kind: int, xid: int, message: bytes) -> None:
        if self.connection is not None and self.connection.take_reply(kind, xid, message):
            return
        if xid not in self._asked:
            self._drop("nobody asked")
            return
        if kind == MessageType.FEATURES_REPLY and message[_AUXILIARY_ID_AT : _AUXILIARY_ID_AT + 1] > b"\0":
            self.cut_off(CutOff.AUXILIARY)
            return
        flags = message[_MULTIPART_MORE_AT : _MULTIPART_MORE_AT + 2] if kind == MessageType.MULTIPART_REPLY else b""
        if not int.from_bytes(flags) & ofp.MULTIPART_REPLY_MORE:
            del self._asked[xid]
        self._to_ryu(kind, xid, message)

    def _to_ryu(self, kind: int, xid: int, message: bytes) -> None:
        """Let Ryu parse a message, and hand it to its applications."""
        try:
            parsed = ofproto_v1_3_parser.msg_parser(self, ofp.VERSION, kind, len(message), xid, message)
        except Exception:  # Ryu's parser raises whatever its reading of the bytes ends in
            self._drop("malformed")
            return
        event = ofp_event.ofp_msg_to_ev(parsed)
        self.ofp_brick.send_event_to_observers(event, self.state)
        for handler in self.ofp_brick.get_handlers(event):
            if self.state in handler.callers[event.__class__].dispatchers:
                handler(event)
        if len(self._ports or ()) > MOST_PORTS:
            self.cut_off(CutOff.PORTS)

    def _drop(self, why: str) -> None:
        PeerDatapath.counts.dropped[why] += 1


def serve_peer(datapath: PeerDatapath) -> None:
    """Serve a connection to its end."""
    try:
        datapath.serve()
    except Exception:
        LOG.exception("connection of %s:%s failed", *datapath.address[:2])
