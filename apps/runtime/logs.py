"""What the log looks like: lines for people or JSON for programs, the framework's own included.

Where lines go is for the framework's command line to say (``--log-file``, ``--use-syslog``); whoever gives it a
``--log-config-file`` has said what they look like, too.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

LogFormat = Literal["console", "json"]
FORMATS: tuple[LogFormat, ...] = ("console", "json")


def set_format(log_format: LogFormat) -> None:
    """Give all handlers of the root logger this format.

    Each line has the time in UTC, the level and the logger; what a call passes as ``extra`` are fields in JSON.
    """
    for handler in logging.getLogger().handlers:
        on_terminal = isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stderr, sys.stdout)
        handler.setFormatter(_formatter(log_format, colors=on_terminal and sys.stderr.isatty()))


def set_level(level: str) -> None:
    """Log what is at least of this level: ``debug``, ``info``, ``warning`` or ``error``."""
    logging.getLogger().setLevel(level.upper())


def _formatter(log_format: LogFormat, *, colors: bool) -> logging.Formatter:
    renderers: list[structlog.typing.Processor]
    if log_format == "json":
        renderers = [
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(),
        ]
    else:
        renderers = [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.stdlib.ExtraAdder(),
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )
