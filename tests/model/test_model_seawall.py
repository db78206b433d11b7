"""Seawall's policies in the running controller, in virtual time, and its promise for real TCP and UDP."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.configs import star
from support.fabrics import started_loop

from controller.loop import control_step
from controller.monitoring.pair_explanation import explain_pair
from controller.monitoring.policy_metrics import policy_columns

M = 1e6
HUB = (1, 9)
WIDE = {"send_ceiling": "100M", "receive_ceiling": "100M"}
SHARING = ("seawall", "seawall-exact")
ALL = (*SHARING, "seawall-cubic", "seawall-dctcp", "seawall-strawman")


def loop_of(vlans, limit="10M"):
    vlans = {vid: (WIDE if "seawall" in one["algorithm"] else {}) | one for vid, one in vlans.items()}
    return started_loop(star(9, capacity="100M", limits=dict.fromkeys(vlans, limit), vlans=vlans))


def got(loop, intervals=60):
    """What each sender gets on average from now on, in bit/s."""
    before = [sender.received_bits for sender in loop.senders]
    loop.run(intervals)
    seconds = intervals * loop.interval_s
    return [(sender.received_bits - one) / seconds for sender, one in zip(loop.senders, before, strict=True)]


@pytest.mark.parametrize("name", SHARING)
def test_a_link_is_shared_by_senders_whatever_their_vlans_and_receivers(name):
    """A sends to three receivers, and what it sends elsewhere does not cost it its part of the link that all want."""
    loop = loop_of({10: {"algorithm": name}, 20: {"algorithm": name}})
    for port, rate_bps in ((7, 20 * M), (8, 20 * M), (9, 58 * M)):
        loop.add((1, 1), (1, port), 10, rate_bps)
    loop.add((1, 2), HUB, 10, 100 * M)
    loop.add((1, 3), HUB, 20, 100 * M)
    loop.run(250)
    rates_bps = got(loop)
    assert rates_bps[:2] == pytest.approx([20 * M] * 2, rel=0.05)
    assert rates_bps[2:] == pytest.approx([98 / 3 * M] * 3, rel=0.06)


@pytest.mark.parametrize("name", SHARING)
def test_a_change_of_weight_is_in_force_at_once(name):
    loop = loop_of({10: {"algorithm": name}})
    loop.add((1, 1), HUB, 10, 100 * M)
    loop.add((1, 2), HUB, 10, 100 * M)
    loop.run(100)
    central = loop.fabric.central
    loop.fabric.operator.set_vn(central.vns.row_of(10, 1, 1), loop.fabric.now_s, weight=3.0)
    loop.run(150)
    assert got(loop) == pytest.approx([0.75 * 98 * M, 0.25 * 98 * M], rel=0.05)


def test_who_has_more_than_its_share_of_a_hosts_link_leaves_room_there():
    """A host's drops are not seen. So the other VN of the port is given room to show that it wants more."""
    loop = loop_of({10: {"algorithm": "seawall"}, 20: {"algorithm": "seawall"}})
    modest = loop.add((1, 1), (1, 8), 10, 10 * M)
    loop.add((1, 1), HUB, 20, 100 * M)
    loop.run(200)
    assert got(loop) == pytest.approx([10 * M, 83 * M], rel=0.02)
    modest.rate_bps = 100 * M
    loop.run(100)
    assert got(loop) == pytest.approx([49 * M, 49 * M], rel=0.03)
    modest.rate_bps = 0.0
    loop.run(100)
    assert got(loop) == pytest.approx([0.0, 98 * M], rel=0.02)


@pytest.mark.parametrize("name", SHARING)
def test_a_meters_own_drops_are_not_congestion(name):
    """Alone, and offering ten times what its meter lets through: its rate rises to the link's."""
    loop = loop_of({10: {"algorithm": name}})
    sender = loop.add((1, 1), HUB, 10, 5 * M)
    loop.run(60)
    sender.rate_bps = 1000 * M
    loop.run(60)
    assert got(loop) == pytest.approx([98 * M], rel=0.02)


@pytest.mark.parametrize("name", ALL)
def test_silence_fails_closed(name):
    """Meters that are not read: no rate rises, however long."""
    loop = loop_of({10: {"algorithm": name}})
    loop.add((1, 1), HUB, 10, 100 * M)
    loop.add((1, 2), HUB, 10, 100 * M)
    loop.run(40)
    central = loop.fabric.central
    loop.fabric.up.clear()  # no statistics any more
    before_bps, rates = control_step.effective_limits_bps(central.state, central.vns), []
    for _ in range(60):
        loop.run(1)
        rates.append(control_step.effective_limits_bps(central.state, central.vns))
    assert (np.diff([before_bps, *rates], axis=0) <= 1e-6).all()
    assert (rates[-1] >= 0.3 * before_bps).all()


def test_what_binds_is_named():
    loop = loop_of({10: {"algorithm": "seawall"}})
    loop.add((1, 1), HUB, 10, 100 * M)
    loop.add((1, 2), HUB, 10, 100 * M)
    loop.run(200)
    why = str(explain_pair(loop.fabric.central.fabric, 0))
    assert re.search(
        r"bound by link s1:9 \(receiving\): weight 1 of 2, 9\.\d% marked, losses unknown; 49\.\d Mb/s for all", why
    )
    assert "for all its receivers there, share 1 of 1; next bound: " in why
    shown = policy_columns(loop.fabric.central.fabric, np.arange(2))
    assert shown.bottleneck == ["link s1:9 (receiving)"] * 2
    assert f"{shown.marked[0]:.1%} marked" in why
    assert np.isnan(shown.lost).all()


@pytest.mark.parametrize("name", SHARING)
def test_a_receivers_ceiling_is_shared_by_weight(name):
    """Less than the link has for it: no link shows that, but it is known."""
    vlans = {10: {"algorithm": name, "receive_ceiling": "40M"}}
    loop = loop_of(vlans)
    for port in (1, 2, 3):
        loop.add((1, port), HUB, 10, 100 * M if port < 3 else 4 * M)
    loop.run(100)
    rates_bps = got(loop)
    assert sum(rates_bps) == pytest.approx(0.98 * 40 * M, rel=0.04)
    assert rates_bps[2] == pytest.approx(4 * M, rel=0.02)
    assert rates_bps[0] == pytest.approx(rates_bps[1], rel=0.02)
