"""The real application against hostile tenants: floods, storms, and addresses that move or cannot be."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest
from support.host_traffic import of_pair
from support.wire import EVERYBODY, WireRun, frame

from controller.forwarding.host_probing import MAX_SEARCHES_PER_VN
from controller.forwarding.pipeline import Table
from controller.openflow.constants import MessageType
from controller.openflow.ethernet import FrameHeader, build_frame, parse_frame

NOBODY = 0x0200_0000_DEAD
RECEIVE_BPS = 50e6
LIMITS = {"send_limit": "400M", "receive_limit": "50M", "algorithm": "fs"}
PORTS = (1, 2, 3, 4)
SOLICITED = 0x3333_FF00_0001
IPV4 = bytes.fromhex("45000020000040004011") + bytes(2) + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + bytes(12)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[WireRun]:
    with WireRun(tmp_path, {1: PORTS}, vlans={10: dict(LIMITS), 20: dict(LIMITS)}) as started:
        started.wait(lambda: started.flows(1, Table.RATE_CONTROL), "entries")
        yield started


def sent_bytes(run: WireRun, ports: Sequence[int]) -> list[float]:
    with run.fabric.locked():
        return [run.switch(1).ports[port_no].counters["tx_bytes"] for port_no in ports]


def wait_s(run: WireRun, seconds: float) -> float:
    """Let the switches' time pass; return how much it was."""
    began_s = time.monotonic()
    run.app.wait_for(lambda: time.monotonic() - began_s >= seconds, "time", seconds + 30)
    return time.monotonic() - began_s


def test_a_source_of_multicast_may_flood_as_much_as_its_own_limit(run: WireRun) -> None:
    """It sends 20 Mb/s to everybody: half of a third of a tenth of 50 Mb/s passes, and with 30 Mb/s of its own all."""

    def flooded_bps() -> float:
        return float(run.app.get("/v1/vns/10/s1/1")["flooded_bps"] or 0.0)

    run.introduce(1, 1, 0xA1)
    run.offer((1, 1), 0xA1, NOBODY, 20e6)
    run.app.wait_for(lambda: 0.75e6 < flooded_bps() < 0.9e6, "held to the VLAN's flood limit", 30.0)
    config = run.app.config()
    config["switches"]["s1"]["ports"][1]["vns"] = {10: {"flood_limit": "30M"}}
    run.app.configure(config)
    status, _, answer = run.app.request("POST", "/v1/reload")
    assert (status, answer["summary"]) == (200, ["VLAN 10 at s1:1: flood_limit 30M, was none"])
    run.app.wait_for(lambda: flooded_bps() > 19.5e6, "all of it passes", 30.0)
    before = sent_bytes(run, PORTS)
    elapsed_s = wait_s(run, 3.0)
    got_bps = [(now - then) * 8 / elapsed_s for now, then in zip(sent_bytes(run, PORTS), before, strict=True)]
    assert got_bps[0] < 1e6
    assert min(got_bps[1:]) > 18e6
    assert run.app.get("/v1/vns/10/s1/2")["flood_limit_bps"] == 1_666_000


@pytest.mark.rates
def test_floods_take_no_more_than_admission_promised(run: WireRun) -> None:
    """Three VNs send 400 Mb/s each to an address that nobody has; the fourth also gets more than its limit from one."""
    mac = {port_no: 0x0200_0000_0A00 + port_no for port_no in PORTS}
    for port_no in PORTS:
        run.introduce(1, port_no, mac[port_no])
    run.offer((1, 2), mac[2], mac[4], 60e6)
    for port_no in (1, 2, 3):
        run.offer((1, port_no), mac[port_no], NOBODY, 400e6)

    def vn(port_no: int) -> dict[str, object]:
        return run.app.get(f"/v1/vns/10/s1/{port_no}")

    run.app.wait_for(lambda: vn(4)["congested"] and vn(4)["flood_received_bps"], "floods in the receiver's account")
    wait_s(run, 2.0)  # the bursts that meters let through once
    before = sent_bytes(run, PORTS)
    elapsed_s = wait_s(run, 3.0)
    got_bps = [(now - then) * 8 / elapsed_s for now, then in zip(sent_bytes(run, PORTS), before, strict=True)]
    assert max(got_bps) <= RECEIVE_BPS * 1.03
    assert got_bps[0] <= 0.11 * RECEIVE_BPS  # nothing but floods of two others
    assert got_bps[3] >= RECEIVE_BPS * 0.9  # what floods leave goes to the flow that is for it
    shown = vn(1)
    assert shown["flooded_bps"] <= shown["flood_limit_bps"] * 1.05
    assert shown["flood_dropped_bps"] > 300e6
    told = [event["text"] for event in run.app.events("flood-began")]
    assert sorted(text.split(":")[1] for text in told) == ["1", "2", "3"]
    (explained,) = run.app.get("/v1/vns/10/s1/2/explanations")["explanations"]
    assert "of which floods take" in explained["sentence"]


