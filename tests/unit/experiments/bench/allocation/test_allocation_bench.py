"""The benchmark's result has the shape that its readers rely on, and its instances are what they say."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from support.algorithms import ALGORITHMS

from controller.allocation.max_min import max_min
from experiments.bench.allocation import bench, problem_instances


def test_a_quick_run_has_figures_settings_and_targets():
    result = json.loads(json.dumps(bench.run(quick=True), allow_nan=False))
    receivers = result["figures"]["receivers"]
    assert {row["algorithm"] for row in receivers} == set(ALGORITHMS)
    assert {row["pairs"] for row in receivers} == {1_000, 10_000}
    for row in receivers:
        assert math.isclose(row["ns_per_pair"] * row["pairs_per_s"], 1e9, rel_tol=1e-9)
        assert row["median_ns_per_pair"] >= row["ns_per_pair"]
    assert result["settings"]["quick"] is True
    for target in result["targets"]:
        assert set(target) == {"name", "value", "unit", "target", "met"}
    lowest = {"pairs/s", "times"}
    for target in result["targets"]:
        reached = (
            target["value"] >= target["target"] if target["unit"] in lowest else target["value"] <= target["target"]
        )
        assert target["met"] == reached


def test_fat_tree_paths():
    """k = 4: two links within an edge switch, four within a pod, six between pods; each a link of its own kind."""
    paths, capacity_bps = problem_instances.fat_tree(4, 400, np.random.default_rng(1))
    assert paths.constraints == 96
    hops = np.diff(paths.offsets)
    assert set(hops) == {2, 4, 6}
    for flow in range(400):
        links = paths.constraint[paths.offsets[flow] : paths.offsets[flow + 1]]
        sender, receiver = links[0], links[-1] - 80
        assert 0 <= sender < 16
        assert 0 <= receiver < 16
        same_edge, same_pod = sender // 2 == receiver // 2, sender // 4 == receiver // 4
        assert hops[flow] == (2 if same_edge else 4 if same_pod else 6)
        assert list(links // 16) == ([0, 5] if same_edge else [0, 1, 4, 5] if same_pod else [0, 1, 2, 3, 4, 5])
    rates = max_min(paths, capacity_bps, np.full(400, np.inf), np.ones(400)).rate_bps
    use = np.bincount(paths.constraint, np.repeat(rates, hops), minlength=96)
    assert use.max() == pytest.approx(1e9)
