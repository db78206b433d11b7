"""Messages between the nodes of a cluster, over ZeroMQ: bounded queues, and authenticated names.

Each node listens at one address and connects to every peer, so two nodes have a connection in each direction. Messages
are sent on one and received on the other. Connections are encrypted by CURVE with a key pair that a node creates at its
start; it publishes the public part for its peers. A connection is accepted if its key is a peer's, and a message gets
the name listed for that key when it is read: so messages of a removed peer are rejected, although its connection
remains.

libzmq's own thread works between calls. Nothing here blocks, and Python needs no thread.

- Messages that a peer does not take are dropped: two wait for it, besides TCP's buffers. The protocol must not rely on
  arrival.
- Unauthenticated connections: at most MAX_UNAUTHENTICATED, each for at most HANDSHAKE_S, and at most EVENTS of them are
  handled in one call. Beyond that the listener is closed, and the kernel rejects connections, until a call finds fewer;
  established connections continue. So unauthenticated connections can keep a peer from connecting: only nodes should
  reach this port. A listed peer can exhaust memory.

Needs pyzmq: ``pip install dets-controller[cluster]``.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

import zmq
from zmq.utils import z85

from controller.config.value_types import parse_address
from controller.errors import InvalidValueError
from controller.openflow.bounded_reader import Buffer

MAX_MESSAGE_BYTES = 64 << 20
"""of a frame; ``controller.node_protocol`` has none that is longer"""
QUEUE_LENGTH = 2  # messages per connection, on either side
UNCONFIRMED_MS = 1000  # then the kernel ends a connection whose peer acknowledges no bytes
KEEPALIVE_S = 2
HANDSHAKE_S = 2.0  # ``receive`` must be called more often
RECONNECT_MS = 100
RECONNECT_AFTER = 20  # rejected messages in a row: ZeroMQ never reconnects to a peer that rejected it
MAX_UNAUTHENTICATED = 256
EVENTS = 256
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27  # Linux constants without names in Python
_DROP_ALL = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))  # BPF: return 0
_DOMAIN = b"dets"  # without a domain ZeroMQ accepts every connection that no ZAP handler rejects
_CURVE_BYTES = 33  # added by encryption to a message
_Z85_BYTES = 40


@dataclass
class PeerTraffic:
    """Messages, and their bytes, between this node and a peer since the peer was listed."""

    sent: int = 0
    sent_octets: int = 0
    unsent: int = 0
    received: int = 0
    received_octets: int = 0
    reconnects: int = 0


@dataclass
class _Peer:
    """A listed peer, and the socket for messages to it."""

    address: str
    public_key: str
    socket: zmq.Socket[bytes]
    refused: int = 0  # rejected messages in a row


class PeerTransport:
    """The connections of one node. ``address`` is its listening address, HOST:PORT.

    ``traffic`` has the counters of each peer, ``rejections`` the rejections: ``key`` (connections with unlisted keys),
    ``handshake`` (connections that proved no key), ``frame`` (messages with keys that are no longer listed), ``flood``
    (calls after which the listener was closed for a while). Raises InvalidValueError for an address without an IP
    address, OSError if listening there fails.
    """

    def __init__(self, address: str, most_octets: int = MAX_MESSAGE_BYTES) -> None:
        host, port = _numeric("address", address)
        self._most_octets = most_octets
        self._public, self._secret = zmq.curve_keypair()
        self.public_key = self._public.decode()
        self.traffic: dict[str, PeerTraffic] = {}
        self.rejections: Counter[str] = Counter(dict.fromkeys(("key", "handshake", "frame", "flood"), 0))
        self._peers: dict[str, _Peer] = {}
        self._names: dict[str, str] = {}  # by public key
        self._open: set[int] = set()  # descriptors of accepted connections
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=MAX_UNAUTHENTICATED)
        self._listener.setblocking(False)
        self._listens = True
        self._context = zmq.Context(io_threads=1)
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind("inproc://zeromq.zap.01")
        self._inbox = self._socket(zmq.PULL, family == socket.AF_INET6)
        self._inbox.curve_server = True
        self._inbox.zap_domain = _DOMAIN
        self._inbox.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        self._inbox.setsockopt(zmq.USE_FD, os.dup(self._listener.fileno()))
        handshakes = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        self._events = self._inbox.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | handshakes)
        self._inbox.bind(f"tcp://{address}")

    def set_peers(self, peers: Mapping[str, tuple[str, str]]) -> None:
        """Set the peers: (address, public key) by name. Unchanged peers are not affected.

        Raises InvalidValueError, and changes nothing, for an address without an IP address, an invalid key, and a key
        of two peers or of this node.
        """
        names: dict[str, str] = {}
        for name, (address, key) in peers.items():
            _numeric(f"peers.{name}", address)
            if not _is_key(key):
                raise InvalidValueError(f"peers.{name}", key, f"is not a key of {_Z85_BYTES} characters in Z85")
            if key == self.public_key or names.setdefault(key, name) != name:
                raise InvalidValueError(f"peers.{name}", key, "is the key of another node")
        for name, peer in list(self._peers.items()):
            if peers.get(name) != (peer.address, peer.public_key):
                self._peers.pop(name).socket.close(0)
        for name in self.traffic.keys() - peers.keys():
            del self.traffic[name]
        for name, (address, key) in peers.items():
            if name not in self._peers:
                self.traffic.setdefault(name, PeerTraffic())
                self._peers[name] = _Peer(address, key, self._connect(address, key))
        self._names = names

    def send(self, peer: str, data: Buffer) -> bool:
        """Queue a message for a peer, and return whether it was queued. Never waits.

        A message to an unlisted peer, one that is too long, or one for which the queue has no space is dropped.
        """
        recipient = self._peers.get(peer)
        if recipient is None:
            return False
        traffic = self.traffic[peer]
        try:
            if len(data) > self._most_octets:
                raise zmq.Again  # dropped as if the queue had no space
            recipient.socket.send(data, zmq.NOBLOCK)
        except zmq.Again:
            traffic.unsent += 1
            recipient.refused += 1
            if recipient.refused >= RECONNECT_AFTER:
                recipient.socket.close(0)
                recipient.socket, recipient.refused = self._connect(recipient.address, recipient.public_key), 0
                traffic.reconnects += 1
            return False
        recipient.refused = 0
        traffic.sent += 1
        traffic.sent_octets += len(data)
        return True

    def receive(self, max_messages: int = 64) -> list[tuple[str, memoryview]]:
        """Return at most ``max_messages`` received messages, with the authenticated name of their peer.

        A call ends at the first message that exceeds ``most_octets``. Peers take turns.
        """
        self._count_connections()
        self._authenticate()
        messages, octets = list[tuple[str, memoryview]](), 0
        for _ in range(max_messages):
            try:
                frame = self._inbox.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            octets += len(frame)
            name = self._names.get(str(frame.get("User-Id")))
            if name is None:
                self.rejections["frame"] += 1
            else:
                messages.append((name, frame.buffer.toreadonly()))
                self.traffic[name].received += 1
                self.traffic[name].received_octets += len(frame)
            if octets >= self._most_octets:
                break
        return messages

    def close(self) -> None:
        """Close all connections and the listener. Unsent messages are lost."""
        if not self._context.closed:
            self._inbox.disable_monitor()
            self._context.destroy(linger=0)
            self._listener.close()

    def _socket(self, kind: int, ipv6: bool) -> zmq.Socket[bytes]:
        """Return an encrypted ZeroMQ socket with bounded queues, message sizes and time-outs."""
        sock = self._context.socket(kind)
        sock.linger = 0
        sock.sndhwm = sock.rcvhwm = QUEUE_LENGTH
        sock.maxmsgsize = self._most_octets + _CURVE_BYTES
        # No heartbeats of ZeroMQ: it aborts the process if one is due on a connection whose peer has disconnected while
        # nothing read its messages (libzmq's issue 4364), as after a pause.
        sock.tcp_maxrt = sock.connect_timeout = UNCONFIRMED_MS
        sock.tcp_keepalive, sock.tcp_keepalive_cnt = 1, 3
        sock.tcp_keepalive_idle = sock.tcp_keepalive_intvl = KEEPALIVE_S
        sock.handshake_ivl = int(1e3 * HANDSHAKE_S)
        sock.ipv6 = ipv6
        sock.curve_publickey, sock.curve_secretkey = self._public, self._secret
        return sock

    def _connect(self, address: str, public_key: str) -> zmq.Socket[bytes]:
        """Return a socket for messages to a peer; ZeroMQ connects it in the background."""
        sock = self._socket(zmq.PUSH, address.startswith("["))
        sock.immediate = True  # no queue for a disconnected peer
        sock.reconnect_ivl = RECONNECT_MS
        sock.curve_serverkey = public_key.encode()
        sock.connect(f"tcp://{address}")
        return sock

    def _authenticate(self) -> None:
        """Answer ZeroMQ's authentication requests (its RFC 27/ZAP), at most EVENTS: accept the keys of peers."""
        for _ in range(EVENTS):
            try:
                version, request, *_, key = self._zap.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            text = z85.encode(key).decode()
            status = b"200" if text in self._names else b"400"
            if status == b"400":
                self.rejections["key"] += 1
            self._zap.send_multipart([version, request, status, b"", text.encode(), b""], zmq.NOBLOCK)

    def _count_connections(self) -> None:
        """Count open connections by ZeroMQ's events, and reject new connections while there are too many.

        A packet filter of the kernel (BPF) at the listening socket rejects them.
        """
        events = 0
        while events < EVENTS:
            try:
                event, _ = self._events.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            events += 1
            kind, value = struct.unpack("=HI", event)  # the value is a file descriptor, or the reason of a failure
            if kind == zmq.EVENT_ACCEPTED:
                self._open.add(value)
            elif kind == zmq.EVENT_DISCONNECTED:
                self._open.discard(value)
            else:
                self.rejections["handshake"] += 1
        flooded = events == EVENTS or len(self._open) > MAX_UNAUTHENTICATED + len(self._peers)
        self.rejections["flood"] += flooded
        if flooded and self._listens:
            program = struct.pack("HP", 1, ctypes.addressof(_DROP_ALL))  # struct sock_fprog: one instruction, where
            self._listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        elif not flooded and not self._listens:
            self._listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        self._listens = not flooded


def _numeric(key: str, address: str) -> tuple[str, int]:
    """Return host and port; raise for a host name, whose look-up would block ZeroMQ's only thread."""
    try:
        host, port = parse_address(address)
        ip_address(host)
    except ValueError:
        raise InvalidValueError(key, address, "is not HOST:PORT with an IP address, such as 10.0.0.1:6654") from None
    return host, port


def _is_key(text: str) -> bool:
    """Return whether a text is a CURVE key in ZeroMQ's Base85 encoding (Z85)."""
    try:
        return len(text) == _Z85_BYTES and z85.encode(z85.decode(text)).decode() == text
    except (ValueError, KeyError, struct.error):
        return False