def test_neighbours_are_found_under_a_blast(run: WireRun) -> None:
    """Port 1 blasts at everybody; it, and port 2, ask for their neighbours meanwhile."""
    for asker in (1, 2):
        run.introduce(1, asker, 0xA0 + asker)
    for blast_to in (EVERYBODY, NOBODY):
        run.offer((1, 1), 0xB1, blast_to, 400e6)
    run.app.wait_for(lambda: run.app.get("/v1/vns/10/s1/1")["flood_dropped_bps"], "the blast is dropped")
    for asker, (eth_type, target) in product((1, 2), ((0x0806, EVERYBODY), (0x86DD, SOLICITED))):
        run.fabric.forget_received()
        question = build_frame(FrameHeader(target, 0xA0 + asker, 10, eth_type), b"").ljust(60, b"\0")
        for _ in range(20):
            run.fabric.inject(1, asker, question)
            time.sleep(0.02)
        assert run.fabric.received(1, 4).count(question) == 20, (asker, eth_type)


def test_an_arp_storm_is_limited_and_its_source_learned(run: WireRun) -> None:
    storm = build_frame(FrameHeader(EVERYBODY, 0xA1, 10, 0x0806), b"").ljust(1500, b"\0")
    for _ in range(3000):
        run.fabric.inject(1, 1, storm)
    assert 0 < len(run.fabric.received(1, 4)) < 1500
    run.introduce(1, 2, 0xA2)


def test_sources_that_are_groups_get_nowhere(run: WireRun) -> None:
    """What a multicast source sends to addresses nobody has takes no place in the search from others."""
    for number in range(1500):
        header = FrameHeader(0x0200_0000_0000 + number, 0x0100_5E00_0001, 10, 0x0800)
        run.fabric.inject(1, 1, build_frame(header, IPV4))
    assert run.fabric.received(1, 4) == []
    look_for(run, 2, 0x0200_0000_BEEF)


def test_one_vn_that_looks_for_everybody_keeps_nobody_from_looking(run: WireRun) -> None:
    """Each frame comes from another source, and goes to another address."""
    for number in range(1500):
        header = FrameHeader(0x0200_0000_0000 + number, 0x0600_0000_0000 + number, 10, 0x0800)
        run.fabric.inject(1, 1, build_frame(header, IPV4))
    look_for(run, 2, 0x0200_0000_BEEF)
    asked = {parse_frame(one).eth_dst for one in run.fabric.received(1, 4) if parse_frame(one).eth_type == 0x0806}
    assert len(asked - {0x0200_0000_BEEF}) <= MAX_SEARCHES_PER_VN


def look_for(run: WireRun, port_no: int, mac: int) -> None:
    """A host that nobody knows is sent to from a port, and asked for."""
    run.fabric.inject(1, port_no, build_frame(FrameHeader(mac, 0x0200_0000_00AA, 10, 0x0800), IPV4))

    def asked() -> bool:
        found = [parse_frame(one) for one in run.fabric.received(1, 4)]
        return any((one.eth_dst, one.eth_type) == (mac, 0x0806) for one in found)

    run.wait(asked, f"asked for {mac:012x}")


def test_addresses_that_move_back_and_forth_cost_a_bounded_number_of_messages(run: WireRun) -> None:
    """Two VNs claim the same addresses in turn; whoever else moves is followed at once."""
    before = run.handled(1, MessageType.FLOW_MOD)
    began_s = time.monotonic()

    def flap() -> bool:
        for number in range(4000):
            run.fabric.inject(1, 1 + number % 2, frame(0x0200_0000_0001 + number // 2 % 8, EVERYBODY, 10))
        return bool(run.app.events("host-flapping"))

    run.app.wait_for(flap, "hosts are not followed any more")  # the switch reports so many frames a second
    run.introduce(1, 3, 0x0200_0000_00C3)
    flow_mods = run.handled(1, MessageType.FLOW_MOD) - before
    moves = 2 * (64 + 5 * (time.monotonic() - began_s)) + 8
    assert flow_mods <= 12 * moves
    run.fabric.inject(1, 4, frame(0x0200_0000_00C3, EVERYBODY, 10))
    run.app.wait_for(lambda: run.app.get("/v1/vns/10/s1/4")["hosts"] == ["02:00:00:00:00:c3"], "it is followed")


def test_frames_are_forwarded_whether_they_are_reported_or_not(run: WireRun) -> None:
    """A VN sends from ever new addresses, more than its report meter lets through."""
    run.introduce(1, 4, 0xA4, 20)
    run.app.wait_for(lambda: run.app.get("/v1/vns/20/s1/1")["flooded_bps"] is not None, "its meters were read")

    def send(number: int) -> None:
        header = FrameHeader(0xA4, 0x0600_0000_0000 + number, 20, 0x0800)
        run.fabric.inject(1, 1, build_frame(header, b"").ljust(1500, b"\0"))

    send(0)  # what a pair without an entry sends passes the newcomers' meter, which bounds it
    # Not as REST shows it, which is before the switch has it.
    run.wait(lambda: any(flow.match.eth_dst == 0xA4 for flow in filter(of_pair, run.flows(1))), "the pair has an entry")
    run.fabric.forget_received()
    for number in range(1, 61):
        send(number)
    assert len(run.fabric.received(1, 4)) == 60
    run.app.wait_for(lambda: reports_dropped(run) > 0, "reports were dropped")


def reports_dropped(run: WireRun) -> int:
    with urllib.request.urlopen(run.app.url + "/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(line.split()[-1]) for line in lines if line.startswith("dets_vn_packet_ins_dropped_total{"))
