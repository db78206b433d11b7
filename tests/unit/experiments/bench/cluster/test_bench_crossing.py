"""The bench of cross-shard pairs: both ways are of the same pairs, all under control, and grant the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from controller.dets.send_rate_controller import MachineState
from experiments.bench.cluster import cross_shard_cost
from experiments.bench.cluster.bench import run

PORTS, PAIRS = 12, 2 * 36


def test_both_ways_limit_the_same_pairs_to_the_same_rates() -> None:
    whole, crossed = (
        way(*cross_shard_cost.fabric_of(PORTS)) for way in (cross_shard_cost.Whole, cross_shard_cost.Crossing)
    )
    for way in (whole, crossed):
        way.pair_ns()
        assert way.pairs == PAIRS
    states = [shard.state for shard in crossed.shards]
    for state in (whole.state, *states):
        assert (state.machines.control == MachineState.LIMITED).all()
    assert (np.concatenate([state.machines.limit_bps for state in states]) > 0).all()
    for state in (whole.state, *states):
        sums_bps = np.bincount(state.entries.receiver, state.machines.limit_bps, PORTS)
        np.testing.assert_allclose(sums_bps[sums_bps > 0], cross_shard_cost.LIMIT_BPS, rtol=0.01)
    assert crossed.octets > 80 + PAIRS / 2 * 24  # a header, and what is reported of each pair


def test_the_bench_alone(tmp_path: Path) -> None:
    result = run(repeats=0, cross_shard_pairs=1000, output=tmp_path)
    cost = result["figures"]["cross_shard"]
    assert cost["pairs"] >= 1000
    assert cost["cross_shard_ns"] > 0 < cost["one_step_ns"]
    assert len(result["targets"]) == 1
    assert json.loads((tmp_path / "cluster.json").read_text())["figures"]["cross_shard"] == cost
