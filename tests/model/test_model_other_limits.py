"""A limit is changed under traffic where receivers have no queues: what others get and how their meters stand stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.model_plane import INTERVAL_S, document_of, send, under_control

from experiments.model.control.control_plane import ControlPlane
from experiments.model.fabric import ModelFabric
from experiments.model.sources import UdpSource
from topologies.builders import dumbbell

BEGIN_S, END_S = 3.0, 8.0
BLUE, RED = 10, 20
Change = Callable[[ControlPlane, int], None]


def controlled(algorithm: str) -> tuple[ModelFabric, ControlPlane]:
    """Two senders of 300 Mb/s in VLAN 20 behind s1, and s2:2, which may receive 500."""
    fabric = dumbbell(pns=4, receivers=2, vlans=(BLUE, RED), link_rate_bps=10**9, core_rate_bps=10**10)
    document = document_of(fabric, {BLUE: 400_000_000, RED: 500_000_000}, algorithm, queues=False)
    model, plane = under_control(fabric, document)
    for number in (1, 2):
        send(model, UdpSource(300e6, model.slot_s), RED, number, 4)
    return model, plane


def red(algorithm: str, change: Change | None = None, per_s: float = 1.0) -> list[tuple[int, tuple[int, ...]]]:
    """What red's receiver got by each interval, and the rates of its senders' meters, kb/s."""
    model, plane = controlled(algorithm)
    turn, seen = 0, []

    def again() -> None:
        nonlocal turn
        turn += 1
        change(plane, turn)
        plane.push()
        model.at(BEGIN_S + turn / per_s, again)

    if change is not None:
        model.at(BEGIN_S, again)
    got = model.received[model.fabric.vn(RED, 4)]
    for number in range(int(BEGIN_S / INTERVAL_S), int(END_S / INTERVAL_S)):
        model.run(number * INTERVAL_S)
        seen.append((got.octets, tuple(plane.central.state.enforcement.rate_kbps.tolist())))
    assert turn >= (0 if change is None else (END_S - BEGIN_S) * per_s - 1)
    return seen


def receive_limit(vlan_vid: int) -> Change:
    def change(plane: ControlPlane, turn: int) -> None:
        row = plane.central.vns.row_of(vlan_vid, 1, 1)
        plane.operator.set_vn(row, plane.model.now_s, receive_limit_bps=100_000_000 - turn % 2 * 10_000_000)

    return change


@pytest.mark.parametrize("algorithm", ["fe", "level"])
@pytest.mark.parametrize(("vlan_vid", "per_s"), [(BLUE, 7), (BLUE, 16), (RED, 8)])
def test_a_receive_limit_that_changes_all_the_time_moves_nobody_else(algorithm, vlan_vid, per_s):
    """Those of floods change with it, on all switches: what these confirm says nothing of the meters of pairs."""
    assert red(algorithm, receive_limit(vlan_vid), per_s) == red(algorithm)
