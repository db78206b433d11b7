"""Processors are kept awake for as long as somebody wants them to be, and their idle time is told."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.machine import cpu_usage
from experiments.machine.cpu_usage import (
    LATENCY_REQUEST,
    CpuShares,
    CpuTicks,
    busy_warning,
    cpu_shares,
    disable_cpu_idle,
    machine,
    read_cpu_ticks,
    withheld_s,
)


def open_requests() -> int:
    """How many files of this process ask the kernel for a latency."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found += os.readlink(entry) == str(LATENCY_REQUEST)
        except OSError:  # the listing's own
            continue
    return found


def test_no_latency_is_asked_for_where_that_can_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "latency"
    monkeypatch.setattr(cpu_usage, "LATENCY_REQUEST", device)
    with disable_cpu_idle() as done:
        assert not done
    device.write_bytes(b"")
    with disable_cpu_idle() as done:
        assert done
        assert struct.unpack("=i", device.read_bytes()) == (0,)


@pytest.mark.skipif(not os.access(LATENCY_REQUEST, os.R_OK | os.W_OK), reason="not root")
def test_the_kernel_is_asked_until_the_end() -> None:
    before = open_requests()
    with disable_cpu_idle() as done, disable_cpu_idle() as again:
        assert done
        assert again
        assert open_requests() == before + 2
    assert open_requests() == before


def test_shares_are_of_the_time_between() -> None:
    before = CpuTicks(idle=100, stolen=10, total=1000)
    assert cpu_shares(before, CpuTicks(150, 30, 1200)) == (0.25, 0.1)
    assert cpu_shares(before, before) == (0, 0)
    ticks = read_cpu_ticks()
    assert 0 < ticks.idle < ticks.total
    assert 0 <= ticks.stolen < ticks.total


def test_time_of_lower_priority_is_to_spare_for_those_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stat").write_text("cpu  100 20 30 400 50 6 7 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    monkeypatch.setattr(cpu_usage, "STATISTICS", tmp_path / "stat")
    for nice, idle in ((-15, 470), (0, 470), (1, 450), (19, 450)):
        monkeypatch.setattr(os, "getpriority", lambda _which, _who, nice=nice: nice)
        assert read_cpu_ticks() == CpuTicks(idle=idle, stolen=8, total=621)


@pytest.mark.parametrize(
    ("shares", "warned"),
    [(CpuShares(0.5, 0.0), False), (CpuShares(0.09, 0.0), True), (CpuShares(0.5, 0.06), True)],
)
def test_a_machine_without_time_to_spare_is_told_of(shares: CpuShares, warned: bool) -> None:
    said = busy_warning(shares, "the blast")
    assert bool(said) == warned
    assert all(f"{shares.stolen:.0%}" in text and "the blast" in text for text in said)


def test_a_machine_is_told_by_its_model_its_processors_and_their_load(monkeypatch, tmp_path) -> None:
    told = machine()
    assert told["cores"] == os.cpu_count()
    assert told["load_average"] >= 0.0
    monkeypatch.setattr(cpu_usage, "CPU_INFO", tmp_path / "cpuinfo")
    for text, model in (("processor\t: 0\nmodel name\t: A 3 GHz\n", "A 3 GHz"), ("processor\t: 0\n", "unknown")):
        cpu_usage.CPU_INFO.write_text(text)
        assert machine()["cpu"] == model


def test_what_others_take_is_withheld_and_what_a_process_waits_for_is_not() -> None:
    """Two that compute on one processor get half of it each; one that sleeps lacks nothing."""
    pin = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\n"
    words = (pin + "while True: pass", pin + "while True: pass", "import time; time.sleep(60)")
    children = [subprocess.Popen([sys.executable, "-S", "-c", text]) for text in words]
    try:
        time.sleep(0.5)
        before = [withheld_s(child.pid) for child in children]
        time.sleep(1.0)
        busy, other, asleep = (withheld_s(child.pid) - one for child, one in zip(children, before, strict=True))
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert busy + other > 0.8
    assert asleep < busy + other - 0.5
