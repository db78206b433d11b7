"""What happens, as lines of the log, written while the control loop has nothing to do."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from controller.events import EventKind

LOG = logging.getLogger("dets.shell")
INTERVAL_S = 0.05
# So many lines are written before others in the process get their turn.
_AT_ONCE = 50


class EventLines:
    """Keeps events until somebody lets it write them: a line costs a tenth of a millisecond, a round may have hundreds.

    ``breathe`` lets others run.
    """

    def __init__(self, breathe: Callable[[], None]) -> None:
        self._breathe = breathe
        self._kept: deque[tuple[EventKind, str]] = deque()

    def note(self, kind: EventKind, text: str) -> None:
        """Take an event; it is written with the next ``write``."""
        self._kept.append((kind, text))

    def write(self) -> None:
        """Write all that was noted, in its order."""
        while self._kept:
            for _ in range(min(len(self._kept), _AT_ONCE)):
                kind, text = self._kept.popleft()
                LOG.info("%s: %s", kind, text, extra={"kind": str(kind)})
            self._breathe()
