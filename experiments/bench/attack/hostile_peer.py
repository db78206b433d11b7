"""An OpenFlow peer that sends arbitrary bytes over a plain socket, and reads only on request."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Self

from controller.openflow import constants as ofp
from controller.openflow.bounded_reader import HEADER
from controller.openflow.constants import MessageType, MultipartType
from experiments.switch.datapath import Datapath

TIMEOUT_S = 2.0
HOSTILE_DPID = 4  # the attacker's switch, which is configured
Address = tuple[str, int]
AttackFunction = Callable[[Address, float], None]  # of a controller at an address, until a time
_PAUSE_S = 0.02
_FEATURES = Struct("!QIBB2xII")
_MULTIPART = Struct("!HH4x")
_CHUNK_BYTES = 1 << 20
# A controller sends this many requests before a switch is under control and its counters are read: among them one for
# each setting that is tried on a meter.
_REQUESTS_UNTIL_READY = 24


def message(message_type: int, body: bytes = b"", xid: int = 0, version: int = ofp.VERSION) -> bytes:
    """Return one message."""
    return HEADER.pack(version, message_type, HEADER.size + len(body), xid) + body


def multipart_reply(part_type: int, body: bytes = b"", xid: int = 0, *, more: bool = False) -> bytes:
    """Return one part of a multipart reply."""
    return message(MessageType.MULTIPART_REPLY, _MULTIPART.pack(part_type, int(more)) + body, xid)


def features_reply(dpid: int, xid: int, auxiliary_id: int = 0) -> bytes:
    """Return a features reply of a switch with 254 tables."""
    # 0x47: the switch has statistics of flows, tables, ports and queues.
    return message(MessageType.FEATURES_REPLY, _FEATURES.pack(dpid, 0, 254, auxiliary_id, 0x47, 0), xid)


class HostilePeer:
    """A connection to a controller's OpenFlow port; a context manager. ``closed`` once the controller has closed it.

    ``receive_bytes`` makes the socket's receive buffer small, so that the controller's sends soon block. ``tls``
    encrypts the connection.
    """

    def __init__(
        self, address: tuple[str, int], receive_bytes: int | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._socket: socket.socket = socket.socket()
        if receive_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.connect(address)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
        self.closed = False
        self._rest = self._unsent = b""
        self._unread: deque[bytes] = deque()  # messages received before an awaited one

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
        self.closed = True

    def send(self, data: bytes) -> bool:
        """Send all; return whether the connection is open. Reads nothing. Waits TIMEOUT_S for a full socket."""
        if self.closed:
            return False
        try:
            self._socket.sendall(data)
        except TimeoutError:
            return True  # the socket is full; bytes after a partial message are garbage
        except OSError:
            self.closed = True
        return not self.closed

    def send_some(self, data: bytes) -> None:
        """Send as much as the socket takes now. The rest is sent first by the next call, which ignores its ``data``."""
        if self.closed:
            return
        self._unsent = self._unsent or data
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def read(self, timeout_s: float = TIMEOUT_S) -> list[bytes]:
        """Return the complete messages received, waiting for data at most ``timeout_s``; [] if none comes."""
        if self._unread:
            unread = list(self._unread)
            self._unread.clear()
            return unread
        if self.closed or not select.select([self._socket], [], [], timeout_s)[0]:
            return []
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except OSError:
            data = b""
        self.closed = not data
        self._rest += data
        messages = []
        while len(self._rest) >= HEADER.size:
            length = HEADER.unpack_from(self._rest)[2]
            if len(self._rest) < length:
                break
            messages.append(self._rest[:length])
            self._rest = self._rest[length:]
        return messages

    def wait_closed(self, timeout_s: float) -> bool:
        """Read until the controller closes the connection; return whether it did in time."""
        deadline_s = time.monotonic() + timeout_s
        while not self.closed and time.monotonic() < deadline_s:
            self.read(0.1)
        return self.closed

    def await_message(self, message_type: int, timeout_s: float = TIMEOUT_S) -> bytes | None:
        """Return the next message of a type; None if none comes in time."""
        deadline_s = time.monotonic() + timeout_s
        while not self.closed and time.monotonic() < deadline_s:
            received = self.read(0.1)
            for number, candidate in enumerate(received, 1):
                if candidate[1] == message_type:
                    self._unread.extend(received[number:])
                    return candidate
        return None

    def shake_hands(self, dpid: int, auxiliary_id: int = 0) -> bool:
        """Do the OpenFlow handshake; return whether the controller completed it."""
        self.send(message(MessageType.HELLO))
        request = self.await_message(MessageType.FEATURES_REQUEST)
        if request is None:
            return False
        self.send(features_reply(dpid, HEADER.unpack_from(request)[3], auxiliary_id))
        request = self.await_message(MessageType.MULTIPART_REQUEST)
        if request is None:
            return False
        return self.send(multipart_reply(MultipartType.PORT_DESC, b"", HEADER.unpack_from(request)[3]))

    def behave(self, switch: Datapath, until: Callable[[], bool], timeout_s: float = 10.0) -> bool:
        """Behave as an honest switch until a condition holds; return whether it held in time."""
        deadline_s = time.monotonic() + timeout_s
        while not self.closed and time.monotonic() < deadline_s:
            self.send(switch.drain_messages())
            if until():
                return True
            for message in self.read(0.01):
                switch.receive(message, time.monotonic())
            switch.advance(time.monotonic())
        return False

    def become_ready(self, dpid: int, ports: int = 2) -> Datapath | None:
        """Be brought up as an honest switch with ``ports`` ports; return it, or None if the controller rejects it."""
        switch = Datapath(dpid)
        for port_no in range(1, ports + 1):
            switch.add_port(port_no, 1e9, time.monotonic())

        def has_been_polled() -> bool:
            return switch.handled.get(MessageType.MULTIPART_REQUEST, 0) >= _REQUESTS_UNTIL_READY

        switch.drain_messages()
        switch.start_connection()
        return switch if self.behave(switch, has_been_polled) else None


@contextmanager
def open_connections(address: tuple[str, int], count: int) -> Iterator[list[HostilePeer]]:
    """Hold open as many connections as the controller accepts, ``count`` at most."""
    peers: list[HostilePeer] = []
    try:
        for _ in range(count):
            try:
                peers.append(HostilePeer(address))
            except OSError:
                break
        yield peers
    finally:
        for peer in peers:
            peer.close()


def reconnecting(receive_bytes: int | None = None) -> Callable[[Callable[[HostilePeer, float], None]], AttackFunction]:
    """Make an attack of what one connection does until a time: the attack connects and does it, repeatedly.

    ``receive_bytes`` is that of ``HostilePeer``.
    """

    def attack_of(work: Callable[[HostilePeer, float], None]) -> AttackFunction:
        def attack(address: Address, until_s: float) -> None:
            while time.monotonic() < until_s:
                try:
                    with HostilePeer(address, receive_bytes) as peer:
                        work(peer, until_s)
                except OSError:
                    pass
                time.sleep(_PAUSE_S)

        return attack

    return attack_of
