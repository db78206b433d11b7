"""Limits of the OpenFlow port's connections, and their counts: pure, and without the framework.

A client of the port has not proven to be a switch: connections without a handshake are few, with few messages. A switch
under control may send many more, but not so many that the control loop is delayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

BUDGET_INTERVAL_S = 0.05
# So many connections that are not under control have a whole allowance each; more of them share as much.
SHARING = 10
REPEAT_S = 10.0
MAX_PORTS = 4096  # ports of a switch
_MAX_KEYS = 1000
Connection = TypeVar("Connection", bound=Hashable)


class Allowance(NamedTuple):
    """What a connection may use in BUDGET_INTERVAL_S: messages, bytes, and time to process messages.

    A reply is stored in microseconds. The processing of an asynchronous message (packet-in, port-status, flow-removed,
    error, echo) can take a hundred times as long: the first packet-in of a host adds flow entries to every switch.
    """

    messages: int
    octets: int
    processing_s: float


# A switch's whole handshake is three messages and a description of its ports.
UNMANAGED_ALLOWANCE = Allowance(messages=10, octets=256 << 10, processing_s=0.001)
SWITCH_ALLOWANCE = Allowance(messages=1000, octets=8 << 20, processing_s=0.02)


class MessageBudget:
    """What remains of a connection's allowance in the present interval. ``clock`` is monotonic.

    ``peers`` returns the number of connections that share the process's time. If they are more than SHARING, the
    intervals are longer in proportion, so that together they send no more than SHARING connections.
    """

    def __init__(self, allowance: Allowance, clock: Callable[[], float], peers: Callable[[], int] = lambda: 1) -> None:
        self._allowance = allowance
        self._clock = clock
        self._peers = peers
        self._ends_s = 0.0
        self._messages = self._octets = 0
        self._processing_s = 0.0

    def spend(self, octets: int, *, processing_s: float = 0.0, messages: int = 1) -> float:
        """Count ``messages`` with ``octets`` bytes in all; return the seconds until further ones may be read.

        ``processing_s`` is how long the asynchronous messages among them were processed.
        """
        now_s = self._clock()
        if now_s >= self._ends_s:
            self._ends_s = now_s + BUDGET_INTERVAL_S * max(self._peers() / SHARING, 1.0)
            self._messages = self._octets = 0
            self._processing_s = 0.0
        self._messages += messages
        self._octets += octets
        self._processing_s += processing_s
        limit = self._allowance
        within_limit = self._messages < limit.messages and self._octets < limit.octets
        return 0.0 if within_limit and self._processing_s < limit.processing_s else self._ends_s - now_s


class EvictionReason(StrEnum):
    """Why the controller closed a connection."""

    CROWDED = "too many connections without a handshake"
    LATE = "no handshake in time"
    VERSION = "no common version"
    AUXILIARY = "auxiliary connection"
    LENGTH = "impossible length of a message"
    UNREAD = "does not read"
    REPLY = "a reply too long"
    PORTS = "too many ports"
    CLAIM = "presents the dpid of a connected switch"
    REPLACED = "the switch has connected again"


@dataclass
class MessageCounts:
    """The messages to and from one switch, over all its connections, without echoes."""

    sent: int = 0
    received: int = 0
    errors: int = 0


@dataclass
class ConnectionCounts:
    """Counts of connections: closed ones by reason, and messages dropped unread by cause."""

    cut_off: Counter[EvictionReason] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


class ConnectionLimits(Generic[Connection]):
    """Limits the number of connections: in all, of those before the end of their handshake, and of those per host.

    If there are too many, the new connection is accepted, and an older one is closed, which is in its handshake or
    unmanaged. A switch needs only milliseconds for its handshake, so an attacker cannot keep it out by holding
    connections. Connections under control are never closed.
    """

    def __init__(self, max_connections: int, max_in_handshake: int, max_per_host: int) -> None:
        self._max, self._max_in_handshake, self._max_of_host = max_connections, max_in_handshake, max_per_host
        self._in_handshake: dict[Connection, str] = {}  # remote host of each, oldest first
        self._unmanaged: dict[Connection, None] = {}
        self._controlled: set[Connection] = set()

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._in_handshake) + len(self._unmanaged) + len(self._controlled)

    @property
    def waiting(self) -> int:
        """Return the number of connections without a handshake."""
        return len(self._in_handshake)

    def admit(self, connection: Connection, host: str) -> Iterator[Connection]:
        """Count a new connection from ``host``; yield the connections that the caller must close because of it.

        The new connection may be one of them. Each has already been removed from the counts.
        """
        self._in_handshake[connection] = host
        of_host = [other for other, other_host in self._in_handshake.items() if other_host == host]
        if len(of_host) > self._max_of_host:
            yield self._removed(of_host[0])
        while len(self._in_handshake) > self._max_in_handshake:
            yield self._removed(next(iter(self._in_handshake)))
        while len(self) > self._max:
            # The new connection itself only if all others are under control.
            oldest = next(iter(self._in_handshake))
            yield self._removed(oldest if oldest != connection else next(iter(self._unmanaged), connection))

    def on_handshake_done(self, connection: Connection) -> None:
        """Record that a connection completed its handshake."""
        if self._in_handshake.pop(connection, None) is not None:
            self._unmanaged[connection] = None

    def mark_controlled(self, connection: Connection) -> None:
        """Record that a connection is a switch under control."""
        if connection in self._unmanaged:
            del self._unmanaged[connection]
            self._controlled.add(connection)

    def leave(self, connection: Connection) -> None:
        """Record that a connection has ended; repeated calls have no effect."""
        self._in_handshake.pop(connection, None)
        self._unmanaged.pop(connection, None)
        self._controlled.discard(connection)

    def _removed(self, connection: Connection) -> Connection:
        self.leave(connection)
        return connection


class LogRateLimiter:
    """Rate limiter for log messages: each key at most once per REPEAT_S."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._logged_s: dict[Hashable, float] = {}

    def due(self, key: Hashable) -> bool:
        """Return whether a message with this key may be logged now, and record it."""
        now_s = self._clock()
        if now_s - self._logged_s.get(key, -REPEAT_S) < REPEAT_S:
            return False
        self._logged_s.pop(key, None)
        if len(self._logged_s) >= _MAX_KEYS:
            del self._logged_s[next(iter(self._logged_s))]
        self._logged_s[key] = now_s
        return True
