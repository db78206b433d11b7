"""The controller's events in a soak: which of them tell of trouble, and when a restart explains them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controller.events import EventKind

TROUBLE = {
    EventKind.TABLES_MENDED,
    EventKind.SWITCH_REFUSED,
    EventKind.QUEUES_FAILED,
    EventKind.COUNTERS_IMPLAUSIBLE,
    EventKind.OUT_OF_METERS,
    EventKind.HOSTS_FULL,
    EventKind.STORE_REFUSED,
    EventKind.RELOAD_FAILED,
}
# A controller that has just started finds what ran out while it was away, and its first audits remove that.
MENDS_AFTER_START_S = 25.0


def troubles(events: Iterable[dict[str, Any]], started_s: float) -> list[tuple[float, str]]:
    """Return (time, text) of the events that need an explanation and have none; ``started_s`` is the controller's."""
    found = []
    for event in events:
        late = event["at_s"] - started_s > MENDS_AFTER_START_S
        if event["kind"] in TROUBLE and (late or event["kind"] != EventKind.TABLES_MENDED):
            found.append((event["at_s"], f"{event['kind']}: {event['text']}"))
    return found
