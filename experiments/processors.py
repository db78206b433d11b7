"""This machine's processors: how much of their time was used, and keeping a virtual machine's from being put to sleep.

A processor of a virtual machine that has nothing to do halts, which hands it back to the host; waking it again takes
the host up to some milliseconds, and more when machines are nested. A userspace switch sleeps and wakes with almost
every frame. Seen on such a machine: UDP through three userspace bridges, one flow of 40 Mb/s, lost 9.8 % of its frames
while half of all processor time was "stolen"; with processors kept awake flows of 40 and of 80 Mb/s lost 0 and 0.1 %,
and 4 to 11 % was stolen.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

AWAKE_KEY = "DETS_PROCESSORS_AWAKE"  # the environment variable that tells processes below that it is done already
# It has no say about anybody else's time (SCHED_IDLE), is counted as "nice", and ends with the process that started it.
_PASS_TIME = """
import os, sys
parent = int(sys.argv[1])
os.sched_setaffinity(0, {int(sys.argv[2])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
os.nice(19)
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextlib.contextmanager
def kept_awake() -> Iterator[bool]:
    """Inside, no processor of a virtual machine halts; True if that takes doing here, and is not done already."""
    if AWAKE_KEY in os.environ or not is_virtual():
        yield False
        return
    command = [sys.executable, "-S", "-E", "-c", _PASS_TIME, str(os.getpid())]
    processes: list[subprocess.Popen[bytes]] = []
    os.environ[AWAKE_KEY] = "1"
    try:
        cpus = sorted(os.sched_getaffinity(0))
        processes.extend(subprocess.Popen([*command, str(cpu)], start_new_session=True) for cpu in cpus)
        yield True
    finally:
        del os.environ[AWAKE_KEY]
        for process in processes:
            process.kill()
            process.wait()


def is_virtual() -> bool:
    """Return whether this is a virtual machine, which its processors tell where they are x86."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return any("hypervisor" in line.split() for line in lines if line.startswith("flags"))


def read_cpu_ticks() -> tuple[int, int]:
    """Return (idle, all) ticks of all processors since boot, from /proc/stat.

    Waiting for disks counts as idle, and so does what is "nice": that is what keeps processors awake.
    """
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[1] + ticks[3] + ticks[4], sum(ticks)


def idle_cpu_share(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Return the share of processor time between two readings that nobody used."""
    return (after[0] - before[0]) / max(1, after[1] - before[1])
