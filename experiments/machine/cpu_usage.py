"""This machine's processors: how much of their time was used, and keeping them from being put to sleep.

A processor of a virtual machine that has nothing to do halts, which hands it back to the host; waking it again takes
the host up to some milliseconds, and more when machines are nested. A userspace switch sleeps and wakes with almost
every frame.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

# The kernel's quality of service for latencies: what is written stands for as long as the file is open (Linux,
# Documentation/power/pm_qos_interface.rst). Of no latency at all, the idle loop polls.
LATENCY_REQUEST = Path("/dev/cpu_dma_latency")
STATISTICS, CPU_INFO = Path("/proc/stat"), Path("/proc/cpuinfo")
BUSY_IDLE_SHARE = 0.10  # seen: below it frames are lost in front of the switch,
STOLEN_SHARE = 0.05  # and so they are where the host takes more than this


def machine() -> dict[str, Any]:
    """Return what figures of time are to be read with: the processor's model, how many there are, and their load."""
    lines = CPU_INFO.read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {"cpu": model, "cores": os.cpu_count(), "load_average": os.getloadavg()[0]}


@contextlib.contextmanager
def disable_cpu_idle() -> Iterator[bool]:
    """Inside, processors without work look for some instead of halting; False where that cannot be asked for."""
    try:
        request = LATENCY_REQUEST.open("r+b", buffering=0)
    except OSError:
        yield False
        return
    with request:
        request.write(struct.pack("=i", 0))
        yield True


class CpuTicks(NamedTuple):
    """Ticks of all processors since boot: to spare, taken by a virtual machine's host, all.

    To spare is what nobody used (or a disk was waited for), and what processes of a lower priority used: they give way.
    """

    idle: int
    stolen: int
    total: int


class CpuShares(NamedTuple):
    """Shares of the processors' time between two readings."""

    idle: float
    stolen: float


def read_cpu_ticks() -> CpuTicks:
    """Read /proc/stat (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal.

    A process that is itself of a lower priority has to share with the others: their time is not to spare for it.
    """
    ticks = [int(word) for word in STATISTICS.read_text().split("\n", 1)[0].split()[1:9]]
    gives_way = ticks[1] if os.getpriority(os.PRIO_PROCESS, 0) <= 0 else 0
    return CpuTicks(gives_way + ticks[3] + ticks[4], ticks[7], sum(ticks))


def cpu_shares(before: CpuTicks, after: CpuTicks) -> CpuShares:
    """Return what share of the time between two readings was to spare, and what share the host took."""
    total = max(1, after.total - before.total)
    return CpuShares((after.idle - before.idle) / total, (after.stolen - before.stolen) / total)


def busy_warning(shares: CpuShares, when: str) -> list[str]:
    """Return what to tell where processors had so little to spare that an emulated switch may have lost frames."""
    if shares.idle >= BUSY_IDLE_SHARE and shares.stolen <= STOLEN_SHARE:
        return []
    return [
        f"the processors were idle for only {shares.idle:.0%} of {when}, and the host took {shares.stolen:.0%}: the "
        "emulated switch may have lost frames that no queue or meter dropped, and the figures then show this "
        "machine's limit"
    ]


def process_cpu_s(pid: int) -> float:
    """Return the processor time that a process has used so far, the kernel's for it included (proc(5), stat)."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def withheld_s(pid: int) -> float:
    """Return how long this machine has let a process's main thread wait for a processor, and the host all of them.

    Nothing that the process does or waits for itself is in it (Linux, Documentation/scheduler/sched-stats.rst).
    """
    waited_ns = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    return waited_ns / 1e9 + read_cpu_ticks().stolen / os.sysconf("SC_CLK_TCK")


def vswitchd_pid() -> int:
    """Return the process of Open vSwitch's daemon; OSError where it does not run."""
    folder = Path(os.environ.get("OVS_RUNDIR", "/var/run/openvswitch"))
    return int((folder / "ovs-vswitchd.pid").read_text())
