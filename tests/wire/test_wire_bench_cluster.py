"""``dets bench cluster`` in its smallest, kills in a row, and faults: one writer, no revision lost, nothing freed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.cluster import needs_etcd

from experiments.bench.cluster.bench import TARGET_INTERVALS, run
from experiments.bench.cluster.faults import run_faults
from experiments.bench.cluster.takeover import ENDS

pytestmark = [needs_etcd]
KILLS = 5
# The others that ``dets bench cluster --faults`` has are variants of these.
FAULTS = (
    "no answers of etcd",
    "nothing from switches",
    "cut off from everything",
    "disks of etcd full",
    "disks of the nodes full",
    "clocks step",
)
SHARED_FAULTS = ("nothing to a switch",)  # and so is this of those of nodes that share switches


def test_the_smallest_run(tmp_path: Path) -> None:
    result = run(switches=1, entries=200, repeats=1, seconds=1.0, output=tmp_path)
    figures = result["figures"]
    assert {what: len(made) for what, made in figures["takeovers"].items()} == dict.fromkeys(ENDS, 1)
    assert all(one["last_s"] >= one["first_s"] > 0 for made in figures["takeovers"].values() for one in made)
    assert figures["alone"]["interval_cpu_ms"] > 0
    assert figures["pair"]["active_percent"] > 0
    assert "member_3_percent" in figures["pair"]  # so short a time may be none of its processor's
    assert len(result["targets"]) == len(TARGET_INTERVALS) + 2
    assert result["targets"][-1]["met"], "a take-over has filled meters again"
    assert json.loads((tmp_path / "cluster.json").read_text())["targets"] == result["targets"]
    assert (tmp_path / "cluster.png").stat().st_size > 1000


def test_kills_and_pauses_in_a_row(tmp_path: Path) -> None:
    result = run(repeats=0, kills=KILLS, seed=3, output=tmp_path)
    report = result["figures"]["kills"]
    assert report["judgement"]["problems"] == []
    assert sum(report["disturbances"].values()) >= KILLS
    assert report["judgement"]["kept"] >= KILLS
    assert report["judgement"]["generations"] > 1
    assert [row["met"] for row in result["targets"]] == [True]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and small disks")
def test_partitions_full_disks_and_clocks_that_step(tmp_path: Path) -> None:
    report = run_faults(tmp_path, names=FAULTS)
    assert report.judgement.problems == []
    assert list(report.took_s) == list(FAULTS)
    assert report.judgement.generations > len(FAULTS) / 2
    assert report.judgement.kept > len(FAULTS)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and small disks")
def test_three_nodes_of_which_one_does_not_reach_its_switch(tmp_path: Path) -> None:
    report = run_faults(tmp_path, names=SHARED_FAULTS, shared=True)
    assert report.judgement.problems == []
    assert list(report.took_s) == list(SHARED_FAULTS)
    assert report.judgement.generations == 2
    assert report.judgement.kept == 1
