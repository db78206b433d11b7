"""A scenario with the real application and software switches, in real time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.cluster import needs_etcd

from experiments.evaluation.measures import measures
from experiments.runs.scenario_run import RunSettings, owner_changes
from experiments.runs.wire_run import run_on_wire
from experiments.scenarios.scenario import AlgorithmChange, Limits, Scenario, Source

M = 1_000_000
SCENARIO = Scenario(
    name="wired",
    title="two to one",
    topology="dets-fig1",
    pns=3,
    link_rate_bps=50 * M,
    limits={1: Limits(20 * M, 15 * M)},
    sources=(Source(1, 1, 3, "udp", 18 * M), Source(1, 2, 3, "tcp")),
    events=(AlgorithmChange(1.1, 1, "fs"),),
    duration_s=2.2,
)


@pytest.mark.rates
def test_a_scenario_runs_on_software_switches(tmp_path):
    passed = []
    run = run_on_wire(SCENARIO, "level", 1, passed.append, tmp_path)
    assert sum(passed) == SCENARIO.duration_s
    assert len(run.delivered_bits) == 40
    assert run.fabric == "wire"
    assert run.received_bits.sum() <= 1.05 * 15 * M * 2.2
    assert (run.delivered_bits.sum(axis=0) > 0).all()
    last = run.granted_bps[-1]
    np.testing.assert_allclose(last, [7.5 * M, 7.5 * M], rtol=0.01)  # fair share, since half way
    assert measures(run)["use_of_oracle"] > 0.8  # half of it is a defect, however busy the machine


@needs_etcd
@pytest.mark.functions
def test_a_kill_of_the_receivers_controller_frees_nobody(tmp_path):
    """The second sender begins after the kill: it is limited when another node decides."""
    sources = Source(1, 1, 3, "udp", 18 * M), Source(1, 2, 3, "udp", 18 * M, spans=((5.5, 15.0),))
    scenario = dataclasses.replace(SCENARIO, sources=sources, events=(), duration_s=15.0)
    settings = RunSettings(kill_at_s=5.0)
    run = run_on_wire(scenario, "fs", 1, lambda _passed_s: None, tmp_path, settings)
    assert 4.5 < run.notes["killed_at_s"] < run.time_s[-1]
    assert run.notes["out_of_control_s"] > 0
    (name, owner, after), *_ = owner_changes(run)
    assert owner == run.notes["killed"] != after
    assert run.notes["owners_after"][name] == after
    np.testing.assert_allclose(run.granted_bps[-1], [7.5 * M, 7.5 * M], rtol=0.01)
    from_kill = run.time_s[1:] >= 5.0
    assert np.isfinite(run.granted_bps[from_kill, 0]).all()


def test_a_baseline_is_left_to_the_model(tmp_path):
    run = run_on_wire(SCENARIO, "none", 1, lambda _passed_s: None, tmp_path)
    assert run.fabric == "wire"
    assert np.isnan(run.granted_bps).all()
