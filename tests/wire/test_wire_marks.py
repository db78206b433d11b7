"""Congestion marks with the real application and software switches: made on a link, counted, hidden from hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ip_frames import IPV4, IPV6, ip_frame, traffic_class
from support.wire import WireRun

from controller.forwarding.pipeline import OWN_COOKIE, Table
from controller.openflow.constants import FlowModCommand
from controller.openflow.flows import Flow, encode_flow_mods
from controller.openflow.frames import ip_ecn_of, parse_frame, with_ip_ecn

EDGES = {1: [1, 2], 2: [1, 2]}
LINK = ((1, 11), (2, 11))
SENDER, RECEIVER = 0x0200_0000_0001, 0x0200_0000_0002
EF = 0xB8  # DSCP 46 and no ECN
ECT_0, ECT_1, CE = 2, 1, 3
INTERVAL_S = 0.055
MARKED = {"algorithm": "hygenicc", "send_limit": "400M", "receive_limit": "400M"}
EARLIER = {Table.FORWARD: 4, Table.REPORT: 5}


class Link:
    """Sees what crosses the link between the switches, and marks what may be marked while it is ``full``."""

    def __init__(self, run: WireRun) -> None:
        self.full = False
        self.crossed: list[bytes] = []
        run.fabric.on_link = self

    def __call__(self, end: tuple[int, int], frame: bytes) -> bytes:
        if frame[6:12] != SENDER.to_bytes(6):
            return frame
        self.crossed.append(frame)
        return with_ip_ecn(frame, CE) if self.full and ip_ecn_of(frame, parse_frame(frame)) else frame


def marking(run: WireRun) -> bool:
    """Whether both switches have the entries for marks of VLAN 10, and the pair has its meter."""
    counting = [flow for flow in run.flows(2, Table.COUNT) if flow.meter_id is not None]
    return bool(counting) and all(run.flows(dpid, Table.MARKS)[1:] for dpid in EDGES)


def sends(run: WireRun, frame: bytes, count: int) -> list[bytes]:
    """Return what the receiver gets when the sender sends a frame so many times."""
    run.fabric.forget_received()
    for _ in range(count):
        run.fabric.inject(1, 1, frame)
    return run.fabric.received(2, 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireRun]:
    made = WireRun(tmp_path_factory.mktemp("marks"), EDGES, [LINK], ecn={"marks": "both"})
    config = made.app.config()
    config["vlans"][10] = MARKED
    made.app.configure(config)
    with made:
        made.wait_flooding({1: {1, 2, 11}, 2: {1, 2, 11}})
        made.introduce(2, 1, RECEIVER)
        made.introduce(1, 1, SENDER)
        made.fabric.inject(1, 1, ip_frame(IPV4, EF, SENDER, RECEIVER, 10))
        made.wait(lambda: marking(made), "entries for marks")
        yield made


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("ecn", [0, ECT_0])
@pytest.mark.parametrize("eth_type", [IPV4, IPV6])
def test_marks_of_the_link_are_counted_and_hidden(run: WireRun, eth_type: int, ecn: int, full: bool) -> None:
    """DSCP is kept and checksums are right (looked at there); who speaks ECN keeps it while nothing is marked."""
    link = Link(run)
    link.full = full
    (meter_id,) = {flow.meter_id for flow in run.flows(2, Table.COUNT) if flow.meter_id is not None}

    def counted() -> int:
        with run.fabric.locked():
            return int(run.switch(2).meters._rows["packets_in"][meter_id])

    before = counted()
    got = sends(run, ip_frame(eth_type, EF | ecn, SENDER, RECEIVER, 10), 50)
    assert {traffic_class(frame) for frame in link.crossed} == {EF | (ecn or ECT_1)}
    assert len(got) == 50
    assert {traffic_class(frame) for frame in got} == {EF if full else EF | ecn}
    assert counted() - before == (50 if full else 0)


def test_a_vlan_of_another_policy_is_never_marked(run: WireRun) -> None:
    for end, mac in (((2, 1), RECEIVER), ((1, 1), SENDER)):
        run.introduce(*end, mac, 20)
    link = Link(run)
    link.full = True
    got = sends(run, ip_frame(IPV4, EF, SENDER, RECEIVER, 20), 5)
    assert {traffic_class(frame) for frame in (*got, *link.crossed)} == {EF}
    assert len(got) == 5


def as_earlier(flow: Flow) -> Flow:
    """Return an entry as an earlier version had it, which had no tables for marks."""
    table, goto = EARLIER.get(flow.table_id, flow.table_id), EARLIER.get(flow.goto_table, flow.goto_table)
    return flow._replace(table_id=table, goto_table=goto, cookie=OWN_COOKIE | table)


def test_an_upgrade_to_marks_loses_less_than_an_interval(tmp_path: Path) -> None:
    """Frames go all the time while a controller with marks takes over the tables of an earlier version.

    That no message of it loses a frame is tested one by one, without links that time out on a busy machine.
    """
    run = WireRun(tmp_path, EDGES, [LINK], control={"on_stop": "keep"})
    frame = ip_frame(IPV4, EF, SENDER, RECEIVER, 10)
    with run:
        run.wait_flooding({1: {1, 2, 11}, 2: {1, 2, 11}})
        run.introduce(2, 1, RECEIVER)
        run.introduce(1, 1, SENDER)
        run.fabric.inject(1, 1, frame)
        run.app.wait_for(lambda: run.app.entry(1, 1, 10), "an entry")
        run.app.stop()
        for dpid in EDGES:
            flows = run.flows(dpid)
            kept = [flow for flow in flows if flow.table_id not in (Table.MARKS, Table.COUNT)]
            mods = [(FlowModCommand.DELETE_STRICT, flow) for flow in flows]
            mods += [(FlowModCommand.ADD, as_earlier(flow)) for flow in kept]
            with run.fabric.locked():
                run.switch(dpid).receive(encode_flow_mods(mods, 1), run.fabric._clock())
        assert len(sends(run, frame, 3)) == 3
        config = run.app.config()
        config["vlans"][10], config["ecn"] = MARKED, {"marks": "both"}
        run.app.configure(config)
        run.app.start()
        sent, began_s = 0, time.monotonic()
        run.fabric.forget_received()

        def upgraded() -> bool:
            nonlocal sent
            run.fabric.inject(1, 1, frame)
            sent += 1
            return marking(run) and not any(flow.table_id in (4, 5) for dpid in EDGES for flow in run.flows(dpid))

        run.fabric.wait_for(upgraded, 60.0)
        assert sent > 100
        lost = sent - len(run.fabric.received(2, 1))
        assert lost * (time.monotonic() - began_s) / sent < INTERVAL_S  # seconds of this traffic
        # One switch may have its entries before the other: then ECT(1) comes through, for as long.
        assert {traffic_class(one) for one in run.fabric.received(2, 1)} <= {EF, EF | ECT_1}
        assert traffic_class(sends(run, frame, 1)[0]) == EF
