"""The benchmark's result has the shape that its readers rely on."""

from __future__ import annotations

import json
import math

from support.algorithms import ALGORITHMS

from experiments.bench.allocation import bench


def test_a_quick_run_has_figures_settings_and_targets():
    result = json.loads(json.dumps(bench.run(quick=True), allow_nan=False))
    receivers = result["figures"]["receivers"]
    assert {row["algorithm"] for row in receivers} == set(ALGORITHMS)
    assert {row["pairs"] for row in receivers} == {1_000, 10_000}
    for row in receivers:
        assert math.isclose(row["ns_per_pair"] * row["pairs_per_s"], 1e9, rel_tol=1e-9)
    assert [row["hosts"] for row in result["figures"]["max_min"]] == [1_000, 10_000]
    assert result["settings"]["quick"] is True
    for target in result["targets"]:
        assert set(target) == {"name", "value", "unit", "target", "met"}
    lowest = {"pairs/s", "times"}
    for target in result["targets"]:
        reached = (
            target["value"] >= target["target"] if target["unit"] in lowest else target["value"] <= target["target"]
        )
        assert target["met"] == reached
