"""Algorithms that run next to the one that enforces: they see what it sees and change nothing."""

from __future__ import annotations

import numpy as np
import pytest
from support.configs import star
from support.fabrics import started_loop

from apps.rest import Service, create_app
from controller.loop import control_step

M = 1e6
HUB = (1, 9)
RATES = (100, 100, 5)
ALGORITHMS = ("fs", "sp", "fp", "fe", "max-min", "seawall")


def loop_of(algorithm, shadow=None):
    vlans = {10: {"algorithm": algorithm, **({"shadow": shadow} if shadow else {})}}
    loop = started_loop(star(9, capacity="100M", limits={10: "40M", 20: "50M"}, vlans=vlans))
    for port, rate in enumerate(RATES, start=1):
        loop.add((1, port), HUB, 10, rate * M)
    loop.add((1, 4), HUB, 20, 20 * M)
    return loop


def of_vlan_10(loop):
    central = loop.fabric.central
    return central.vns.vlan_vid[central.state.entries.receiver] == 10


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_shadow_of_the_same_algorithm_decides_the_same(algorithm):
    loop = loop_of(algorithm, algorithm)
    for _ in range(40):
        loop.run(1)
        central = loop.fabric.central
        rates_bps = central.fabric.control.shadow.rates_of(central.state.entries)
        in_force_bps = control_step.effective_limits_bps(central.state, central.vns)
        mine = of_vlan_10(loop)
        np.testing.assert_array_equal(rates_bps[mine], in_force_bps[mine])
        assert np.isnan(rates_bps[~mine]).all()


@pytest.mark.parametrize(("algorithm", "shadow"), [*(("fs", one) for one in ALGORITHMS), ("max-min", "fe")])
def test_a_shadow_changes_nothing(algorithm, shadow):
    with_it, without = loop_of(algorithm, shadow), loop_of(algorithm)
    for loop in (with_it, without):
        loop.run(40)
    assert with_it.received == without.received
    assert with_it.mods == without.mods


def test_entries_that_come_are_followed():
    loop = loop_of("fs", "sp")
    loop.run(10)
    central = loop.fabric.central
    known = central.fabric.control.shadow.rates_of(central.state.entries)[of_vlan_10(loop)]
    loop.add((1, 5), HUB, 10, 100 * M)
    assert loop.fabric.learn(0x0200_0A00_0106, (1, 6), 10) is not None
    loop.run(1)
    rates_bps = central.fabric.control.shadow.rates_of(central.state.entries)
    assert len(rates_bps) == 5
    assert np.isfinite(rates_bps[of_vlan_10(loop)]).all()
    assert len(known) == 3


def test_rest_shows_and_changes_it():
    loop = loop_of("fs")
    app = create_app(Service(loop.fabric.central, lambda: loop.fabric.now_s))
    client = app.test_client()
    assert client.get("/v1/vlans/10").get_json()["shadow"] is None
    loop.run(20)
    assert {entry["shadow_bps"] for entry in client.get("/v1/pairs").get_json()["pairs"]} == {None}
    answer = client.patch("/v1/vlans/10", json={"shadow": "max-min"})
    assert (answer.status_code, answer.get_json()["shadow"], answer.get_json()["algorithm"]) == (200, "max-min", "fs")
    loop.run(5)
    shown = [entry["shadow_bps"] for entry in client.get("/v1/pairs?vlan=10").get_json()["pairs"]]
    assert sorted(shown)[1:] == pytest.approx([17.25 * M] * 2, rel=0.02)
    assert {entry["shadow_bps"] for entry in client.get("/v1/pairs?vlan=20").get_json()["pairs"]} == {None}
    assert client.patch("/v1/vlans/10", json={"shadow": None}).get_json()["shadow"] is None
    assert loop.fabric.central.fabric.control.shadow.names == {}


def test_a_shadow_has_parameters_of_its_own():
    """With a headroom of a half, the sender of 5 Mb/s would be left what it sends and half more."""
    loop = loop_of("fs", "sp")
    client = create_app(Service(loop.fabric.central, lambda: loop.fabric.now_s))
    client = client.test_client()
    assert client.get("/v1/vlans/10").get_json()["shadow_parameters"]["headroom"] == 0.0
    answer = client.patch("/v1/vlans/10", json={"shadow_parameters": {"headroom": 0.5}})
    assert (answer.status_code, answer.get_json()["shadow"]) == (200, "sp")
    assert answer.get_json()["shadow_parameters"]["headroom"] == 0.5
    assert answer.get_json()["parameters"] == {}
    loop.run(40)
    central = loop.fabric.central
    small = of_vlan_10(loop) & (central.state.entries.sender == central.vns.row_of(10, 1, 3))
    (rate_bps,) = central.fabric.control.shadow.rates_of(central.state.entries)[small]
    assert rate_bps == pytest.approx(7.5 * M, rel=0.01)
    for refused in ({"headroom": 11}, {"k": 1}):
        answer = client.patch("/v1/vlans/10", json={"shadow_parameters": refused})
        assert answer.status_code == 422
        assert "shadow_parameters." in answer.text
    answer = client.patch("/v1/vlans/20", json={"shadow_parameters": {"headroom": 1}})
    assert answer.status_code == 422
    assert central.fabric.control.shadow.policies[10].parameters == {"headroom": 0.5}


@pytest.mark.parametrize(("shadow", "other"), [("fs", "max-min"), ("max-min", "fs"), ("sp", "sp")])
def test_a_shadow_goes_on_while_that_of_another_vlan_changes(shadow, other):
    loop, twin = loop_of("fs", shadow), loop_of("fs", shadow)
    for one in (loop, twin):
        one.run(20)

    def rates_bps(one):
        return one.fabric.central.fabric.control.shadow.rates_of(one.fabric.central.state.entries)

    for value in (other, None):
        loop.fabric.operator.set_vlan(20, loop.fabric.now_s, shadow=value)
        assert np.isfinite(rates_bps(loop)[of_vlan_10(loop)]).all()
        for _ in range(5):
            for one in (loop, twin):
                one.run(1)
            np.testing.assert_array_equal(rates_bps(loop)[of_vlan_10(loop)], rates_bps(twin)[of_vlan_10(twin)])
        assert np.isnan(rates_bps(loop)[~of_vlan_10(loop)]).all() == (value is None)
