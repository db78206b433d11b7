"""The latest events, oldest first, for people and programs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, takewhile
from operator import attrgetter
from typing import Literal

from controller.columns import IntArray

NAMED_BURST, NAMED_PER_S = 100.0, 10.0
"""Hosts and switches can cause an event for each VN or pair, repeatedly: this many of a kind have a text."""
SUMMARY_INTERVAL_S = 1.0
"""Interval of the counts of suppressed events."""


class EventKind(StrEnum):
    """The kinds of events."""

    SWITCH_UP = "switch-up"
    SWITCH_DOWN = "switch-down"
    LINK_UP = "link-up"
    LINK_DOWN = "link-down"
    PORT_UP = "port-up"
    PORT_DOWN = "port-down"
    PORT_ABSENT = "port-absent"
    PORT_FENCED = "port-fenced"
    PORT_FREED = "port-freed"
    PORT_SLOW = "port-slow"
    CONGESTION_BEGAN = "congestion-began"
    CONGESTION_ENDED = "congestion-ended"
    CONGESTION_NOTIFICATION_SENT = "congestion-notification-sent"
    LINK_HEADROOM_SHORT = "link-headroom-short"
    GUARANTEE_VIOLATED = "guarantee-violated"
    GUARANTEE_RESTORED = "guarantee-restored"
    LIMIT_CHANGED = "limit-changed"
    ALGORITHM_CHANGED = "algorithm-changed"
    OVERRIDE_INACTIVE = "override-inactive"
    FLOOD_BEGAN = "flood-began"
    FLOOD_ENDED = "flood-ended"
    HOST_MOVED = "host-moved"
    HOST_LIMIT_REACHED = "host-limit-reached"
    HOST_FLAPPING = "host-flapping"
    HOST_TWICE = "host-twice"
    LOOP_SUSPECTED = "loop-suspected"
    OUT_OF_METERS = "out-of-meters"
    COUNTERS_IMPLAUSIBLE = "counters-implausible"
    TABLES_REPAIRED = "tables-repaired"
    SWITCH_ERROR = "switch-error"
    SWITCH_EVICTED = "switch-evicted"
    DPID_CONFLICT = "dpid-conflict"
    AGENT_UP = "agent-up"
    AGENT_LOST = "agent-lost"
    AGENT_DISTRUSTED = "agent-distrusted"
    ENFORCEABILITY_CHANGED = "enforceability-changed"
    QUEUE_WRITE_FAILED = "queue-write-failed"
    ECN_MARKS_UNAVAILABLE = "ecn-marks-unavailable"
    STORE_WRITE_FAILED = "store-write-failed"
    RELOAD_FAILED = "reload-failed"


Severity = Literal["info", "warning", "critical"]

_CRITICAL = frozenset(
    {
        EventKind.SWITCH_DOWN,
        EventKind.GUARANTEE_VIOLATED,
        EventKind.LINK_DOWN,
        EventKind.LOOP_SUSPECTED,
        EventKind.PORT_FENCED,
        EventKind.STORE_WRITE_FAILED,
    }
)
_INFO = frozenset(
    {
        EventKind.SWITCH_UP,
        EventKind.LINK_UP,
        EventKind.PORT_UP,
        EventKind.PORT_DOWN,
        EventKind.PORT_FREED,
        EventKind.CONGESTION_BEGAN,
        EventKind.CONGESTION_ENDED,
        EventKind.CONGESTION_NOTIFICATION_SENT,
        EventKind.GUARANTEE_RESTORED,
        EventKind.LIMIT_CHANGED,
        EventKind.ALGORITHM_CHANGED,
        EventKind.FLOOD_ENDED,
        EventKind.HOST_MOVED,
    }
)


def severity_of(kind: EventKind) -> Severity:
    """Return whether an event is routine, should be investigated, or affects tenants now."""
    return "critical" if kind in _CRITICAL else "info" if kind in _INFO else "warning"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: ``number`` grows by one, ``at_s`` is the controller's clock.

    ``vlan_vid``, ``switch`` (its name) and ``port_no`` give its location, if it has one.
    """

    number: int
    at_s: float
    kind: EventKind
    text: str
    vlan_vid: int | None = None
    switch: str | None = None
    port_no: int | None = None


@dataclass
class EventLog:
    """The last ``keep`` events of each severity, and ``counts``, the number of events of each kind.

    Routine events, which hosts can cause, never evict events of a higher severity. ``on_event`` is called with every
    event as it happens.
    """

    on_event: Callable[[EventKind, str], None] | None = None
    keep: int = 1000
    counts: Counter[EventKind] = field(default_factory=Counter)
    _events: defaultdict[Severity, deque[Event]] = field(default_factory=lambda: defaultdict(deque))
    last: int = 0  # the number of the last one, 0 before the first
    # The number of allowed events, and the time of that number.
    _tokens: dict[EventKind, tuple[float, float]] = field(default_factory=dict)
    _unnamed: Counter[EventKind] = field(default_factory=Counter)
    _summary_s: float = -math.inf

    def add(
        self,
        kind: EventKind,
        text: str,
        at_s: float,
        vlan_vid: int | None = None,
        switch: str | None = None,
        port_no: int | None = None,
    ) -> Event:
        """Add an event, with its location."""
        self.counts[kind] += 1
        self.last += 1
        event = Event(self.last, at_s, kind, text, vlan_vid, switch, port_no)
        events = self._events[severity_of(kind)]
        events.append(event)
        if len(events) > self.keep:
            events.popleft()
        if self.on_event is not None:
            self.on_event(kind, text)
        return event

    def limit_named(self, kind: EventKind, rows: IntArray, at_s: float) -> list[int]:
        """Return the first of ``rows`` that may get an event of their own; each row causes one of this kind.

        A token bucket for each kind allows NAMED_BURST events at once and NAMED_PER_S a second. The caller adds the
        events of the returned rows; the others are counted here, for ``report_suppressed``.
        """
        room, since_s = self._tokens.get(kind, (NAMED_BURST, at_s))
        room = min(room + NAMED_PER_S * (at_s - since_s), NAMED_BURST)
        found: list[int] = rows[: int(room)].tolist()
        self._tokens[kind] = room - len(found), at_s
        if len(found) < len(rows):
            self._unnamed[kind] += len(rows) - len(found)
            self.counts[kind] += len(rows) - len(found)
        return found

    def report_suppressed(self, at_s: float) -> None:
        """Add, at intervals, the number of suppressed events of each kind; call it every interval."""
        if not self._unnamed or at_s - self._summary_s < SUMMARY_INTERVAL_S:
            return
        unnamed, self._unnamed, self._summary_s = self._unnamed, Counter(), at_s
        for kind, number in unnamed.items():
            self.add(kind, f"{number} more without a text: too many at once", at_s)
            self.counts[kind] -= 1  # the summary is not another event of that kind

    def newer_than(self, number: int) -> list[Event]:
        """Return the kept events with a higher number."""
        newer = [takewhile(lambda event: event.number > number, reversed(events)) for events in self._events.values()]
        return sorted(chain.from_iterable(newer), key=attrgetter("number"))
