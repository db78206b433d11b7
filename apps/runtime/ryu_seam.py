"""The seam to the controller framework: the only module that knows it is Ryu 4.34 (docs/adr/0001).

Everything else sees a RyuApp base class, handler decorators, a hub to spawn and sleep with, and ``SwitchConnection``,
which sends bytes and collects replies. Ryu's own objects for statistics are never made: replies to the controller's
requests are taken off before Ryu parses them, 2.6 us an entry. Other Ryu applications see no difference.
"""

from __future__ import annotations

import logging
import math
import signal
import socket
import ssl
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import eventlet
from eventlet import tpool
from ryu import cfg
from ryu.base import app_manager
from ryu.controller import controller, ofp_event
from ryu.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from ryu.lib import hub
from ryu.ofproto import ofproto_v1_3, ofproto_v1_3_parser

from apps.runtime.lasting_listener import LastingListener
from apps.runtime.logs import LogFormat, set_format, set_level
from apps.runtime.message_counts import MessageCounts
from apps.runtime.server_tls import TlsConnection
from controller.errors import InvalidValueError, ProtocolError
from controller.openflow.buffers import HEADER
from controller.openflow.constants import MessageType
from controller.openflow.messages import encode_barrier_request
from controller.openflow.stats import multipart_header

__all__ = [
    "CONFIG_DISPATCHER",
    "DEAD_DISPATCHER",
    "MAIN_DISPATCHER",
    "OFP_VERSION",
    "AppBase",
    "Reply",
    "SwitchConnection",
    "check_free",
    "configured_file",
    "hub",
    "listen_on",
    "ofp_event",
    "on_hangup",
    "run_in_thread",
    "set_ev_cls",
    "set_log",
]

LOG = logging.getLogger("dets.framework")
HANDSHAKE_TIMEOUT_S = 10.0
# Calls a function that blocks, and lets the hub go on meanwhile. The hub makes dozens of system calls in a round, and
# after each it has to wait for this long if a thread is at work in Python: of 5 ms, the default, a round has no room.
run_in_thread = tpool.execute
sys.setswitchinterval(0.0005)
AppBase = app_manager.RyuApp
OFP_VERSION = ofproto_v1_3.OFP_VERSION
MAX_XID = 0xFFFF_FFFF
MOST_UNWANTED = 1000  # answers that may still come though nobody waits for them any more


def configured_file() -> str | None:
    """Return the configuration file that the command line names, if it does."""
    name: str | None = getattr(cfg.CONF, "dets_config", None)
    return name


def set_log(log_format: LogFormat, level: str) -> None:
    """Log in this format from this level on, as far as the framework's own command line does not say otherwise."""
    conf = cfg.CONF
    if conf.log_config_file is None:
        set_format(log_format)
    if conf.log_config_file is None and conf.default_log_level is None and not conf.verbose:
        set_level(level)


def on_hangup(work: Callable[[], None]) -> None:
    """Do ``work``, in a greenlet of its own, whenever the process gets SIGHUP."""
    signal.signal(signal.SIGHUP, lambda _number, _frame: eventlet.spawn_n(work))


