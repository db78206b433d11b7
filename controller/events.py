"""What happened, for people and programs to read: the last events, newest last."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class EventKind(StrEnum):
    """The kinds of events."""

    SWITCH_UP = "switch-up"
    SWITCH_DOWN = "switch-down"
    LINK_UP = "link-up"
    LINKS_DOWN = "links-down"
    CONGESTION_BEGAN = "congestion-began"
    CONGESTION_ENDED = "congestion-ended"
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
    ENFORCEABLE = "enforceable"
    QUEUES_FAILED = "queues-failed"
    STORE_REFUSED = "store-refused"
    RELOAD_FAILED = "reload-failed"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: ``number`` grows by one, ``at_s`` is the controller's clock."""

    number: int
    at_s: float
    kind: EventKind
    text: str


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

    def add(self, kind: EventKind, text: str, at_s: float) -> Event:
        """Note an event."""
        self._number += 1
        self.counts[kind] += 1
        event = Event(self._number, at_s, kind, text)
        self._events.append(event)
        if len(self._events) > self.keep:
            self._events.popleft()
        if self.on_event is not None:
            self.on_event(kind, text)
        return event

    def after(self, number: int) -> list[Event]:
        """Return the kept events with a higher number."""
        return [event for event in self._events if event.number > number]
