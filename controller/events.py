"""What happened, for people and programs to read: the last events, newest last."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class EventKind(StrEnum):
    """The kinds of events."""

    SWITCH_UP = "switch-up"
    SWITCH_DOWN = "switch-down"
    LINK_UP = "link-up"
    LINKS_DOWN = "links-down"
    CONGESTION_BEGAN = "congestion-began"
    CONGESTION_ENDED = "congestion-ended"
    CONGESTION_NOTIFIED = "congestion-notified"
    HEADROOM_MISSING = "headroom-missing"
    GUARANTEE_MISSED = "guarantee-missed"
    GUARANTEE_MET = "guarantee-met"
    LIMIT_CHANGED = "limit-changed"
    ALGORITHM_CHANGED = "algorithm-changed"
    OVERRIDE_INACTIVE = "override-inactive"
    FLOOD_BEGAN = "flood-began"
    FLOOD_ENDED = "flood-ended"
    HOSTS_FULL = "hosts-full"
    HOSTS_FLAP = "hosts-flap"
    OUT_OF_METERS = "out-of-meters"
    COUNTERS_IMPLAUSIBLE = "counters-implausible"
    TABLES_MENDED = "tables-mended"
    SWITCH_REFUSED = "switch-refused"
    SWITCH_CUT_OFF = "switch-cut-off"
    SWITCH_CLAIMED = "switch-claimed"
    AGENT_UP = "agent-up"
    AGENT_LOST = "agent-lost"
    AGENT_MISTRUSTED = "agent-mistrusted"
    ENFORCEABLE = "enforceable"
    QUEUES_FAILED = "queues-failed"
    MARKS_UNCOUNTED = "marks-uncounted"
    STORE_REFUSED = "store-refused"
    RELOAD_FAILED = "reload-failed"


Severity = Literal["info", "warning", "critical"]

_CRITICAL = frozenset(
    {EventKind.SWITCH_DOWN, EventKind.GUARANTEE_MISSED, EventKind.LINKS_DOWN, EventKind.STORE_REFUSED}
)
_INFO = frozenset(
    {
        EventKind.SWITCH_UP,
        EventKind.LINK_UP,
        EventKind.CONGESTION_BEGAN,
        EventKind.CONGESTION_ENDED,
        EventKind.CONGESTION_NOTIFIED,
        EventKind.GUARANTEE_MET,
        EventKind.LIMIT_CHANGED,
        EventKind.ALGORITHM_CHANGED,
        EventKind.FLOOD_ENDED,
    }
)


def severity_of(kind: EventKind) -> Severity:
    """Return whether an event is what happens every day, should be looked into, or hurts tenants now."""
    return "critical" if kind in _CRITICAL else "info" if kind in _INFO else "warning"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: ``number`` grows by one, ``at_s`` is the controller's clock.

    ``vlan_vid``, ``switch`` (its name) and ``port_no`` say where, as far as it is about one place.
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
    """The last ``keep`` events, and ``counts``, how many there were of each kind.

    ``on_event`` is called with every event as it happens.
    """

    on_event: Callable[[EventKind, str], None] | None = None
    keep: int = 1000
    counts: Counter[EventKind] = field(default_factory=Counter)
    _events: deque[Event] = field(default_factory=deque)
    _number: int = 0

    def add(
        self,
        kind: EventKind,
        text: str,
        at_s: float,
        vlan_vid: int | None = None,
        switch: str | None = None,
        port_no: int | None = None,
    ) -> Event:
        """Note an event, and where it is."""
        self._number += 1
        self.counts[kind] += 1
        event = Event(self._number, at_s, kind, text, vlan_vid, switch, port_no)
        self._events.append(event)
        if len(self._events) > self.keep:
            self._events.popleft()
        if self.on_event is not None:
            self.on_event(kind, text)
        return event

    def after(self, number: int) -> list[Event]:
        """Return the kept events with a higher number."""
        return [event for event in self._events if event.number > number]
