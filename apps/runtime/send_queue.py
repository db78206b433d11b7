"""Bytes that wait until a peer reads them: a bounded queue that never makes the sender wait (docs/adr/0077)."""

from __future__ import annotations

from collections import deque
from typing import Any

from ryu.lib import hub

# A switch under control may be sent 100,000 entries at once; a stranger gets next to nothing.
MOST_UNREAD_BYTES = 32 << 20
MOST_UNREAD_BY_STRANGER_BYTES = 1 << 20
_SEND_BYTES = 64 << 10


class SendQueue:
    """What waits to be sent to one peer. ``octets`` counts what the peer's socket has not taken yet."""

    def __init__(self, sock: Any) -> None:
        self._socket = sock
        self._unsent: deque[bytes] = deque()
        self._most_octets = MOST_UNREAD_BY_STRANGER_BYTES
        self._changed = hub.Event()
        self._ended = False
        self.octets = 0
        self.closing = False

    def allow_switch(self) -> None:
        """Let as much wait as a switch under control may leave unread."""
        self._most_octets = MOST_UNREAD_BYTES

    def put(self, data: bytes, last: bool = False) -> bool:
        """Add bytes, after which nothing follows if ``last``; return False if more wait than the peer may leave."""
        self._unsent.append(data)
        self.octets += len(data)
        if self.octets > self._most_octets:
            return False
        self.closing = last
        self._changed.set()
        return True

    def end(self) -> None:
        """Discard what waits; ``send_all`` returns."""
        self._ended = True
        self._unsent.clear()
        self._changed.set()

    def send_all(self) -> None:
        """Send what is put until the queue ends or the last bytes are sent; raise OSError as the socket does."""
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
