"""Seawall's promise for TCP and UDP sources on the model's links, and what its readings say of lost frames."""

from __future__ import annotations

import numpy as np
import pytest
from support.core_bottleneck import NEVER_CUTS, core_bottleneck_scenario, reported_lost_bits
from support.model_plane import under_control

from experiments.evaluation.measures import pair_rates
from experiments.model.fabric import ModelOptions
from experiments.runs.model_run import SETTLE_S, ModelTraffic, baseline_limits_bps, run_on_model
from experiments.runs.run_configuration import controller_configuration
from experiments.scenarios import scenarios
from experiments.scenarios.scenario import INTERVAL_S
from experiments.scenarios.seawall import LINK_BPS

ALL = scenarios()


def rates(name, control, duration_s=12.0, from_s=6.0):
    """What each sending VN gets in the end, as parts of the link."""
    run = run_on_model(ALL[name].lasting(duration_s), control, 1, lambda _: None)
    settled = run.time_s[1:] > from_s
    sums = np.zeros(len(run.senders))
    for (vid, sender, _), rate in zip(run.scenario.pairs, pair_rates(run)[settled].mean(axis=0), strict=True):
        sums[run.senders.index((vid, sender))] += rate
    return sums / LINK_BPS


@pytest.mark.parametrize("control", ["seawall", "seawall-exact"])
@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("seawall-fig9-a", [0.49, 0.49]),
        ("seawall-fig9-b66", [0.49, 0.49]),
        ("seawall-fig10-8", [0.49, 0.49]),
        ("seawall-fig7", [0.49, 0.49]),
        ("seawall-weights-mixed", [0.14, 0.28, 0.56]),
    ],
)
def test_every_sender_has_its_part(name, control, shares):
    found = rates(name, control)
    assert found == pytest.approx(shares, abs=0.05)
    assert found.sum() >= 0.96


def test_without_control_tcp_has_next_to_nothing():
    assert rates("seawall-fig9-a", "none")[0] < 0.1
    assert rates("seawall-fig9-b66", "none")[0] < 0.03


def test_a_loop_for_each_tunnel_gives_three_tunnels_more():
    """Figure 7: the strawman's flaw."""
    assert rates("seawall-fig7", "seawall-strawman")[0] > 0.6


@pytest.mark.parametrize(("part", "protocol"), [(0.2, "udp"), (0.3, "udp"), (0.45, "udp"), (0.35, "tcp")])
def test_the_ledger_tells_what_the_sources_lost(part, protocol):
    scenario = core_bottleneck_scenario((part, protocol, (0.0, 30.0)))
    fabric = scenario.fabric()
    document = controller_configuration(scenario, fabric, NEVER_CUTS, 6653, 8080)
    model, plane = under_control(fabric, document, ModelOptions(seed=1))
    traffic = ModelTraffic(model, scenario, 1, "cubic", SETTLE_S, lambda: baseline_limits_bps(scenario, "none"))
    said_bits = 0.0
    for interval in range(40, 161):
        model.run(SETTLE_S + interval * INTERVAL_S)
        decision = plane.central.state.allocators.decisions[0]
        if interval == 40:  # everybody may send what it wants by now
            before = traffic.run("none", "model", {}, {})
            assert (decision.grant_bps >= 0.49 * LINK_BPS).all()
            continue
        said_bits += reported_lost_bits(decision)
    run = traffic.run("none", "model", {}, {})
    lost, sent = (
        float((after - earlier).sum())
        for after, earlier in ((run.lost_packets, before.lost_packets), (run.sent_packets, before.sent_packets))
    )
    frame_bits = run.delivered_bits.sum() / run.received_packets.sum()
    assert said_bits / (sent * frame_bits) == pytest.approx(lost / sent, rel=0.1, abs=0.002)
