"""Bytes to and from the sockets of switches: a bounded queue for each (docs/adr/0077), one reader for all of them.

The queue never makes the sender wait. The reader is one greenlet, which serves all switches that have replied in one
turn: with a greenlet for each socket, each reply costs two greenlet switches and two registrations with the hub
(docs/adr/0150).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from eventlet import hubs, patcher
from ryu.lib import hub

from apps.runtime.sockets.bulk_request import BulkBarrier, BulkMeterStats
from apps.runtime.sockets.socket_reader import ReceivedBytes, SocketReader
from controller.openflow.bounded_reader import Buffer

_select = patcher.original("select")  # eventlet removes epoll from the patched module
# A controlled switch may be sent 100,000 flow entries at once; other connections get next to nothing.
MAX_UNREAD_BYTES = 32 << 20
MAX_UNREAD_UNMANAGED_BYTES = 1 << 20
_SEND_BYTES = 64 << 10
# Switches reply one after the other: a poll this long after the last reply finds several.
BATCH_DELAY_S = 0.0005


class SendQueue:
    """Queued bytes for one connection. ``octets`` is the number of bytes that the socket has not accepted yet.

    ``plain`` is the non-blocking socket below ``sock``, None if the connection is encrypted. While the queue is empty,
    ``put`` sends through it at once, without a switch to the greenlet that runs ``send_all``.
    """

    def __init__(self, sock: Any, plain: Any = None) -> None:
        self._socket = sock
        self._plain = plain
        self._unsent: deque[Buffer] = deque()
        self._most_octets = MAX_UNREAD_UNMANAGED_BYTES
        self._changed = hub.Event()
        self._ended = False
        self.octets = 0
        self.closing = False

    def raise_limit(self) -> None:
        """Raise the limit of unread bytes to that of a switch under control."""
        self._most_octets = MAX_UNREAD_BYTES

    def put(self, data: Buffer, last: bool = False) -> bool:
        """Queue bytes, after which no more follow if ``last``; return False if the queue is above its limit."""
        if self._plain is not None and not self.octets:
            data = data[self._send_now(data) :]
            if not data and not last:
                return True
        self._unsent.append(data)
        self.octets += len(data)
        if self.octets > self._most_octets:
            return False
        self.closing = last
        self._changed.set()
        return True

    def _send_now(self, data: Buffer) -> int:
        """Send bytes without waiting; return the number of bytes that the socket accepted."""
        try:
            accepted: int = self._plain.send(data)
        except OSError:  # its buffer is full, or it was closed: ``send_all`` waits, or gets the error
            return 0
        return accepted

    def end(self) -> None:
        """Discard the queue; ``send_all`` returns."""
        self._ended = True
        self._unsent.clear()
        self._changed.set()

    def send_all(self) -> None:
        """Send queued bytes, and wait for more, until ``end`` or the last bytes; raise OSError as the socket does."""
        while not self._ended:
            if not self._unsent:
                if self.closing:
                    return
                self._changed.clear()
                self._changed.wait()
                continue
            data = self._next_bytes()
            self._socket.sendall(memoryview(data))
            self.octets -= len(data)

    def _next_bytes(self) -> Buffer:
        """Remove and return the next bytes to send: short messages are joined, up to _SEND_BYTES."""
        first = self._unsent.popleft()
        if not self._unsent or len(first) >= _SEND_BYTES:
            return first
        joined, octets = [first], len(first)
        while self._unsent and octets + len(self._unsent[0]) <= _SEND_BYTES:
            joined.append(self._unsent.popleft())
            octets += len(joined[-1])
        return b"".join(joined)


class SharedReader:
    """Reads all sockets, and passes the bytes of each to the callback of the socket. Callbacks must not wait.

    The sockets stay registered with an epoll instance of their own; the hub waits for that instance alone.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.meters, self.barriers = BulkMeterStats(), BulkBarrier()
        self._on_arrival: dict[int, Callable[[ReceivedBytes], bool]] = {}
        self._inbox, self._clock = SocketReader(self.meters, self.barriers), clock
        self._epoll = _select.epoll()
        self._running = False

    def watch(self, fileno: int, on_arrival: Callable[[ReceivedBytes], bool]) -> None:
        """Call ``on_arrival`` whenever bytes arrive, until it returns False."""
        if not self._running:
            self._running = True
            hub.spawn(self._run)
        self._on_arrival[fileno] = on_arrival
        self._epoll.register(fileno, _select.EPOLLIN)

    def forget(self, fileno: int) -> None:
        """Stop watching a socket; call it before closing the socket. A socket that is not watched is ignored."""
        if self._on_arrival.pop(fileno, None) is not None:
            self._epoll.unregister(fileno)

    def _run(self) -> None:
        """Read for ever: wait by the hub for the first bytes, then poll while more are expected soon."""
        while True:
            hubs.trampoline(self._epoll.fileno(), read=True)
            if self._pending_bulk_replies() > 1:  # other switches reply about now: one poll may find all replies
                hub.sleep(BATCH_DELAY_S)
            while self._poll():  # a short sleep costs less than a wait by the hub, which takes two registrations
                hub.sleep(BATCH_DELAY_S)

    def _poll(self) -> bool:
        """Read available bytes; return whether more are expected soon."""
        ready = self._epoll.poll(0)
        if not ready:
            return False
        bulk_was_pending, received_other_bytes = self._pending_bulk_replies() > 0, False
        for arrival in self._inbox.receive([fileno for fileno, _events in ready], self._clock()):
            received_other_bytes = True
            on_arrival = self._on_arrival.get(arrival.fileno)
            if on_arrival is not None and not on_arrival(arrival):
                self.forget(arrival.fileno)
        if not bulk_was_pending:
            return True  # one message often follows another
        self.meters.notify_if_done()  # nobody waits for the bulk request for barriers
        return received_other_bytes or self._pending_bulk_replies() > 0

    def _pending_bulk_replies(self) -> int:
        """Return the number of pending replies to bulk requests."""
        return int(self.meters.pending_count[0] + self.barriers.pending_count[0])
