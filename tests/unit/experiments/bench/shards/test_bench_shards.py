"""Many nodes in virtual time, few of them: grants come to fair shares, a death and a move are got over."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from controller.errors import InvalidValueError
from experiments.bench.shards import delays
from experiments.bench.shards.bench import run, simulate, table
from experiments.bench.shards.model import LEASE_S, Model
from experiments.bench.shards.world import RECEIVE_LIMIT_BPS, World

SMALL = {"shards": 3, "pairs": [1000], "ports": 4, "algorithm": "fs"}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    output = tmp_path_factory.mktemp("shards")
    return run(**SMALL, output=output), output


def test_grants_come_to_fair_shares_in_every_phase(small):
    (made,) = small[0]["figures"]["sizes"]
    assert list(made["phases"]) == ["all begin", "a tenth stops", "a node dies", "a switch is moved"]
    assert all(phase["stands_after"] is not None for phase in made["phases"].values())


def test_grants_are_held_until_the_dead_nodes_switches_are_taken_over(small):
    (made,) = small[0]["figures"]["sizes"]
    died, moved = (made["phases"][name] for name in ("a node dies", "a switch is moved"))
    assert LEASE_S < died["held_s"]["mean"] <= died["held_s"]["most"]
    assert 0.0 < moved["frozen_s"]["most"] <= moved["held_s"]["most"] < LEASE_S


def test_what_is_said_is_what_is_heard_and_grows_with_the_pairs(small):
    (made,) = small[0]["figures"]["sizes"]
    more = simulate(World.of(12, 4, 40, "fs", 1), 3, 1)
    for one in (made, more):
        assert one["sent_octets_per_s"]["mean"] == pytest.approx(one["heard_octets_per_s"]["mean"])
    assert more["sent_octets_per_s"]["mean"] > 1.5 * made["sent_octets_per_s"]["mean"]


def test_a_seed_gives_the_same_again_and_another_one_does_not(small):
    (made,) = small[0]["figures"]["sizes"]
    same, other = (simulate(World.of(12, 4, 1000 // 48, "fs", seed), 3, seed) for seed in (1, 2))
    assert same["phases"] == made["phases"] != other["phases"]


def test_figures_table_and_series_are_written(small):
    result, output = small
    written = json.loads((output / "shards.json").read_text())
    assert written["figures"] == json.loads(json.dumps(result["figures"]))
    (series,) = written["series"].values()
    assert len(series) > 100
    assert (output / "shards.md").read_text() == table(result["figures"]["sizes"])
    assert len(result["targets"]) == 1


def test_nobody_is_freed_by_a_death():
    """Nothing that a dead node's receivers or senders were granted is more than it was, while nothing else happens."""
    world = World.of(12, 4, 20, "fs", 1)
    model = Model(world, 3, 1)
    model.run(0.5)
    model.now_sends(np.ones(len(world.vns), dtype=np.bool_))
    model.run(5.0)
    since = len(model.series)
    model.kill(1)
    model.run(5.0 + LEASE_S + 3.0)
    assert model.released
    assert max(one[3] for one in model.series[since:]) < 1.01


@pytest.mark.parametrize("numbers", [{"shards": 1}, {"pairs": [10]}, {"pairs": [10**9]}, {"ports": 0}, {"seed": -1}])
def test_numbers_that_no_fabric_can_have_are_refused(numbers, tmp_path):
    with pytest.raises(InvalidValueError):
        run(**{**SMALL, **numbers}, output=tmp_path)


def test_policies_that_cannot_be_cut_are_refused(tmp_path):
    with pytest.raises(InvalidValueError, match="cannot be cut"):
        run(**{**SMALL, "algorithm": "fe"}, output=tmp_path)


def test_every_vn_sends_to_as_many_and_fair_shares_use_the_limit():
    world = World.of(4, 3, 5, "fs", 7)
    sender, receiver = world.pairs_of(np.arange(len(world.vns)))
    assert len(sender) == 5 * len(world.vns)
    assert (np.bincount(receiver) == 5).all()
    assert (np.bincount(sender) == 5).all()
    assert not (sender == receiver).any()
    assert (np.diff(receiver * len(world.vns) + sender) > 0).all()
    sends = np.arange(len(world.vns)) % 3 > 0
    sums_bps = np.bincount(receiver, np.where(sends[sender], world.fair_bps(sends)[receiver], 0.0))
    np.testing.assert_allclose(sums_bps, RECEIVE_LIMIT_BPS)
    assert replace(world, offsets=world.offsets[:2]).senders == 2


def test_delays_are_drawn_from_those_that_were_measured(monkeypatch):
    steady = {100: (1.0,) * len(delays.QUANTILES), 300: (3.0,) * len(delays.QUANTILES)}
    monkeypatch.setattr(delays, "DELAYS_MS", steady)
    random = np.random.default_rng(1)
    assert [delays.draw(random, octets) for octets in (1, 100, 200, 1000)] == [0.001, 0.001, 0.002, 0.003]
