"""This machine's processors: how much of their time was used, and keeping them from idle states.

An idle processor of a virtual machine halts and returns to the host; waking it takes the host up to some milliseconds,
and longer with nested machines. A userspace switch sleeps and wakes with almost every frame.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

# The kernel's quality of service for latencies: the written value applies while the file is open (Linux,
# Documentation/power/pm_qos_interface.rst). With a latency of 0 the idle loop polls.
LATENCY_REQUEST = Path("/dev/cpu_dma_latency")
STATISTICS, CPU_INFO = Path("/proc/stat"), Path("/proc/cpuinfo")
BUSY_IDLE_SHARE = 0.10  # below it frames were lost in front of the switch,
STOLEN_SHARE = 0.05  # and also when the host took more than this


def machine() -> dict[str, Any]:
    """Return the machine's data for reading times: the processor's model, the number of processors, and their load."""
    lines = CPU_INFO.read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {"cpu": model, "cores": os.cpu_count(), "load_average": os.getloadavg()[0]}


@contextlib.contextmanager
def disable_cpu_idle() -> Iterator[bool]:
    """Inside, idle processors poll for work instead of halting; yields False if that cannot be requested."""
    try:
        request = LATENCY_REQUEST.open("r+b", buffering=0)
    except OSError:
        yield False
        return
    with request:
        request.write(struct.pack("=i", 0))
        yield True


class CpuTicks(NamedTuple):
    """Ticks of all processors since boot: idle, taken by a virtual machine's host, total.

    Idle are ticks that nothing used (or that waited for a disk), and those of lower-priority processes, which yield to
    others.
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

    A process that has a lower priority itself competes with the other ones: for it their time is not idle.
    """
    ticks = [int(word) for word in STATISTICS.read_text().split("\n", 1)[0].split()[1:9]]
    yielding_ticks = ticks[1] if os.getpriority(os.PRIO_PROCESS, 0) <= 0 else 0
    return CpuTicks(yielding_ticks + ticks[3] + ticks[4], ticks[7], sum(ticks))


def cpu_shares(before: CpuTicks, after: CpuTicks) -> CpuShares:
    """Return the shares of the time between two readings that were idle, and that the host took."""
    total = max(1, after.total - before.total)
    return CpuShares((after.idle - before.idle) / total, (after.stolen - before.stolen) / total)


def busy_warning(shares: CpuShares, when: str) -> list[str]:
    """Return a warning if processors had so little idle time that an emulated switch may have lost frames."""
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
    """Return for how many seconds so far a process could not run, although it wanted to.

    It is the time that its main thread waited for a processor, plus the time that the host has taken from all
    processors together. The process's own work and sleep do not count (Documentation/scheduler/sched-stats.rst).
    """
    waited_ns = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    return waited_ns / 1e9 + read_cpu_ticks().stolen / os.sysconf("SC_CLK_TCK")


def vswitchd_pid() -> int:
    """Return the process id of Open vSwitch's daemon; OSError if it does not run."""
    folder = Path(os.environ.get("OVS_RUNDIR", "/var/run/openvswitch"))
    return int((folder / "ovs-vswitchd.pid").read_text())
