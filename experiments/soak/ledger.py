"""Record of a running soak: actions, resources of processes and switches, events, log lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.events import EventKind
from experiments.bench.harness import resident_bytes
from experiments.measure.rate_series import Rates
from experiments.ovs.ovs_vsctl import find_rows, ofctl
from experiments.soak.schedule import Action
from topologies.fabric import Fabric, VirtualNode

ROW_TABLES = ("QoS", "Queue", "Port", "Interface", "Bridge", "Controller")
FAULT_KINDS = {
    EventKind.TABLES_REPAIRED,
    EventKind.SWITCH_ERROR,
    EventKind.QUEUE_WRITE_FAILED,
    EventKind.COUNTERS_IMPLAUSIBLE,
    EventKind.OUT_OF_METERS,
    EventKind.HOST_LIMIT_REACHED,
    EventKind.STORE_WRITE_FAILED,
    EventKind.RELOAD_FAILED,
}
# A controller that has just started finds state that expired while it was down, and its first audits remove it.
MENDS_AFTER_START_S = 25.0

# Levels from warning on, as Open vSwitch, Python's logging and structlog write them, and signs of a crash.
LOUD = re.compile(
    r"\|(WARN|ERR|EMER)\||\b(WARNING|ERROR|CRITICAL)\b|\[(warning|error|critical) *\]|"
    r'"level": *"(warning|error|critical)"|Traceback|Exception'
)
# Expected lines, by the reason.
EXPLANATIONS = {
    "the controller was down: the run stops and kills it": re.compile(
        r"rconn\|WARN\|\w+<->tcp:\S+: connection (failed|dropped) \((Connection refused|Connection reset by peer|"
        r"Broken pipe)\)"
    ),
    "a link was down: the run takes links down": re.compile(
        r"netdev_linux\|WARN\|error (receiving|sending) Ethernet packet on \S+: Network is down|"
        r"dpif_netdev\|ERR\|error receiving data from \S+: Network is down"
    ),
    "a controller that ends while it writes queues does not receive the database's reply": re.compile(
        r"\|(jsonrpc|reconnect)\|WARN\|unix#\d+: (send error: Broken pipe|connection dropped \(Broken pipe\))"
    ),
    "Open vSwitch counts repetitions of the lines above": re.compile(
        r"(netdev_linux\|WARN|dpif_netdev\|ERR)\|Dropped \d+ log messages in last \d+ seconds"
    ),
}


@dataclass(frozen=True, slots=True)
class Transient:
    """A time in which a guarantee may be violated: of the VN of this name, or of all if ``vn`` is None.

    ``floor`` and ``ceiling`` are whether this guarantee may be violated (verdict.py).
    """

    start_s: float
    end_s: float
    vn: str | None = None
    floor: bool = True
    ceiling: bool = False


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Resident memory in bytes and open file handles of a process."""

    rss_bytes: int
    handles: int


@dataclass(frozen=True, slots=True)
class ResourceHoldings:
    """Numbers of meters and flow entries of all switches, and of rows of OVSDB's tables."""

    meters: int
    flows: int
    rows: Counter[str]


@dataclass
class Sample:
    """A sample, taken once a second; values that are sampled less often, and those of an ended process, are None."""

    at_s: float
    idle_share: float
    controller: ProcessUse | None = None
    vswitchd: ProcessUse | None = None
    held: ResourceHoldings | None = None


@dataclass
class Ledger:
    """The record of a run, for the verdict. Times are those of ``time.monotonic``, in seconds.

    ``judged`` is the VN whose floor is judged. By a VN's name: ``limits`` are its (time, receive limit in bit/s), one
    for each change, and ``rates`` what it received. ``events`` counts the controller's events by kind; ``faults`` are
    those that need an explanation and have none, and ``health_faults`` the controller's health whenever it was not
    ready outside transients, as (time, text). ``broken_flows`` counts flows to ``judged`` that ended early.
    ``rows_before`` and ``rows_after`` count OVSDB's rows by table, before the fabric was built and after its removal.
    """

    fabric: Fabric
    judged: VirtualNode
    begin_s: float = 0.0
    end_s: float = 0.0
    limits: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    transients: list[Transient] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)  # of the controller
    done: list[tuple[float, Action]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    health_faults: list[tuple[float, str]] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[float, str]] = field(default_factory=list)
    broken_flows: int = 0
    rows_before: Counter[str] = field(default_factory=Counter)
    rows_after: Counter[str] = field(default_factory=Counter)
    rates: dict[str, Rates] = field(default_factory=dict)
    log_lines: list[str] = field(default_factory=list)

    def note_limit(self, vn: str, at_s: float, limit_bps: float) -> None:
        """Record a VN's receive limit if it has changed."""
        changes = self.limits.setdefault(vn, [])
        if not changes or changes[-1][1] != limit_bps:
            changes.append((at_s, limit_bps))

    def in_transient(self, at_s: float) -> bool:
        """Whether a time lies in a transient."""
        return any(transient.start_s <= at_s <= transient.end_s for transient in self.transients)

    def note_events(self, events: Iterable[dict[str, Any]]) -> None:
        """Record the controller's events since its last start, and those that need an explanation and have none."""
        for event in events:
            self.events[event["kind"]] += 1
            late = event["at_s"] - self.starts_s[-1] > MENDS_AFTER_START_S
            if event["kind"] in FAULT_KINDS and (late or event["kind"] != EventKind.TABLES_REPAIRED):
                self.faults.append((event["at_s"], f"{event['kind']}: {event['text']}"))


def process_use(pid: int) -> ProcessUse | None:
    """Return the resources of a process; None if it has ended."""
    try:
        return ProcessUse(resident_bytes(pid), len(list(Path(f"/proc/{pid}/fd").iterdir())))
    except (OSError, StopIteration):
        return None


def holdings(fabric: Fabric) -> ResourceHoldings:
    """Read the resources of the switches and the database."""
    names = [switch.name for switch in fabric.switches]
    meters = sum(ofctl("dump-meters", name).count("meter=") for name in names)
    return ResourceHoldings(meters, sum(ofctl("dump-flows", name).count("cookie=") for name in names), count_rows())


def count_rows() -> Counter[str]:
    """Return the number of rows by table of OVSDB."""
    return Counter({table: len(find_rows(table, "_uuid")) for table in ROW_TABLES})


def unexplained(lines: Iterable[str]) -> list[str]:
    """Return the warnings and errors among the lines that have no explanation."""
    problems = (line for line in lines if LOUD.search(line))
    return [line for line in problems if not any(pattern.search(line) for pattern in EXPLANATIONS.values())]


class LogTail:
    """Lines written to a file from now on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def lines(self) -> list[str]:
        """Return the lines since this object was made."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._offset)
            return file.read().decode(errors="replace").splitlines()
