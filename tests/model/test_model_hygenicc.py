"""HyGenICC in the running controller, on the model with real TCP and UDP: fair, full, explained, replayed."""

from __future__ import annotations

import numpy as np
import pytest
from support.model_plane import INTERVAL_S, document_of, send, under_control

from controller.monitoring.pair_explanation import explain_pair
from controller.monitoring.policy_metrics import policy_columns
from experiments.model.fabric import ModelOptions
from experiments.model.sources import UdpSource
from experiments.model.tcp import TcpSource
from topologies.builders import fabrics

LINK_BPS = 100_000_000
CUT_2 = {"cut": 2, "slow": 0.02, "fast": 0.2}
CUT_1 = {"cut": 1, "beta": 0.1, "slow": 0.06, "fast": 0.06}


class Run:
    """Senders to the last PN of one switch; the last ``newcomers`` of them come at ``newcomer_s``."""

    def __init__(self, kinds, parameters, newcomer_s=2.0, weights=None, newcomers=1):
        count = len(kinds)
        self.fabric = fabrics["dets-fig5"](pns=count + 1, link_rate_bps=LINK_BPS, vlans=(1,))
        document = document_of(self.fabric, {1: LINK_BPS}, "hygenicc", **parameters)
        for number, weight in (weights or {}).items():
            document["switches"]["s1"]["ports"][number]["vns"] = {1: {"weight": weight}}
        self.model, self.plane = under_control(self.fabric, document, ModelOptions(seed=1))
        self.sources = []
        for number, kind in enumerate(kinds, start=1):
            ends = self.fabric.vn(1, number), self.fabric.vn(1, count + 1)
            source = UdpSource(0.9 * LINK_BPS, self.model.slot_s) if kind == "udp" else self._tcp(ends, kind)
            at_s = newcomer_s if number > count - newcomers else 0.5
            self.sources.append(send(self.model, source, 1, number, count + 1, at_s))

    def _tcp(self, ends, law):
        return TcpSource(law, self.model.slot_s, return_s=self.model.round_trip_s(*ends) / 2, rng=self.model.rng)

    def rates(self, until_s):
        """Let time pass; return what each source delivered meanwhile, in bit/s."""
        began_s, before = self.model.now_s, [source.delivered for source in self.sources]
        self.model.run(until_s)
        bits = [(source.delivered - was) * source.frame_bits for source, was in zip(self.sources, before, strict=True)]
        return np.array(bits) / (until_s - began_s)


def jain(rates_bps):
    return rates_bps.sum() ** 2 / (len(rates_bps) * (rates_bps**2).sum())


@pytest.mark.parametrize(
    ("parameters", "least_use"), [({}, 0.83), (CUT_1, 0.90), (CUT_2, 0.94)], ids=["cut 0", "cut 1", "cut 2"]
)
@pytest.mark.parametrize("kinds", [("udp", "cubic"), ("udp", "udp", "udp", "cubic"), ("cubic",) * 4], ids=str)
def test_a_newcomer_has_its_share_among_whoever_sends(kinds, parameters, least_use):
    """Phantom meters alone: no ECN anywhere."""
    run = Run(kinds, parameters)
    run.rates(3.5)
    rates_bps = run.rates(6.0)
    assert jain(rates_bps) >= 0.97
    assert rates_bps.sum() >= least_use * LINK_BPS
    assert rates_bps[-1] >= 0.8 * LINK_BPS / len(kinds)


def test_alone_it_has_the_link():
    run = Run(("cubic",), {}, newcomer_s=0.5)
    run.rates(2.0)
    assert run.rates(4.0)[0] >= 0.95 * LINK_BPS


@pytest.mark.parametrize("parameters", [{}, CUT_2], ids=["cut 0", "cut 2"])
def test_fifty_newcomers_at_once_cost_those_who_were_there_little_while_they_wait(parameters):
    """They come while all is marked. Until the controller has seen them, two intervals, nothing can hold them."""
    residents, newcomers, seen_s = 4, 50, 0.9 + 2 * INTERVAL_S
    kept = {}
    for admit in (1, 0):
        settings = {**parameters, "start": 0, "admit": admit}
        run = Run(("udp",) * (residents + newcomers), settings, newcomer_s=0.9, newcomers=newcomers)
        run.rates(seen_s)
        rates_bps, waits = [], newcomers
        while waits and len(rates_bps) < 5:
            rates_bps.append(run.rates(seen_s + INTERVAL_S * (len(rates_bps) + 1)))
            (decision,) = run.plane.central.state.allocators.decisions
            waits = int(decision.waits.sum()) if admit else newcomers
        assert len(rates_bps) >= 3
        kept[admit] = np.mean(rates_bps, axis=0)[:residents].sum() / LINK_BPS
    assert kept[1] >= 0.95
    assert kept[0] < 0.4


def test_weights_are_the_shares():
    run = Run(("cubic", "cubic"), CUT_2, newcomer_s=0.5, weights={1: 2.0})
    run.rates(2.0)
    heavy_bps, light_bps = run.rates(5.0)
    assert 1.8 <= heavy_bps / light_bps <= 2.2


def test_what_binds_is_said():
    run = Run(("cubic", "udp"), CUT_2, newcomer_s=0.5)
    run.model.run(0.9)
    seen = set()
    for number in range(60):
        run.model.run(0.9 + number * INTERVAL_S)
        fabric = run.plane.central.fabric
        for row in range(len(fabric.state.entries)):
            found = explain_pair(fabric, row)
            seen.add(found.constraint.split(":")[0])
            assert found.next_constraint
            if found.constraint.startswith("marks"):
                assert "(the limit of s1:3)" in found.constraint
                shown = policy_columns(fabric, np.array([row]))
                assert shown.bottleneck == ["the limit of s1:3"]
                assert f"marks: {shown.marked[0]:.0%} of its packets" in found.constraint
                assert np.isnan(shown.lost[0])  # the policy reads no losses
    assert {"marks", "recovering"} <= seen
    assert seen <= {"marks", "recovering", "its last rate", "its share of port s1"}
