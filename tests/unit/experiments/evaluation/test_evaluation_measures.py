"""The oracle and the measures, on runs made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.constructed_runs import scenario_run

from experiments.evaluation.measures import confidence, measures, phase_measures, settled_after, within
from experiments.evaluation.oracle import oracle_of
from experiments.runs.scenario_run import load_run
from experiments.scenarios.scenario import LimitChange, Limits, Scenario, Source

M = 1_000_000
INTERVALS = 40


def scenario_of(*sources, **changes):
    return Scenario(
        **{
            "name": "x",
            "title": "x",
            "limits": {1: Limits(100 * M, 90 * M)},
            "sources": sources,
            "duration_s": INTERVALS * 0.055,
            "topology": "dets-fig1",
            "pns": 4,
            **changes,
        }
    )


def run_of(scenario, delivered_mbps, granted_mbps=np.inf, transfers=()):
    """A run whose sources deliver constant rates, or one row per interval, and lose a tenth of their packets."""
    delivered, granted = np.array(delivered_mbps, dtype=float) * M, np.array(granted_mbps) * M
    sent, rows = np.full(len(scenario.sources), 100.0), np.array(transfers, dtype=float).reshape(-1, 3)
    return scenario_run(scenario, delivered, granted, transfers=rows, sent_packets=sent, lost_packets=sent / 10)


THREE = (Source(1, 1, 4, "udp", 80 * M), Source(1, 2, 4, "tcp"), Source(1, 3, 4, "udp", 10 * M))


def test_the_oracle_shares_what_those_that_want_little_leave():
    oracle = oracle_of(run_of(scenario_of(*THREE), [0, 0, 0]))
    np.testing.assert_allclose(oracle.rate_bps, [[40 * M, 40 * M, 10 * M]] * INTERVALS)
    np.testing.assert_allclose(oracle.demand_bps[0], [80 * M, 90 * M, 10 * M])
    assert oracle.on.all()


def test_the_oracle_knows_when_sources_are_silent_to_a_part_of_an_interval():
    source = Source(1, 1, 4, "udp", 80 * M, spans=((0.055, 0.0825),))
    oracle = oracle_of(run_of(scenario_of(source), [0]))
    np.testing.assert_allclose(oracle.demand_bps[:3, 0], [0, 40 * M, 0])
    assert not oracle.on[1, 0]


def test_the_oracle_follows_changes_of_limits():
    scenario = scenario_of(THREE[1], events=(LimitChange(1.1, 1, 4, receive_bps=20 * M),))
    rates = oracle_of(run_of(scenario, [0])).rate_bps[:, 0]
    np.testing.assert_allclose(rates[[0, 19, 20, 39]], [90 * M, 90 * M, 20 * M, 20 * M])


def test_the_oracle_finishes_a_transfer():
    scenario = scenario_of(Source(1, 1, 4, "tcp", octets=1_448_000))
    oracle = oracle_of(run_of(scenario, [0]))
    assert (oracle.rate_bps.sum() * 0.055) == pytest.approx(1_000 * 1518 * 8)
    assert oracle.on[:2, 0].tolist() == [True, True]
    assert not oracle.on[5:].any()


def test_a_run_as_good_as_the_oracle():
    figures = measures(run_of(scenario_of(*THREE), [40, 40, 10], [[40, 40, 10]]))
    assert figures["use_of_oracle"] == pytest.approx(1.0)
    assert figures["jain_backlogged"] == pytest.approx(1.0)
    assert figures["missed_intervals"] == 0
    assert figures["probing_cost"] == pytest.approx(0.0)
    assert figures["lost_share"] == pytest.approx(0.1)
    assert figures["received_bps_by_receiver"] == pytest.approx([90e6])


def test_what_tcp_sends_again_is_counted_without_udp():
    sources = (Source(1, 1, 4, "udp", 80 * M), Source(1, 2, 4, "tcp"))
    made = replace(run_of(scenario_of(*sources), [40, 40]), sent_packets=np.array([90.0, 50.0]))
    figures = measures(replace(made, lost_packets=np.array([30.0, 5.0])))
    assert (figures["tcp_retransmitted"], figures["tcp_retransmitted_share"]) == (5.0, 0.1)


def test_a_grant_that_is_not_used_while_another_wants_it_is_the_cost_of_probing():
    figures = measures(run_of(scenario_of(*THREE), [30, 30, 10], [[30, 30, 30]]))
    assert figures["use_of_oracle"] == pytest.approx(70 / 90)
    assert figures["probing_cost"] == pytest.approx(20 / 90)
    assert figures["missed_share"] == 1.0
    assert figures["missed_longest"] == INTERVALS
    assert figures["grant_spread"] == pytest.approx(0.0)


def test_unfair_shares_show_among_those_that_want_more_only():
    figures = measures(run_of(scenario_of(*THREE), [60, 20, 10], [[60, 20, 10]]))
    assert figures["jain_backlogged"] == pytest.approx(80**2 / (2 * (60**2 + 20**2)))
    assert figures["grant_spread"] == pytest.approx(np.std([60, 20, 10]) / 30)


def test_what_comes_above_the_limit_does_not_count_as_use():
    figures = measures(run_of(scenario_of(*THREE), [90, 80, 10]))
    assert figures["use_of_oracle"] == pytest.approx(1.0)
    assert figures["above_limit_share"] == 1.0


def test_settling_is_told_from_the_grants():
    scenario = scenario_of(*THREE[:2])
    granted = np.full((INTERVALS, 2), 45.0)
    granted[:7] = [20, 70]
    run = run_of(scenario, [45, 45], granted)
    assert settled_after(run, oracle_of(run)) == 7
    swinging = np.where(np.arange(INTERVALS)[:, None] % 2, 60.0, 30.0) * np.ones((1, 2))
    run = run_of(scenario, [45, 45], swinging)
    assert settled_after(run, oracle_of(run)) is None


def test_phases_are_measured_by_themselves():
    rates = np.full((INTERVALS, 3), [40.0, 40.0, 10.0])
    rates[20:] /= 2
    scenario = scenario_of(*THREE, phases={"good": (0.0, 1.1), "bad": (1.1, 2.2)})
    found = phase_measures(run_of(scenario, rates))
    assert found["good"]["use_of_oracle"] == pytest.approx(1.0)
    assert found["bad"]["use_of_oracle"] == pytest.approx(0.5)
    assert [found[name]["missed_intervals"] for name in ("good", "bad")] == [0, 20]


def test_completion_times():
    scenario = scenario_of(Source(1, 1, 4, "tcp", octets=1_000_000))
    figures = measures(run_of(scenario, [10], transfers=[(0, 0.0, 1.0), (0, 0.5, 3.5)]))
    assert (figures["transfers_done"], figures["completion_mean_s"], figures["completion_worst_s"]) == (2, 2.0, 3.0)
    figures = measures(run_of(scenario, [10], transfers=[(0, 0.0, 1.0), (0, 0.5, math.nan)]))
    assert (figures["transfers"], figures["transfers_done"], figures["completion_worst_s"]) == (2, 1, None)
    assert figures["transferred_after_s"] is figures["received_bps_by_receiver_until_transferred"] is None


def test_what_receivers_got_until_the_last_file_was_there():
    scenario = scenario_of(Source(1, 1, 4, "tcp", octets=10**6))
    rates = np.arange(INTERVALS, dtype=float)[:, None]  # Mb/s: 0, 1, 2, ...
    figures = measures(run_of(scenario, rates, transfers=[(0, 0.0, 0.3), (0, 0.1, 0.5)]))
    assert figures["transferred_after_s"] == 0.5
    assert figures["received_bps_by_receiver_until_transferred"] == pytest.approx([4.5 * M])  # ten intervals


def test_a_run_is_the_same_after_it_was_kept(tmp_path):
    scenario = scenario_of(*THREE, phases={"first": (0.0, 1.0)})
    run = run_of(scenario, [40, 30, 10], [[40, np.inf, 10]])
    run.save(tmp_path)
    again = load_run(tmp_path, scenario, "fp", "model", 1)
    assert measures(again) == measures(run)
    part, _ = within(again, oracle_of(again), (0.0, 1.0))
    assert len(part.delivered_bits) == len(part.received_packets) == 18


def test_confidence_is_students():
    assert confidence([3.0])[0] == 3.0
    assert math.isnan(confidence([3.0])[1])
    mean, half = confidence([1.0, 2.0, 3.0])
    assert (mean, half) == (2.0, pytest.approx(4.303 / 3**0.5))


def test_overshoot_shows_in_the_distance_from_the_oracle_and_not_in_use():
    """The limit is 90: half of the intervals at 108, half at 72."""
    rates = np.where(np.arange(INTERVALS)[:, None] % 2, 108.0, 72.0)
    found = measures(run_of(scenario_of(Source(1, 1, 4, "tcp")), rates))
    assert found["use_of_oracle"] == pytest.approx(0.9)
    assert found["above_limit_share"] == pytest.approx(0.5)
    assert found["oracle_distance"] == pytest.approx(0.2)


def test_a_link_that_is_not_full_and_rates_that_swing_are_measured():
    scenario = scenario_of(Source(1, 1, 4, "tcp"), Source(1, 2, 4, "tcp"))
    delivered = np.full((INTERVALS, 2), 45.0)
    delivered[10:13, 0], delivered[20, 1] = 20.0, 26.0  # 65 of 90 for three intervals, and 71 for one
    found = measures(run_of(scenario, delivered))
    assert (found["idle_longest"], found["missed_longest"]) == (3, 3)
    assert found["swing_bps_by_sender"] == pytest.approx(delivered.std(axis=0) * M)
    delivered[10:13, 0] = 30.0  # 75 of 90 are 83 %
    assert measures(run_of(scenario, delivered))["idle_longest"] == 1
