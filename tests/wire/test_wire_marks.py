"""Congestion marks with the real application and software switches: made on a link, counted, hidden from hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.ip_frames import IPV4, IPV6, ip_frame, traffic_class
from support.wire import WireRun

from controller.forwarding.pipeline import Table
from controller.openflow.ethernet import ip_ecn_of, parse_frame, with_ip_ecn

EDGES = {1: [1, 2], 2: [1, 2]}
LINK = ((1, 11), (2, 11))
SENDER, RECEIVER = 0x0200_0000_0A01, 0x0200_0000_0A02  # not those of link discovery: 02 and a dpid
EF = 0xB8  # DSCP 46 and no ECN
ECT_0, ECT_1, CE = 2, 1, 3
MARKED = {"algorithm": "hygenicc", "send_limit": "400M", "receive_limit": "400M"}


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
    """Whether the pair's frames may be marked at one switch, and are counted and cleared of marks at the other one.

    The meter of new pairs, which is counted by too, and what lets VLAN 10 be marked are there before the pair is.
    """
    metered = [flow for flow in run.flows(1, Table.RATE_CONTROL) if flow.match.eth_dst == RECEIVER and flow.meter_id]
    allowed = [flow for flow in run.flows(1, Table.MARKS) if flow.match.in_port == 1]
    cleared = [flow for flow in run.flows(2, Table.MARKS) if flow.match.eth_dst == RECEIVER]
    counted = [flow for flow in run.flows(2, Table.COUNT) if flow.match.eth_src == SENDER]
    return all((metered, allowed, cleared, counted))


def sends(run: WireRun, frame: bytes, count: int) -> list[bytes]:
    """Return what the receiver gets when the sender sends a frame so many times."""
    run.fabric.forget_received()
    for _ in range(count):
        run.fabric.inject(1, 1, frame)
    return run.fabric.received(2, 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireRun]:
    made = WireRun(tmp_path_factory.mktemp("marks"), EDGES, [LINK], ecn={"source": "phantom+network"})
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
    (meter_id,) = {flow.meter_id for flow in run.flows(2, Table.COUNT) if flow.match.eth_src is not None}

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
