"""``max-min`` in the running controller: guarantees, lending across VLANs, ceilings, core links; in virtual time."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.configs import star
from support.fabrics import started_loop

from controller.config.loader import parse_config
from controller.dets.send_rate_controller import MachineState
from controller.loop import control_step
from controller.monitoring.pair_explanation import explain_pair

M = 1e6
HUB = (1, 9)


def lending(**ceilings):
    """VLANs 10 and 20 of 40 and 50 Mb/s on ports of 100; each may take up to 95 Mb/s."""
    both = {"algorithm": "max-min", "send_ceiling": "95M", "receive_ceiling": "95M"}
    return {10: {**both, **ceilings}, 20: both}


def loop_of(vlans, **sections):
    config = star(9, capacity="100M", limits={10: "40M", 20: "50M"}, vlans=vlans, **sections)
    return started_loop(config)


def test_idle_capacity_is_lent_up_to_a_ceiling_that_can_be_moved_and_taken_away():
    loop = loop_of(lending())
    central = loop.fabric.central
    senders = [loop.add((1, port), HUB, 10, 5 * M) for port in (1, 2)]
    loop.run(3)
    assert (central.state.machines.control == MachineState.LIMITED).all()  # from the first interval on
    assert not central.state.allocators.congested.any()
    for sender in senders:
        sender.rate_bps = 60 * M
    row = central.vns.row_of(10, *HUB)
    for ceiling_bps, most_bps in ((95 * M, 95 * M), (60 * M, 60 * M), (None, 40 * M), (80 * M, 80 * M)):
        given = None if ceiling_bps is None else int(ceiling_bps)
        loop.fabric.operator.set_vn(row, loop.fabric.now_s, receive_ceiling_bps=given)
        loop.run(40)
        assert loop.rate(HUB, 10, -10) == pytest.approx(most_bps, rel=0.03), ceiling_bps


def explanations(loop):
    fabric = loop.fabric.central.fabric
    return [str(explain_pair(fabric, row)) for row in range(len(fabric.state.entries))]


@pytest.mark.parametrize("other", ["max-min", "fs"])
def test_what_was_lent_is_back_within_one_interval(other):
    """The owner, of the same algorithm or of another, starts after the borrower; its grant is there at once, and one
    interval later the borrower's meters are down to what is left."""
    vlans = lending()
    if other != "max-min":
        vlans[20] = {"algorithm": other}
    loop = loop_of(vlans)
    loop.add((1, 1), HUB, 10, 60 * M)
    loop.add((1, 2), HUB, 10, 60 * M)
    owner = loop.add((1, 3), HUB, 20, 0.0)
    loop.run(40)
    assert sum(loop.limits(10).values()) == pytest.approx(95 * M, rel=0.03)
    owner.rate_bps = 80 * M
    began = len(loop.received)
    loop.run(2)
    assert loop.rate(HUB, 20, began, began + 1) >= 0.97 * 50 * M
    central = loop.fabric.central
    limits_bps = control_step.effective_limits_bps(central.state, central.vns)
    borrowers = central.vns.vlan_vid[central.state.entries.receiver] == 10
    assert limits_bps[borrowers].sum() <= 50.5 * M
    loop.run(30)
    # The port has 10 Mb/s beyond the guarantees; max-min gives each of the three entries a third of it.
    extra = 10 / 3 * M if other == "max-min" else 0.0
    assert loop.rate(HUB, 20, -10) == pytest.approx(50 * M + extra, rel=0.03)
    assert loop.rate(HUB, 10, -10) == pytest.approx(50 * M - extra, rel=0.03)


def test_a_port_never_gets_more_than_it_carries():
    loop = loop_of(lending())
    for vid in (10, 20):
        for port in (1, 2, 3):
            loop.add((1, port), HUB, vid, 30 * M)
    loop.run(60)
    for received in loop.received[-10:]:
        assert sum(received.values()) <= 1.03 * 100 * M
    assert loop.rate(HUB, 10, -10) >= 0.97 * 40 * M
    assert loop.rate(HUB, 20, -10) >= 0.97 * 50 * M


