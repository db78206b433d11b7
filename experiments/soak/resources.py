"""What a soak must not leak: memory and file handles of processes, meters and flow entries of switches, OVSDB rows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from experiments.ovs.ovs_vsctl import find_rows, ofctl
from topologies.fabric import Fabric

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
ROW_TABLES = ("QoS", "Queue", "Port", "Interface", "Bridge", "Controller")


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Resident memory in bytes and open file handles of a process."""

    rss_bytes: int
    handles: int


@dataclass(frozen=True, slots=True)
class ResourceHoldings:
    """What stands: meters and flow entries of all switches, rows of OVSDB's tables."""

    meters: int
    flows: int
    rows: dict[str, int]


def process_use(pid: int) -> ProcessUse | None:
    """Return what a process uses; None if it is gone."""
    folder = Path(f"/proc/{pid}")
    try:
        pages = int((folder / "statm").read_text().split()[1])
        return ProcessUse(pages * PAGE_BYTES, len(list((folder / "fd").iterdir())))
    except OSError:
        return None


def pid_of(daemon: str) -> int:
    """Return the process of an Open vSwitch daemon; OSError or ValueError if it does not run."""
    folder = Path(os.environ.get("OVS_RUNDIR", "/var/run/openvswitch"))
    return int((folder / f"{daemon}.pid").read_text())


def holdings(fabric: Fabric) -> ResourceHoldings:
    """Ask the switches and the database."""
    names = [switch.name for switch in fabric.switches]
    return ResourceHoldings(
        meters=sum(_count(ofctl("dump-meters", name), "meter=") for name in names),
        flows=sum(_count(ofctl("dump-flows", name), "cookie=") for name in names),
        rows=count_rows(),
    )


def count_rows() -> dict[str, int]:
    """Return how many rows the tables of OVSDB have."""
    return {table: len(find_rows(table, "_uuid")) for table in ROW_TABLES}


def _count(text: str, mark: str) -> int:
    return sum(mark in line for line in text.splitlines())


def growth_per_minute(time_s: Iterable[float], values: Iterable[float]) -> float:
    """Return the slope of a least-squares line, per minute; 0 for fewer than two different times."""
    import numpy as np

    x, y = np.array(list(time_s)), np.array(list(values), dtype=np.float64)
    if len(x) < 2 or np.ptp(x) == 0:
        return 0.0
    return float(np.polyfit(x - x[0], y, 1)[0] * 60)