def listen_on(host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
    """Make the framework listen for switches there, over TLS if there is a context for it.

    Where and in what manner its own command line says stays. Raises InvalidValueError when nobody can listen there: the
    framework itself would go on, and be deaf.
    """
    for name, value in (("ofp_listen_host", host), ("ofp_tcp_listen_port", port)):
        place = cfg.CONF.get_location(name)
        if place is None or not place.location.is_user_controlled:
            cfg.CONF.set_override(name, value)
    check_free("openflow.listen", cfg.CONF.ofp_listen_host, cfg.CONF.ofp_tcp_listen_port)
    controller.StreamServer = _Server if tls is None else partial(_TlsServer, tls)


class _Server(hub.StreamServer):
    """Takes switches for as long as the process lives: Ryu's own ends for good when a connection cannot be taken."""

    def __init__(self, address: tuple[str, int], handle: Callable[..., None]) -> None:
        super().__init__(address, handle)
        self.server = LastingListener(self.server, "OpenFlow", hub.sleep)


class _TlsServer(_Server):
    """Takes switches over TLS, any number of them: Ryu's own uses its certificates up on the first."""

    def __init__(self, context: ssl.SSLContext, address: tuple[str, int], handle: Callable[..., None]) -> None:
        super().__init__(address, self._welcome)
        self._context = context
        self._serve = handle

    def _welcome(self, plain: Any, address: Any) -> None:
        plain.settimeout(HANDSHAKE_TIMEOUT_S)
        try:
            connection = self._context.wrap_socket(plain, server_side=True)
        except OSError as error:  # ssl.SSLError and time-outs among them
            LOG.warning("TLS handshake with %s failed: %s", address, error)
            plain.close()
            return
        connection.settimeout(None)
        self._serve(TlsConnection(connection), address)


def check_free(key: str, host: str, port: int) -> None:
    """Raise InvalidValueError, naming ``key``, when a TCP endpoint cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as error:
            raise InvalidValueError(key, f"{host}:{port}", f"cannot be listened on: {error.strerror}") from error


@dataclass
class Reply:
    """The answer to one request, as it comes in; ``wait`` for it. ``heard_s`` is when its last part so far came."""

    xid: int = 0
    received_s: float = 0.0
    heard_s: float = -math.inf
    error: ProtocolError | None = None
    done: bool = False
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

    def finish(self) -> None:
        """Note that all has come that will come."""
        self.done = True
        self._event.set()


class SwitchConnection:
    """One switch's connection: bytes out, and replies to what was asked in."""

    counts: ClassVar[defaultdict[int, MessageCounts]] = defaultdict(MessageCounts)  # by dpid
    _by_datapath: dict[int, SwitchConnection] = {}  # noqa: RUF012  (one table for the one hook in Ryu's parser)

    def __init__(self, datapath: Any, clock: Callable[[], float]) -> None:
        self._datapath = datapath
        self._clock = clock
        self._awaited: dict[int, Reply] = {}
        self._unwanted: dict[int, None] = {}
        self.dpid: int = datapath.id
        self._count = SwitchConnection.counts[self.dpid]
        self.address = datapath.address
        SwitchConnection._by_datapath[id(datapath)] = self

    def close(self) -> None:
        """Forget the connection; what is still awaited fails."""
        SwitchConnection._by_datapath.pop(id(self._datapath), None)
        for xid in list(self._awaited):
            self.fail(xid, ProtocolError("the switch disconnected"))

    def disconnect(self) -> None:
        """Close the connection, so that the switch connects anew."""
        self._datapath.close()

    def send(self, encode: Callable[[int], bytes], messages: int) -> None:
        """Send messages; ``encode`` is given the first of as many xids."""
        self._count.sent += messages
        self._datapath.send(encode(self._reserve(messages)))

    def ask(self, encode: Callable[[int], bytes]) -> Reply:
        """Send a multipart request and return its reply to wait for."""
        xid = self._reserve(1)
        reply = self._awaited[xid] = Reply(xid)
        self._count.sent += 1
        self._datapath.send(encode(xid))
        return reply

    def ask_all(self, *encodes: Callable[[int], bytes]) -> tuple[Reply, ...]:
        """Send several requests at once; their replies come in the same order."""
        xids = [self._reserve(1) for _ in encodes]
        replies = tuple(Reply(xid) for xid in xids)
        self._awaited.update(zip(xids, replies, strict=True))
        self._count.sent += len(xids)
        self._datapath.send(b"".join(encode(xid) for encode, xid in zip(encodes, xids, strict=True)))
        return replies

    def barrier(self) -> Reply:
        """Send a barrier request; its reply says that all before it is done."""
        return self.ask(encode_barrier_request)

    def count_received(self, *, error: bool = False) -> None:
        """Count a message that the framework has delivered."""
        self._count.received += 1
        self._count.errors += error

    def forget(self, reply: Reply) -> None:
        """Wait for a reply no longer. When it comes after all it is dropped: Ryu would take ages over parsing it."""
        if self._awaited.pop(reply.xid, None) is not None:
            self._unwanted[reply.xid] = None
            if len(self._unwanted) > MOST_UNWANTED:
                del self._unwanted[next(iter(self._unwanted))]

    def fail(self, xid: int, error: ProtocolError) -> bool:
        """Note that the request of that xid failed, and why; tell whether it was one of ours."""
        reply = self._awaited.pop(xid, None)
        if reply is None:
            return self._unwanted.pop(xid, False) is None
        reply.error = error
        reply.finish()
        return True

    def _reserve(self, messages: int) -> int:
        first = (self._datapath.xid + 1) & MAX_XID
        self._datapath.xid = (self._datapath.xid + messages) & MAX_XID
        return first

    def _take(self, message_type: int, xid: int, message: bytes) -> bool:
        """Take one message if it answers a request of ours."""
        reply = self._awaited.get(xid)
        if reply is None:
            return xid in self._unwanted
        self._count.received += 1
        reply.heard_s = self._clock()
        try:
            part = multipart_header(message) if message_type == MessageType.MULTIPART_REPLY else None
        except ProtocolError as error:
            reply.error = error
            part = None
        if part is not None:
            reply._parts.append(bytes(part.body))
        elif message_type == MessageType.ROLE_REPLY:
            reply._parts.append(message[HEADER.size :])
        if part is None or not part.more:
            del self._awaited[xid]
            reply.received_s = reply.heard_s
            reply.finish()
        return True


def _hook(message_type: int) -> None:
    """Let replies to requests of ours pass Ryu's parser by."""
    stock = ofproto_v1_3_parser._MSG_PARSERS[message_type]

    def parse(datapath: Any, version: int, msg_type: int, msg_len: int, xid: int, buf: bytes) -> Any:
        connection = SwitchConnection._by_datapath.get(id(datapath))
        if connection is not None and connection._take(msg_type, xid, bytes(buf)):
            return None
        return stock(datapath, version, msg_type, msg_len, xid, buf)

    ofproto_v1_3_parser._MSG_PARSERS[message_type] = parse


_hook(MessageType.MULTIPART_REPLY)
_hook(MessageType.BARRIER_REPLY)
_hook(MessageType.ROLE_REPLY)
