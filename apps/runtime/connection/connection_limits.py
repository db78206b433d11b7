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
SHARING = 10  # connections without a handshake, or unmanaged, that have the whole allowance
REPEAT_S = 10.0
MAX_PORTS = 4096  # ports of a switch
_MAX_KEYS = 1000
Visitor = TypeVar("Visitor", bound=Hashable)


class Allowance(NamedTuple):
    """What a connection may send in BUDGET_INTERVAL_S: messages, bytes, and messages other than replies.

    A reply is stored in microseconds; an asynchronous message (packet-in, port-status, flow-removed, error, echo) is
    processed.
    """

    messages: int
    octets: int
    reports: int


# A switch's whole handshake is three messages and a description of its ports.
UNMANAGED_ALLOWANCE = Allowance(messages=10, octets=256 << 10, reports=5)
SWITCH_ALLOWANCE = Allowance(messages=1000, octets=8 << 20, reports=200)


class MessageBudget:
    """The remaining allowance of a connection. ``clock`` is monotonic.

    ``peers`` is the number of connections that share the process's time: if they are more than SHARING, each waits
    longer, so that together they send no more than SHARING connections.
    """

    def __init__(self, allowance: Allowance, clock: Callable[[], float], peers: Callable[[], int] = lambda: 1) -> None:
        self._allowance = allowance
        self._clock = clock
        self._peers = peers
        self._ends_s = 0.0
        self._messages = self._octets = self._reports = 0

    def spend(self, octets: int, *, report: bool, messages: int = 1) -> float:
        """Count messages with this many bytes in all; return the seconds until further ones may be read."""
        now_s = self._clock()
        if now_s >= self._ends_s:
            self._ends_s = now_s + BUDGET_INTERVAL_S * max(self._peers() / SHARING, 1.0)
            self._messages = self._octets = self._reports = 0
        self._messages += messages
        self._octets += octets
        self._reports += report
        most = self._allowance
        if self._messages < most.messages and self._octets < most.octets and self._reports < most.reports:
            return 0.0
        return self._ends_s - now_s


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


class ConnectionLimits(Generic[Visitor]):
    """Limits of connections: ``most`` in all, few of them without a handshake, and fewer from one host.

    A new connection is accepted, and the oldest removable one is closed: a switch needs milliseconds for its handshake,
    so an attacker cannot keep all slots. Connections under control are never closed.
    """

    def __init__(self, max_connections: int, most_waiting: int, most_waiting_of_host: int) -> None:
        self._most, self._most_waiting, self._most_of_host = max_connections, most_waiting, most_waiting_of_host
        self._waiting: dict[Visitor, str] = {}  # remote host of each, oldest first
        self._strangers: dict[Visitor, None] = {}
        self._kept: set[Visitor] = set()

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._waiting) + len(self._strangers) + len(self._kept)

    @property
    def waiting(self) -> int:
        """Return the number of connections without a handshake."""
        return len(self._waiting)

    def admit(self, visitor: Visitor, host: str) -> Iterator[Visitor]:
        """Count a new connection; yield the connections to close for it, maybe itself.

        Each has already been removed.
        """
        self._waiting[visitor] = host
        of_host = [other for other, other_host in self._waiting.items() if other_host == host]
        if len(of_host) > self._most_of_host:
            yield self._removed(of_host[0])
        while len(self._waiting) > self._most_waiting:
            yield self._removed(next(iter(self._waiting)))
        while len(self) > self._most:
            waiting = next(iter(self._waiting))
            yield self._removed(waiting if waiting != visitor else next(iter(self._strangers), visitor))

    def on_handshake_done(self, visitor: Visitor) -> None:
        """Record that a connection completed its handshake."""
        if self._waiting.pop(visitor, None) is not None:
            self._strangers[visitor] = None

    def mark_controlled(self, visitor: Visitor) -> None:
        """Record that a connection is a switch under control."""
        if visitor in self._strangers:
            del self._strangers[visitor]
            self._kept.add(visitor)

    def leave(self, visitor: Visitor) -> None:
        """Record that a connection has ended; repeated calls have no effect."""
        self._waiting.pop(visitor, None)
        self._strangers.pop(visitor, None)
        self._kept.discard(visitor)

    def _removed(self, visitor: Visitor) -> Visitor:
        self.leave(visitor)
        return visitor


class LogRateLimiter:
    """Rate limiter for log messages: each key at most once per REPEAT_S."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._said_s: dict[Hashable, float] = {}

    def due(self, key: Hashable) -> bool:
        """Return whether a message with this key may be logged now, and record it."""
        now_s = self._clock()
        if now_s - self._said_s.get(key, -REPEAT_S) < REPEAT_S:
            return False
        self._said_s.pop(key, None)
        if len(self._said_s) >= _MAX_KEYS:
            del self._said_s[next(iter(self._said_s))]
        self._said_s[key] = now_s
        return True
