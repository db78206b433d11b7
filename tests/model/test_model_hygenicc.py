"""HyGenICC in the running controller, on the model with real TCP and UDP: fair, full, explained, replayed."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import yaml

from controller.central.controller import CentralController
from controller.config.loader import parse_config
from controller.monitoring.pair_explanation import explain_pair
from controller.monitoring.policy_metrics import policy_columns
from controller.policy.policy_groups import PolicyChoice
from controller.whatif.recording import Recorder, decode
from controller.whatif.replay import replay
from experiments.machine.controller_process import configuration
from experiments.model.control.control_plane import ControlPlane
from experiments.model.fabric import ModelFabric, ModelOptions
from experiments.model.sources import UdpSource
from experiments.model.tcp import TcpSource
from topologies.builders import fabrics

LINK_BPS = 100_000_000
INTERVAL_S = 0.055
CUT_2 = {"cut": 2, "slow": 0.02, "fast": 0.2}
CUT_1 = {"cut": 1, "beta": 0.1, "slow": 0.06, "fast": 0.06}


class Run:
    """Senders to the last PN of one switch; the last ``newcomers`` of them come at ``newcomer_s``."""

    def __init__(self, kinds, parameters, newcomer_s=2.0, weights=None, vlans=(1,), newcomers=1, **sections):
        count = len(kinds)
        self.fabric = fabrics["dets-fig5"](pns=count + 1, link_rate_bps=LINK_BPS, vlans=vlans)
        limits_bps = dict.fromkeys(vlans, LINK_BPS // len(vlans))
        document = configuration(self.fabric, limits_bps, "hygenicc", parameters, openflow_port=6653, rest_port=8080)
        for number, weight in (weights or {}).items():
            port = document["switches"]["s1"]["ports"][number]
            port.setdefault("vns", {})[1] = {**port.get("vns", {}).get(1, {}), "weight": weight}
        self.model = ModelFabric(self.fabric, ModelOptions(seed=1))
        self.plane = ControlPlane(self.model, CentralController(parse_config(yaml.safe_dump(document | sections), "m")))
        self.plane.start()
        self.sources = []
        for number, kind in enumerate(kinds, start=1):
            ends = self.fabric.vn(1, number), self.fabric.vn(1, count + 1)
            source = UdpSource(0.9 * LINK_BPS, self.model.slot_s) if kind == "udp" else self._tcp(ends, kind)
            self.model.connect(source, *ends)
            self.sources.append(source)
            at_s = newcomer_s if number > count - newcomers else 0.5
            self.model.at(at_s, functools.partial(self._start, source))

    def _tcp(self, ends, law):
        return TcpSource(law, self.model.slot_s, return_s=self.model.round_trip_s(*ends) / 2, rng=self.model.rng)

    def _start(self, source):
        source.start(self.model.slot)

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


def test_congestion_is_said():
    run = Run(("udp", "udp", "udp"), {}, newcomer_s=0.5)
    run.model.run(3.0)
    assert any("congestion" in event.text for event in run.plane.events())


def test_it_shadows_is_recorded_and_replayed():
    run = Run(("udp", "cubic"), {}, newcomer_s=0.5, vlans=(1, 2))
    central = run.plane.central
    run.plane.operator.set_vlan(2, run.model.now_s, algorithm="fs", shadow="hygenicc")
    run.model.run(0.8)
    recorder = central.recorder = Recorder()
    run.model.run(2.0)
    run.plane.operator.set_vlan(1, run.model.now_s, algorithm="hygenicc", parameters=CUT_2)
    run.model.run(3.0)
    again = list(replay(decode(recorder.drain()), PolicyChoice("hygenicc", {"cut": 1})))
    assert len(again) > 35
    assert all(one.same for one in again)
    assert not np.isnan(again[-1].alternative_bps).any()
    mine = central.vns.vlan_vid == 2
    asked = central.fabric.phantoms.meter_id[mine] > 0
    assert not asked.any()  # nobody sends there


def test_where_no_marks_come_back_rates_stand():
    """Feedback lost: the receiver's switch says nothing of its phantom meter, and no rate rises or falls."""
    run = Run(("udp", "cubic"), {}, newcomer_s=0.5)
    run.model.run(2.0)
    fabric = run.plane.central.fabric
    marks = fabric.phantoms
    before_bps = fabric.state.machines.limit_bps.copy()
    dumb = type(marks).initial(len(fabric.vns))
    for number in range(10):
        fabric.phantoms = dumb
        run.model.run(2.0 + (number + 1) * INTERVAL_S)
    after_bps = fabric.state.machines.limit_bps
    assert after_bps == pytest.approx(before_bps, rel=1e-6)
