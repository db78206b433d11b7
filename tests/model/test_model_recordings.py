"""Runs of every policy that were recorded once (``support.recorded_runs``) are decided again bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from support.recorded_runs import DATA, HALF, RUNS, path_of

from apps.cli.support.recording_files import read
from controller.policy.registry import policies
from controller.whatif.recording import Interval, Start
from controller.whatif.replay import replay


@pytest.mark.parametrize("name", RUNS)
def test_what_was_recorded_once_is_decided_again_bit_for_bit(name):
    records = list(read(path_of(name)))
    again = list(replay(records))
    assert len(again) == sum(isinstance(one, Interval) for one in records) >= 2 * HALF - 1
    assert all(one.same for one in again)
    assert sum(len(one.changes.rows) for one in records if isinstance(one, Interval)) >= 5
    assert np.isfinite(again[-1].limit_bps).all()


def test_there_is_a_recording_of_every_policy():
    first = [next(read(path_of(name))) for name in RUNS]
    assert {one.algorithm for start in first for one in start.policies.values()} == set(policies)


def test_there_is_one_of_receivers_without_queues_of_agents_and_of_a_restart():
    def starts(name):
        return [one for one in read(path_of(name)) if isinstance(one, Start)]

    assert not starts("fs-without-queues")[0].vns.has_queue.any()
    assert any(start.state.adopted_bps is not None for start in starts("fp-after-restart"))
    assert any(one.shaped.any() for one in read(path_of("fp-with-agents")) if isinstance(one, Interval))


def test_a_recording_of_0_1_0_is_read_and_decided_again():
    """That of ``fp``, as a build of 0.1.0 made it; what is decided may change, what was recorded may not."""
    start, *rest = read(DATA / "of-0.1.0.dets")
    assert {one.algorithm for one in start.policies.values()} == {"fp"}
    assert set(zip(start.vns.vlan_vid, start.vns.receive_limit_bps, strict=True)) == {(1, 20e6), (2, 25e6)}
    again = list(replay([start, *rest]))
    assert len(again) == sum(isinstance(one, Interval) for one in rest) == 47
    assert len(again[-1].limit_bps) == 6
    assert all(((one.limit_bps > 0) & (one.limit_bps <= 50e6)).all() for one in again)
