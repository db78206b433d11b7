"""Congestion as operators see it, under max-min as under other algorithms."""

from __future__ import annotations

import pytest
from support.configs import star
from support.fabrics import ControlLoop
from support.host_traffic import started

from controller.dets.rate_allocator import CALM_INTERVALS

M = 1e6
HUB = (1, 5)


def loop_of(algorithm, **vlan):
    config = star(5, capacity="100M", limits={10: "40M"}, vlans={10: {"algorithm": algorithm, **vlan}})
    return ControlLoop(started(config))


def kinds(loop):
    return [event.kind for event in loop.fabric.central.events.newer_than(0) if event.kind.startswith("congestion")]


def hub(loop):
    fabric = loop.fabric.central.fabric
    row = fabric.vns.row_of(10, *HUB)
    return bool(fabric.congestion.congested[row]), float(fabric.congestion.since_s[row])


@pytest.mark.parametrize("algorithm", ["max-min", "fs"])
def test_it_begins_and_ends(algorithm):
    loop = loop_of(algorithm)
    senders = [loop.add((1, port), HUB, 10, 30 * M) for port in (1, 2)]
    began_s = loop.fabric.now_s
    loop.run(20)
    congested, since_s = hub(loop)
    assert congested
    assert began_s < since_s < began_s + 10 * 0.055
    assert kinds(loop) == ["congestion-began"]
    for sender in senders:
        sender.rate_bps = 10 * M
    loop.run(CALM_INTERVALS + 20)
    congested, since_s = hub(loop)
    assert not congested
    assert since_s != since_s
    assert kinds(loop) == ["congestion-began", "congestion-ended"]


def test_a_sender_at_its_own_limit_congests_nobody():
    loop = loop_of("max-min")
    loop.add((1, 1), HUB, 10, 90 * M)
    loop.run(40)
    assert hub(loop)[0] is False
    assert kinds(loop) == []


def test_what_is_borrowed_is_not_congestion_until_nothing_is_left():
    loop = loop_of("max-min", send_ceiling="100M", receive_ceiling="80M")
    first, second = (loop.add((1, port), HUB, 10, 35 * M) for port in (1, 2))
    loop.run(40)
    assert hub(loop)[0] is False
    first.rate_bps = second.rate_bps = 60 * M
    loop.run(10)
    assert hub(loop)[0] is True
