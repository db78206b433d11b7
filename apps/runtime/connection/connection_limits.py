"""What a peer of the OpenFlow port may take of the process, and what peers have done: pure, and without the framework.

Nobody who reaches the port has shown yet that it is a switch: connections without a handshake are few, and bring few
messages. A switch under control may bring many more, but not so many that the control loop waits for its turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

BUDGET_INTERVAL_S = 0.05
SHARING = 10  # so many peers without a handshake, or not configured, have their whole allowance
REPEAT_S = 10.0
MAX_PORTS = 4096  # of a switch
_MAX_KEYS = 1000
Visitor = TypeVar("Visitor", bound=Hashable)


class Allowance(NamedTuple):
    """What a peer may bring in BUDGET_INTERVAL_S: messages, bytes, and messages that are more than a reply.

    A reply is put aside in microseconds; a report (packet-in, port-status, flow-removed, error, echo) is acted upon.
    """

    messages: int
    octets: int
    reports: int


# The whole handshake of a switch is three messages and a description of its ports.
UNMANAGED_ALLOWANCE = Allowance(messages=10, octets=256 << 10, reports=5)
SWITCH_ALLOWANCE = Allowance(messages=1000, octets=8 << 20, reports=200)


class MessageBudget:
    """What is left of a peer's allowance. ``clock`` is monotonic.

    ``peers`` is how many peers share the process's time: of more than SHARING each waits for longer, so that all of
    them together bring no more than SHARING do.
    """

    def __init__(self, allowance: Allowance, clock: Callable[[], float], peers: Callable[[], int] = lambda: 1) -> None:
        self._allowance = allowance
        self._clock = clock
        self._peers = peers
        self._ends_s = 0.0
        self._messages = self._octets = self._reports = 0

    def spend(self, octets: int, *, report: bool, messages: int = 1) -> float:
        """Count messages of so many bytes in all; return for how many seconds no further ones may be taken."""
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
    CLAIM = "claims a switch that is connected"
    REPLACED = "the switch has connected again"


@dataclass
class MessageCounts:
    """What went to and came from one switch, over all its connections, but for the echoes."""

    sent: int = 0
    received: int = 0
    errors: int = 0


@dataclass
class ConnectionCounts:
    """What peers have done: connections cut off by reason, and messages dropped unread by what is wrong with them."""

    cut_off: Counter[EvictionReason] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


class ConnectionLimits(Generic[Visitor]):
    """Who may stay: ``most`` connections in all, of which few without a handshake, and fewer of one host.

    A newcomer is let in and the oldest one that may not stay goes: a switch needs milliseconds for its handshake, and
    whoever fills all places cannot keep them. Connections under control never go.
    """

    def __init__(self, max_connections: int, most_waiting: int, most_waiting_of_host: int) -> None:
        self._most, self._most_waiting, self._most_of_host = max_connections, most_waiting, most_waiting_of_host
        self._waiting: dict[Visitor, str] = {}  # by age; the host that each came from
        self._strangers: dict[Visitor, None] = {}
        self._kept: set[Visitor] = set()

    def __len__(self) -> int:
        """Return how many connections there are."""
        return len(self._waiting) + len(self._strangers) + len(self._kept)

    @property
    def waiting(self) -> int:
        """How many have not done their handshake."""
        return len(self._waiting)

    def admit(self, visitor: Visitor, host: str) -> Iterator[Visitor]:
        """Count a newcomer; yield whom to cut off for it, which may be itself. Each has left already."""
        self._waiting[visitor] = host
        of_host = [one for one, its_host in self._waiting.items() if its_host == host]
        if len(of_host) > self._most_of_host:
            yield self._gone(of_host[0])
        while len(self._waiting) > self._most_waiting:
            yield self._gone(next(iter(self._waiting)))
        while len(self) > self._most:
            waiting = next(iter(self._waiting))
            yield self._gone(waiting if waiting != visitor else next(iter(self._strangers), visitor))

    def on_handshake_done(self, visitor: Visitor) -> None:
        """Note that a visitor has done its handshake."""
        if self._waiting.pop(visitor, None) is not None:
            self._strangers[visitor] = None

    def mark_controlled(self, visitor: Visitor) -> None:
        """Note that a visitor is a switch under control."""
        if visitor in self._strangers:
            del self._strangers[visitor]
            self._kept.add(visitor)

    def leave(self, visitor: Visitor) -> None:
        """Note that a visitor has gone, for the first time or again."""
        self._waiting.pop(visitor, None)
        self._strangers.pop(visitor, None)
        self._kept.discard(visitor)

    def _gone(self, visitor: Visitor) -> Visitor:
        self.leave(visitor)
        return visitor


class LogRateLimiter:
    """Says the same no more than once in REPEAT_S, however often there is reason to."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._said_s: dict[Hashable, float] = {}

    def due(self, key: Hashable) -> bool:
        """Whether it is time to say it (again); then it counts as said."""
        now_s = self._clock()
        if now_s - self._said_s.get(key, -REPEAT_S) < REPEAT_S:
            return False
        self._said_s.pop(key, None)
        if len(self._said_s) >= _MAX_KEYS:
            del self._said_s[next(iter(self._said_s))]
        self._said_s[key] = now_s
        return True
