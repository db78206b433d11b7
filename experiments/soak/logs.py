"""Which lines of the logs of a soak need an explanation, and which have one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

OVS_LOGS = ("ovs-vswitchd.log", "ovsdb-server.log")
# Levels from warning on, as Open vSwitch, Python's logging and structlog write them, and what a crash looks like.
_LOUD = re.compile(
    r"\|(WARN|ERR|EMER)\||\b(WARNING|ERROR|CRITICAL)\b|\[(warning|error|critical) *\]|"
    r'"level": *"(warning|error|critical)"|Traceback|Exception'
)


@dataclass(frozen=True, slots=True)
class LogExplanation:
    """Lines that match ``pattern`` are expected, for this reason."""

    pattern: str
    reason: str


EXPLANATIONS = (
    LogExplanation(
        r"rconn\|WARN\|\w+<->tcp:\S+: connection (failed|dropped) \((Connection refused|Connection reset by peer|"
        r"Broken pipe)\)",
        "the controller was away: the run stops and kills it",
    ),
    LogExplanation(
        r"netdev_linux\|WARN\|error (receiving|sending) Ethernet packet on \S+: Network is down|"
        r"dpif_netdev\|ERR\|error receiving data from \S+: Network is down",
        "a link was down: the run takes links down",
    ),
    LogExplanation(
        r"\|(jsonrpc|reconnect)\|WARN\|unix#\d+: (send error: Broken pipe|connection dropped \(Broken pipe\))",
        "a controller that is stopped or killed while it writes queues does not hear the database's answer",
    ),
    LogExplanation(
        r"(netdev_linux\|WARN|dpif_netdev\|ERR)\|Dropped \d+ log messages in last \d+ seconds",
        "Open vSwitch repeats what is explained above more often than it writes down",
    ),
)


def needs_explanation(line: str) -> bool:
    """Return whether a line is a warning or worse."""
    return _LOUD.search(line) is not None


def explanation_of(line: str) -> str | None:
    """Return why a line is expected; None if it is not."""
    for explanation in EXPLANATIONS:
        if re.search(explanation.pattern, line):
            return explanation.reason
    return None


def unexplained(lines: Iterable[str]) -> Iterator[str]:
    """Return the lines that need an explanation and have none."""
    return (line for line in lines if needs_explanation(line) and explanation_of(line) is None)


class LogTail:
    """What is written to a file from now on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def lines(self) -> list[str]:
        """Return the lines since then."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._offset)
            return file.read().decode(errors="replace").splitlines()
