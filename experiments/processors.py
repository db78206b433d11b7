"""This machine's processors: how much of their time was used, and keeping them from being put to sleep.

A processor of a virtual machine that has nothing to do halts, which hands it back to the host; waking it again takes
the host up to some milliseconds, and more when machines are nested. A userspace switch sleeps and wakes with almost
every frame.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

# The kernel's quality of service for latencies: what is written stands for as long as the file is open (Linux,
# Documentation/power/pm_qos_interface.rst). Of no latency at all, the idle loop polls.
LATENCY_REQUEST = Path("/dev/cpu_dma_latency")


@contextlib.contextmanager
def kept_awake() -> Iterator[bool]:
    """Inside, processors without work look for some instead of halting; False where that cannot be asked for."""
    try:
        request = LATENCY_REQUEST.open("r+b", buffering=0)
    except OSError:
        yield False
        return
    with request:
        request.write(struct.pack("=i", 0))
        yield True


def read_cpu_ticks() -> tuple[int, int]:
    """Return (idle, all) ticks of all processors since boot, from /proc/stat.

    Waiting for disks counts as idle.
    """
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def idle_cpu_share(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Return the share of processor time between two readings that nobody used."""
    return (after[0] - before[0]) / max(1, after[1] - before[1])
