"""Format of the log: lines for people or JSON for programs, the framework's messages included.

The framework's command line sets the destination (``--log-file``, ``--use-syslog``); a ``--log-config-file`` also sets
the format.
"""

from __future__ import annotations

import io
import logging
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, TextIO

import structlog

from controller.events import EventKind
from controller.printable import printable

LogFormat = Literal["console", "json"]
FORMATS: tuple[LogFormat, ...] = ("console", "json")


def set_format(log_format: LogFormat) -> None:
    """Set the format of all handlers of the root logger: ``console`` or ``json``.

    Each line has the time in UTC, the level and the logger; the ``extra`` of a call becomes fields in JSON.
    """
    for handler in logging.getLogger().handlers:
        on_terminal = isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stderr, sys.stdout)
        handler.setFormatter(_formatter(log_format, colors=on_terminal and sys.stderr.isatty()))


def set_level(level: str) -> None:
    """Log messages of this level and above: ``debug``, ``info``, ``warning`` or ``error``."""
    logging.getLogger().setLevel(level.upper())


def _formatter(log_format: LogFormat, *, colors: bool) -> logging.Formatter:
    """Return the formatter of log lines, as JSON or as text."""
    renderers: list[structlog.typing.Processor]
    if log_format == "json":
        renderers = [
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(),
        ]
    else:
        renderers = [_printable, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=_traceback)]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.stdlib.ExtraAdder(),
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )


def _printable(logger: Any, name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape unprintable characters in texts, which may include names from hosts, switches and clients."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = _escape(value)
    return event


def _traceback(stream: TextIO, exc_info: structlog.typing.ExcInfo) -> None:
    """Write a traceback, with unprintable characters escaped."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    stream.write(_escape(text.getvalue()))


def _escape(text: str) -> str:
    """Escape unprintable characters, and indent all lines but the first, so that none looks like a line of the log."""
    return printable(text, keep="\n").replace("\n", "\n    ")


LOG = logging.getLogger("dets.southbound")
# Lines written before other greenlets run.
_BATCH_SIZE = 50
MAX_LINES = 10_000  # lines waiting to be written


class EventLines:
    """Queues events for the log: a line costs a tenth of a millisecond, and a round may have hundreds.

    ``yield_control`` lets others run; ``filled`` is an event of the hub.
    """

    def __init__(self, yield_control: Callable[[], None], filled: Any) -> None:
        self._yield_control, self._filled = yield_control, filled
        self._queued: deque[tuple[EventKind, str]] = deque()
        self._dropped = 0

    def note(self, kind: EventKind, text: str) -> None:
        """Queue an event for the next ``write``. Beyond MAX_LINES the oldest event is dropped, and counted."""
        self._queued.append((kind, text))
        if len(self._queued) > MAX_LINES:
            self._queued.popleft()
            self._dropped += 1
        if not self._filled.is_set():
            self._filled.set()

    def wait(self) -> None:
        """Wait until events are queued. A round queues all its events before this greenlet continues."""
        self._filled.wait()

    def write(self) -> None:
        """Write all queued events, in order."""
        self._filled.clear()
        if self._dropped:
            LOG.warning("%d events were left out of the log: there were too many", self._dropped)
            self._dropped = 0
        while self._queued:
            for _ in range(min(len(self._queued), _BATCH_SIZE)):
                kind, text = self._queued.popleft()
                LOG.info("%s: %s", kind, text, extra={"kind": str(kind)})
            self._yield_control()
