"""The real application against software switches: hosts are learned and reached, over links that come and go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.wire import EVERYBODY, WireRun, frame

TRIANGLE = [((1, 11), (2, 11)), ((2, 12), (3, 12)), ((1, 13), (3, 13))]


@pytest.fixture(scope="module")
def triangle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireRun]:
    """Three switches in a ring, a foreign one that the configuration does not name, and its own controller's."""
    edges = {1: [1, 2], 2: [1, 2], 3: [1, 2]}
    run = WireRun(tmp_path_factory.mktemp("triangle"), edges, TRIANGLE, control={"mac_ageing_s": 2})
    run.fabric.add_switch(99, {1: 1e9})
    with run:
        run.wait_flooding({1: {1, 2, 11, 13}, 2: {1, 2, 11}, 3: {1, 2, 13}})
        yield run


def received_by_all(run: WireRun) -> dict[tuple[int, int], list[bytes]]:
    return {(dpid, port): run.fabric.received(dpid, port) for dpid in (1, 2, 3) for port in (1, 2)}


@pytest.mark.parametrize("origin", [1, 2, 3])
def test_a_broadcast_reaches_each_host_once_on_a_ring(triangle: WireRun, origin: int) -> None:
    triangle.fabric.forget_received()
    sent = frame(0xA0 + origin, EVERYBODY, 10)
    triangle.fabric.inject(origin, 1, sent)
    wanted = {(dpid, port): [sent] for dpid in (1, 2, 3) for port in (1, 2)}
    assert received_by_all(triangle) == wanted | {(origin, 1): []}


def test_frames_go_to_their_host_only_and_never_to_another_vlan(triangle: WireRun) -> None:
    triangle.introduce(1, 1, 0xB1)
    triangle.fabric.forget_received()
    sent = frame(0xB2, 0xB1, 10)
    triangle.fabric.inject(3, 2, sent)
    assert [place for place, frames in received_by_all(triangle).items() if frames] == [(1, 1)]
    assert triangle.fabric.received(1, 1) == [sent]
    triangle.fabric.forget_received()
    triangle.fabric.inject(3, 2, frame(0xB2, EVERYBODY, None))
    triangle.fabric.inject(3, 2, frame(0xB2, EVERYBODY, 0))
    triangle.fabric.inject(3, 2, frame(0xB2, EVERYBODY, 30))
    assert not any(received_by_all(triangle).values())
    triangle.fabric.inject(3, 2, frame(0xB2, EVERYBODY, 20))
    assert {bytes(f[12:16]) for frames in received_by_all(triangle).values() for f in frames} == {b"\x81\x00\x00\x14"}


def test_a_link_that_goes_down_is_routed_around_and_comes_back(triangle: WireRun) -> None:
    triangle.introduce(1, 1, 0xC1)
    triangle.fabric.set_link_up((1, 11), False)
    triangle.wait_flooding({1: {1, 2, 13}, 2: {1, 2, 12}, 3: {1, 2, 12, 13}})
    triangle.introduce(1, 1, 0xC1)
    triangle.fabric.forget_received()
    sent = [frame(0xC2, 0xC1, 10), frame(0xC2, EVERYBODY, 10)]
    for one in sent:
        triangle.fabric.inject(2, 1, one)
    assert triangle.fabric.received(1, 1) == sent
    assert triangle.fabric.received(3, 2) == sent[1:]
    triangle.fabric.set_link_up((1, 11), True)
    triangle.wait_flooding({1: {1, 2, 11, 13}, 2: {1, 2, 11}, 3: {1, 2, 13}})


def test_a_silent_host_is_forgotten_after_the_ageing_time(triangle: WireRun) -> None:
    triangle.introduce(1, 2, 0xE1)

    def forgotten() -> bool:
        return not any(0xE1 in (f.match.eth_src, f.match.eth_dst) for dpid in (1, 2, 3) for f in triangle.flows(dpid))

    assert not forgotten()
    triangle.wait(forgotten, "forgotten", timeout_s=10)


def test_a_switch_that_is_not_configured_is_left_alone(triangle: WireRun) -> None:
    triangle.wait(lambda: "0000000000000063" in triangle.app.log(), "refused in the log")
    assert triangle.fabric.connected(99)
    assert triangle.flows(99) == []
    assert triangle.meters(99) == {}
    assert triangle.app.get("/v1/health")["status"] == "ready"
