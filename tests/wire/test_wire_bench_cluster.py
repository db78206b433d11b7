"""``dets bench cluster`` in its smallest, and of its faults those that nothing else makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.cluster import needs_etcd
from support.paths import ROOT

from experiments.bench.cluster import takeover
from experiments.bench.cluster.bench import run
from experiments.bench.cluster.fault_runner import run_faults
from experiments.machine.process_runner import wait_until

pytestmark = [needs_etcd, pytest.mark.long]
FAULTS = ("disks of the nodes full", "clocks step")


def test_the_smallest_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "ENDS", {"killed": takeover.ENDS["killed"]})
    monkeypatch.setattr(takeover, "SETTLE_S", 1.0)
    monkeypatch.setattr(takeover, "AFTER_S", 1.0)
    result = run(switches=1, pairs=200, repeats=1, seconds=1.0, output=tmp_path)
    figures = result["figures"]
    (made,) = figures["takeovers"]["killed"]
    assert made["last_s"] >= made["first_s"] > 0
    assert figures["alone"]["interval_cpu_ms"] > 0
    assert figures["pair"]["active_percent"] > 0
    assert "member_3_percent" in figures["pair"]  # so short a time may be none of its processor's
    assert len(result["targets"]) == 3
    assert result["targets"][-1]["met"], "a take-over has filled meters again"
    assert (tmp_path / "cluster.json").is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: small disks")
def test_full_disks_and_clocks_that_step(tmp_path: Path) -> None:
    verdict = run_faults(tmp_path, names=FAULTS)
    assert verdict.problems == []
    assert list(verdict.took_s) == list(FAULTS)
    assert verdict.kept > len(FAULTS)


def test_a_run_that_is_ended_ends_what_it_has_started(tmp_path: Path) -> None:
    def controllers() -> list[str]:
        lines = subprocess.check_output(["ps", "-ww", "-eo", "args"], text=True).splitlines()
        return [line for line in lines if "--dets-config" in line and str(tmp_path) in line]

    command = [sys.executable, "-m", "apps.cli", "bench", "cluster", "--switches", "1", "--pairs", "200"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen([*command, "--output", str(tmp_path)], cwd=ROOT, env=environment)
    try:
        wait_until(controllers, "a controller has started", 60.0)
    finally:
        process.terminate()
        status = process.wait(60)
    assert status != 0
    assert controllers() == []
