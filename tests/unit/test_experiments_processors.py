"""Processors are kept awake by processes that have no say, are told only once, and end with whoever wanted them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments import processors
from experiments.processors import AWAKE_KEY, idle_cpu_share, is_virtual, kept_awake, read_cpu_ticks

HOLD = """
import time
from experiments import processors
processors.is_virtual = lambda: True
with processors.kept_awake():
    print("awake", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(AWAKE_KEY, raising=False)
    monkeypatch.setattr(processors, "is_virtual", lambda: True)


def keepers_of(pid: int) -> list[int]:
    """The processes below one that keep processors awake."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            ppid = int(entry.read_text().rpartition(")")[2].split()[1])
            if ppid == pid and b"SCHED_IDLE" in (entry.parent / "cmdline").read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def wait_until(condition, what: str) -> None:
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.02)


@pytest.mark.usefixtures("virtual")
def test_every_processor_has_one_that_has_no_say() -> None:
    others = keepers_of(os.getpid())
    with kept_awake() as done:
        assert done
        keepers = [pid for pid in keepers_of(os.getpid()) if pid not in others]
        assert len(keepers) == len(os.sched_getaffinity(0))
        for pid in keepers:
            wait_until(lambda pid=pid: os.sched_getscheduler(pid) == os.SCHED_IDLE, "SCHED_IDLE")
            wait_until(lambda pid=pid: os.getpriority(os.PRIO_PROCESS, pid) == 19, "nice")
        wait_until(lambda: len({tuple(os.sched_getaffinity(pid)) for pid in keepers}) == len(keepers), "one each")
        with kept_awake() as again:
            assert not again
        assert len(keepers_of(os.getpid())) == len(others) + len(keepers)
    assert keepers_of(os.getpid()) == others
    assert AWAKE_KEY not in os.environ


def test_a_machine_that_is_none_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(AWAKE_KEY, raising=False)
    monkeypatch.setattr(processors, "is_virtual", lambda: False)
    others = keepers_of(os.getpid())
    with kept_awake() as done:
        assert not done
        assert keepers_of(os.getpid()) == others


def test_they_end_with_whoever_wanted_them() -> None:
    environment = {key: value for key, value in os.environ.items() if key != AWAKE_KEY}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, cwd=Path(processors.__file__).parents[1], env=environment
    )
    assert holder.stdout is not None
    with holder, holder.stdout:
        assert holder.stdout.readline() == b"awake\n"
        keepers = keepers_of(holder.pid)
        assert keepers
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
    wait_until(lambda: not any(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in alive(keepers)), "still awake")


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists()]


def test_a_virtual_machine_is_told_by_its_processors() -> None:
    flags = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")]
    assert is_virtual() == any(" hypervisor " in f"{line} " for line in flags)


def test_idle_share_is_of_the_time_between() -> None:
    assert idle_cpu_share((100, 1000), (150, 1200)) == 0.25
    assert idle_cpu_share((100, 1000), (100, 1000)) == 0
    idle, everything = read_cpu_ticks()
    assert 0 < idle < everything
