"""Section V's claims on both placements, on figures made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.constructed_runs import summary, verdict

from experiments.evaluation.run_matrix import scenario_runs
from experiments.papers.agents import CONTROL, paper
from experiments.scenarios import scenarios
from experiments.scenarios.agents import FIG5, UPLINK


def run(experiment, tcp=1.0, udp=1.0, back=1, again=0.01):
    figures = {
        "victim_goodput_bps_during": 20e6 * tcp,
        "victim_goodput_limit_bps": 20e6,
        "aggressor_received_bps_during": 25e6 * udp,
        "aggressor_limit_bps": 25e6,
        "victim_recovery_intervals": back,
        "tcp_retransmitted_share": again,
    }
    return {**summary(experiment, CONTROL, fabric="ovs", **figures), "notes": {"meter_mods": 0}}


def holds(key, *runs):
    return verdict(paper, key, *runs).holds


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("agent", {}, {"tcp": 0.94}),
        ("agent", {"udp": 1.02}, {"udp": 1.03}),
        ("agent", {"udp": 0.98}, {"udp": 0.97}),
        ("prompt", {"back": 2}, {"back": 3}),
        ("prompt", {}, {"back": None}),
    ],
)
def test_hosts_keep_what_ports_would(key, good, bad):
    assert holds(key, run(f"{FIG5}-agent", **good)) is True
    assert holds(key, run(f"{FIG5}-agent", **bad)) is False


def test_what_is_sent_again_is_compared_with_meters():
    meter = run(f"{FIG5}-meter", again=0.05)
    assert holds("retransmitted", meter) is None
    assert holds("retransmitted", meter, run(f"{FIG5}-agent", again=0.005)) is True
    assert holds("retransmitted", meter, run(f"{FIG5}-agent", again=0.006)) is False


def test_an_uplink_that_meters_can_keep_shows_nothing():
    agent = run(f"{UPLINK}-agent")
    assert holds("uplink", agent, run(f"{UPLINK}-meter", tcp=0.1)) is True
    assert holds("uplink", agent, run(f"{UPLINK}-meter")) is False


def test_a_scenario_says_who_shapes_and_settings_may_name_agents():
    (spec,) = scenario_runs(f"{FIG5}-mixed", scenarios()[f"{FIG5}-mixed"], "ovs", 1)
    assert spec.run_settings.shaping == "mixed"
    both = replace(spec, settings=replace(spec.settings, shaping="both"))
    assert both.run_settings.shaping == "both"
    assert scenario_runs(f"{FIG5}-mixed", scenarios()[f"{FIG5}-mixed"], "wire") == []
