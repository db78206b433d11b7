"""The real application, and hosts that move to VNs with as many hosts as they may learn: found, told, and bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster import ShardedRun, needs_etcd
from support.wire import EVERYBODY, WireRun, frame

from controller.forwarding.pipeline import Table

LINKS = [((1, 101), (2, 101))]
EDGES = {1: (1, 2), 2: (1, 2)}
MOVING, PEER = 0x0200_0000_0099, 0x0200_0000_0055
CONTROL = {"max_macs_per_vn": 2}
PATH = "/v1/hosts/02:00:00:00:00:99"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[WireRun]:
    """VLAN 10 at s2:2 has the two hosts that it may learn, MOVING is at s1:1 and PEER at s1:2."""
    with WireRun(tmp_path, EDGES, LINKS, control=CONTROL) as started:
        started.wait_flooding({1: {1, 2, 101}, 2: {1, 2, 101}})
        for mac in (0x0200_0000_0011, 0x0200_0000_0012):
            started.introduce(2, 2, mac)
        started.introduce(1, 1, MOVING)
        started.introduce(1, 2, PEER)
        yield started


def got(run: WireRun, mac: int, count: int = 6) -> dict[tuple[int, int], int]:
    """Where so many frames from PEER for an address go."""
    sent = frame(PEER, mac, 10)
    run.fabric.forget_received()
    for _ in range(count):
        run.fabric.inject(1, 2, sent)
    places = [(dpid, port_no) for dpid, ports in EDGES.items() for port_no in ports]
    return {place: found for place in places if (found := run.fabric.received(*place).count(sent))}


def place(shown: dict[str, Any] | None) -> str | None:
    return None if shown is None else f"{shown['switch']}:{shown['port_no']}"


def wait_at(run: WireRun, where: str) -> dict[str, Any]:
    """Wait until the moving host is at a place; return what is shown of it."""
    run.app.wait_for(lambda: place(run.app.get(PATH)["hosts"][0]) == where, f"it is at {where}")
    (shown,) = run.app.get(PATH)["hosts"]
    return dict(shown)


@pytest.mark.parametrize("to", [EVERYBODY, PEER])
def test_frames_for_a_host_that_moves_to_a_full_vn_go_there_after_a_restart_too(run: WireRun, to: int) -> None:
    assert got(run, MOVING) == {(1, 1): 6}
    before = run.app.get(PATH)["hosts"][0]
    run.fabric.inject(2, 2, frame(MOVING, to, 10))
    shown = wait_at(run, "s2:2")
    run.wait(lambda: got(run, MOVING) == {(2, 2): 6}, "frames go there, and nowhere else")
    assert (place(before), place(shown["moved_from"])) == ("s1:1", "s1:1")
    assert before["since"] < shown["since"]
    vn = run.app.get("/v1/vns/10/s2/2")
    assert (vn["hosts_full"], len(vn["hosts"])) == (True, 3)
    assert run.app.get("/v1/health")["full_vns"] == 1
    (moved,) = run.app.events("host-moved")
    assert (moved["severity"], moved["switch"], moved["port_no"]) == ("info", "s2", 2)
    assert moved["text"] == "02:00:00:00:00:99 of VLAN 10 has moved from s1:1 to s2:2"
    assert "was known before it came there" in run.app.events("host-limit-reached")[-1]["text"]
    # A controller that starts again leads to all of them.
    assert run.app.stop() == 0
    run.app.start()
    run.app.wait_ready()
    assert len(run.app.get("/v1/vns/10/s2/2")["hosts"]) == 3
    assert got(run, MOVING) == {(2, 2): 6}
    assert len([flow for flow in run.flows(2, Table.LEARN) if flow.match.in_port == 2 and flow.match.eth_src]) == 3


@needs_etcd
def test_a_host_that_moves_to_a_full_vn_of_another_node_is_there_for_both(tmp_path: Path) -> None:
    with ShardedRun(
        tmp_path, {1: [11], 2: [21], 3: [31]}, links=[*LINKS, ((2, 102), (3, 101))], control=CONTROL
    ) as run:
        owners = run.owners(0)
        assert owners["s1"] != owners["s3"]
        for dpid, port_no, mac in ((3, 31, 0x11), (3, 31, 0x12), (1, 11, MOVING), (2, 21, PEER)):
            run.wait(lambda at=(dpid, port_no), mac=mac: _known(run, *at, mac), "a host is known to both nodes")
        run.fabric.inject(3, 31, frame(MOVING, EVERYBODY, 10))
        for node in run.nodes:
            run.wait(lambda node=node: place(node.get(PATH)["hosts"][0]) == "s3:31", "it is there")
        sent = frame(PEER, MOVING, 10)

        def arrives() -> bool:
            run.fabric.forget_received()
            run.fabric.inject(2, 21, sent)
            return [run.fabric.received(*one).count(sent) for one in ((1, 11), (3, 31))] == [0, 1]

        run.wait(arrives, "frames go there")
        shown = [node.get("/v1/hosts") for node in run.nodes]
        assert shown[0] == shown[1]
        assert [place(one) for one in shown[0]["hosts"]] == ["s3:31", "s3:31", "s2:21", "s3:31"]
        assert place(shown[0]["hosts"][-1]["moved_from"]) == "s1:11"
        moved = [event for node in run.nodes for event in node.events("host-moved")]
        assert len(moved) == 1


def _known(run: ShardedRun, dpid: int, port_no: int, mac: int) -> bool:
    run.fabric.inject(dpid, port_no, frame(mac, EVERYBODY, 10))
    text = mac.to_bytes(6).hex(":")
    return all(node.request("GET", f"/v1/hosts/{text}")[0] == 200 for node in run.nodes)