def core_fabric(capacity="60M"):
    """Two edge switches around a core switch; VLANs 10 and 20 of 30 Mb/s, ceilings of 100."""
    vlan = {"algorithm": "max-min", "send_limit": "15M", "receive_limit": "30M", "send_ceiling": "100M"}
    vlan["receive_ceiling"] = "100M"
    ports = {number: {"capacity": "100M", "trunk": [10, 20]} for number in (1, 2, 3)}
    links = [
        {"between": ["s1:101", "c1:1"], "capacity": capacity},
        {"between": ["s2:101", "c1:2"], "capacity": "1G"},
    ]
    document = {
        "vlans": {10: vlan, 20: {**vlan, "weight": 3}},
        "switches": {"s1": {"dpid": 1, "ports": ports}, "s2": {"dpid": 2, "ports": {1: ports[1]}}, "c1": {"dpid": 3}},
        "links": links,
    }
    return started_loop(parse_config(json.dumps(document)), [((1, 101), (3, 1)), ((2, 101), (3, 2))])


def test_a_core_link_bounds_what_is_lent():
    """Guarantees are 15 + 15 of the link's 60 Mb/s; of the other 30 the VLAN of weight 3 gets three quarters."""
    loop = core_fabric()
    loop.add((1, 1), (2, 1), 10, 100 * M)
    loop.add((1, 2), (2, 1), 20, 100 * M)
    loop.run(60)
    assert loop.rate((2, 1), 10, -10) == pytest.approx(22.5 * M, rel=0.03)
    assert loop.rate((2, 1), 20, -10) == pytest.approx(37.5 * M, rel=0.03)
    text = explanations(loop)[0]
    assert "bound by its own send limit and link out of s1:101, share 2 of 2" in text, text  # guarantee and excess


def test_a_core_link_that_is_not_named_bounds_nothing():
    loop = core_fabric("1G")
    loop.add((1, 1), (2, 1), 10, 70 * M)
    loop.run(40)
    assert loop.rate((2, 1), 10, -10) == pytest.approx(70 * M, rel=0.03)


def test_leaving_max_min_takes_back_what_was_lent():
    loop = loop_of(lending())
    loop.add((1, 1), HUB, 10, 90 * M)
    loop.run(30)
    assert loop.rate(HUB, 10, -5) >= 0.95 * 90 * M
    central = loop.fabric.central
    loop.fabric.operator.set_vlan(10, loop.fabric.now_s, algorithm="fs")
    assert np.array_equal(central.vns.send_max_bps[central.vns.vlan_vid == 10], [40 * M] * 9)
    loop.run(40)
    assert loop.rate(HUB, 10, -10) == pytest.approx(40 * M, rel=0.03)
    loop.fabric.operator.set_vlan(10, loop.fabric.now_s, algorithm="max-min", parameters={"probe": 3})
    loop.run(40)
    assert loop.rate(HUB, 10, -10) == pytest.approx(90 * M, rel=0.03)


def test_an_entry_is_explained():
    loop = loop_of(lending())
    for port in (1, 2):
        loop.add((1, port), HUB, 10, 100 * M)
        loop.add((1, port + 2), HUB, 20, 100 * M)
    loop.run(60)
    texts = explanations(loop)
    assert "bound by s1:9's receive limit of VLAN 10 and link s1:9 (receiving), share" in texts[0], texts
    assert "next bound: its own send limit and s1:9's receive ceiling of VLAN 10 at" in texts[0], texts


def test_a_standing_rate_is_explained_as_what_it_is():
    loop = loop_of(lending())
    loop.add((1, 1), HUB, 10, 60 * M)
    loop.add((1, 2), HUB, 10, 3 * M)
    loop.run(40)
    texts = explanations(loop)
    assert texts[0].startswith("VLAN 10, s1:1 to s1:9: 66.0 Mb/s; bound by its demand; next bound: "), texts
    assert texts[1].startswith("VLAN 10, s1:2 to s1:9: 20.0 Mb/s; bound by an equal share of the guarantee, "), texts


def test_what_changed_since_the_last_interval_is_explained_by_its_ceilings():
    loop = loop_of({10: {"algorithm": "fs"}, 20: {"algorithm": "max-min"}})
    for port in (1, 2):
        loop.add((1, port), HUB, 10, 60 * M)
        loop.add((1, port + 2), HUB, 20, 60 * M)
    loop.run(10)
    loop.fabric.operator.set_vlan(10, loop.fabric.now_s, algorithm="max-min")
    texts = explanations(loop)
    assert "VLAN 10" in texts[0]
    both = "its own send limit and s1:9's receive limit of VLAN 10"
    assert f"bound by {both}; next bound: the capacity of port s1:1 at 100.0 Mb/s" in texts[0]
    loop.add((1, 5), HUB, 20, 60 * M)
    assert all(explanations(loop))
    loop.run(2)
    assert "bound by s1:9's receive limit of VLAN 10, share" in explanations(loop)[0]
