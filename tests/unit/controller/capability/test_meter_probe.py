"""What a test of meters sends, and what it makes of the answers."""

from __future__ import annotations

import numpy as np
import pytest
from support.ip_frames import checksum

from controller.capability import meter_probe
from controller.capability.capabilities import Ability, Capabilities, ProbeResult
from controller.fabric.config_model import EdgePort, Vn
from controller.forwarding.pipeline import OWN_COOKIE_MASK
from controller.openflow import constants as ofp
from controller.openflow.constants import MeterFlags
from controller.openflow.messages import ErrorMessage, PacketIn, parse_packet_in
from controller.openflow.meters import MeterFeatures
from experiments.switch import replies
from experiments.switch.datapath import Datapath
from experiments.switch.options import DatapathOptions

FEATURES = MeterFeatures(1000, 1 << 1, MeterFlags.KBPS | MeterFlags.BURST | MeterFlags.STATS, 1, 0)
METER_ID, QUEUE_ID = 77, 10


def switch(**options: object) -> Datapath:
    datapath = Datapath(1, DatapathOptions(**options))  # type: ignore[arg-type]
    for port_no in (1, 2):
        datapath.add_port(port_no, 1e9, 0.0)
    datapath.drain_messages()
    return datapath


def stats_body(count: int, dropped: int) -> bytes:
    row = np.zeros(1, replies.METER_STATS)
    row["meter_id"], row["length"] = METER_ID, row.dtype.itemsize
    row["byte_in_count"], row["band_byte_count"] = count, dropped
    return row.tobytes()


def judged(plain: int, passed: int, stats: bytes | None, **refused: str) -> Capabilities:
    can, test = Capabilities(), meter_probe.MeterProbe(METER_ID, QUEUE_ID)
    can.note_features(FEATURES)
    test.seen |= {meter_probe.ProbeKind.PLAIN: plain, meter_probe.ProbeKind.METERED: passed}
    test.refused = refused
    test.evaluate(can, stats)
    return can


def test_a_switch_takes_all_of_it_and_is_left_as_it_was() -> None:
    datapath, test = switch(), meter_probe.MeterProbe(METER_ID, QUEUE_ID)
    datapath.receive(test.setup(100), 0.0)
    assert [flow.cookie & OWN_COOKIE_MASK for flow in datapath.tables.flows()] == [meter_probe.COOKIE] * 4
    assert datapath.meters.setting(METER_ID) == (meter_probe.RATE_KBPS, meter_probe.BURST_KBITS)
    datapath.receive(test.frames(200), 0.0)
    assert datapath.drain_frames() == []  # no port sees any of it
    passed = meter_probe.BURST_KBITS * 1000 // (meter_probe.FRAME_BYTES * 8)
    assert (
        datapath.drain_messages().count(meter_probe.DESTINATION.to_bytes(6))
        == meter_probe.MARKED_FRAMES + meter_probe.FRAMES + passed
    )
    datapath.receive(test.cleanup(300), 0.0)
    assert list(datapath.tables.flows()) == []
    assert not datapath.meters.exists(METER_ID)
    assert datapath.refused == []


def test_its_entries_match_nothing_that_comes_in_by_a_port() -> None:
    datapath, test = switch(), meter_probe.MeterProbe(METER_ID, QUEUE_ID)
    datapath.receive(test.setup(1), 0.0)
    for frame in {test.frames(1)[-meter_probe.FRAME_BYTES :], meter_probe.queue_frames(port(), 1)[-60:]}:
        datapath.inject(1, frame, 0.0)
    assert datapath.drain_messages() == b""
    assert datapath.drain_frames() == []


def port(*, tagged: bool = True) -> EdgePort:
    vn = Vn(QUEUE_ID, "s1", 1, 2, 10**6, 10**6)
    return EdgePort(2, "p2", 10**8, None if tagged else vn.vlan_vid, (vn,))


@pytest.mark.parametrize("tagged", [True, False])
def test_queue_frames_leave_as_the_vlans_own_do(tagged: bool) -> None:
    datapath = switch()
    datapath.ports[2].set_queue(QUEUE_ID, 1e6, 1e6)
    datapath.receive(meter_probe.queue_frames(port(tagged=tagged), 1), 0.0)
    frames = datapath.drain_frames()
    assert [port_no for port_no, _ in frames] == [2] * meter_probe.QUEUE_FRAMES
    assert all(len(frame) == 60 and (frame[12:16].hex() == "8100000a") is tagged for _, frame in frames)
    assert datapath.ports[2].queue_counters[QUEUE_ID]["tx_packets"] == meter_probe.QUEUE_FRAMES


ALL = meter_probe.FRAMES


@pytest.mark.parametrize(
    ("plain", "passed", "stats", "meters", "counters", "why"),
    [
        (ALL, 2, stats_body(ALL, ALL - 2), ProbeResult.WORKS, ProbeResult.WORKS, ""),
        (ALL, 2, stats_body(0, 0), ProbeResult.WORKS, ProbeResult.FAILS, ""),
        (ALL, 2, stats_body(*[ofp.COUNTER_UNAVAILABLE] * 2), ProbeResult.WORKS, ProbeResult.FAILS, ""),
        (ALL, 2, None, ProbeResult.WORKS, ProbeResult.UNKNOWN, ""),
        (ALL, 0, stats_body(ALL, ALL), ProbeResult.WORKS, ProbeResult.WORKS, ""),
        # frames to the controller get lost
        (ALL // 2, 2, stats_body(ALL, ALL - 2), ProbeResult.WORKS, ProbeResult.WORKS, ""),
        (ALL, ALL, stats_body(ALL, 0), ProbeResult.FAILS, ProbeResult.WORKS, "pass everything"),
        # it only says that it drops
        (ALL, ALL, stats_body(ALL, ALL), ProbeResult.FAILS, ProbeResult.WORKS, "pass everything"),
        (ALL, ALL, None, ProbeResult.FAILS, ProbeResult.UNKNOWN, "pass everything"),
        (ALL, ALL, stats_body(0, 0), ProbeResult.ABSENT, ProbeResult.ABSENT, "neither limit nor count"),
        (ALL, 0, stats_body(0, 0), ProbeResult.ABSENT, ProbeResult.ABSENT, "are lost"),
        (0, 0, stats_body(0, 0), ProbeResult.UNKNOWN, ProbeResult.UNKNOWN, "does not pass packet-outs"),
        (0, 0, b"", ProbeResult.UNKNOWN, ProbeResult.UNKNOWN, "does not pass packet-outs"),
    ],
)
def test_the_verdict(
    plain: int, passed: int, stats: bytes | None, meters: ProbeResult, counters: ProbeResult, why: str
) -> None:
    can = judged(plain, passed, stats)
    assert (can.meters.finding, can.counters.finding) == (meters, counters)
    assert why in can.meters.why
    assert can.uses_meters is (meters is not ProbeResult.ABSENT)


@pytest.mark.parametrize(("part", "what"), [("meter", "meters"), ("METERED", "entries with a meter")])
def test_refused_meters_are_not_used(part: str, what: str) -> None:
    can = judged(0, 0, None, **{part: "METER_MOD_FAILED / OUT_OF_METERS"})
    assert not can.uses_meters
    assert can.limits.why == f"the switch rejects {what}: METER_MOD_FAILED / OUT_OF_METERS"
    assert can.uses_queues


def test_a_refused_set_queue_is_not_sent_again() -> None:
    can = judged(ALL, 2, stats_body(ALL, ALL - 2), QUEUED="BAD_ACTION / BAD_QUEUE")
    assert not can.uses_queues
    assert can.limits.works


def marks_found(**refused: str) -> Capabilities:
    """What is made of marks by a switch that does all, or refuses some of it."""
    datapath, test, can = switch(), meter_probe.MeterProbe(METER_ID, QUEUE_ID), Capabilities()
    can.note_features(FEATURES)
    datapath.receive(test.setup(100), 0.0)
    test.refused |= refused
    datapath.receive(test.frames(200), 0.0)
    said = datapath.drain_messages()
    while said:
        length = int.from_bytes(said[2:4])
        if said[1] == ofp.MessageType.PACKET_IN:
            assert test.on_packet_in(parse_packet_in(said[:length]))
        said = said[length:]
    test.evaluate(can, stats_body(ALL, ALL - 2))
    return can


def test_marks_that_are_refused_are_told_and_meters_work_all_the_same() -> None:
    assert marks_found().ecn == Ability(ProbeResult.WORKS)
    can = marks_found(MARKED="BAD_MATCH / BAD_FIELD")
    assert can.ecn.why == "the switch rejects matching and clearing marks (ip_ecn): BAD_MATCH / BAD_FIELD"
    assert can.limits.works


def test_marks_that_stay_on_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.switch.pipeline.with_ip_ecn", lambda frame, ip_ecn: frame)
    assert marks_found().ecn == Ability(ProbeResult.FAILS, "marks (ip_ecn) are not seen, or not cleared")


def test_nothing_is_known_of_marks_where_no_frame_comes_back() -> None:
    assert judged(0, 0, stats_body(0, 0)).ecn == Ability()


def test_the_marked_packet_is_a_right_one() -> None:
    assert checksum(meter_probe._MARKED_PACKET) == 0
    assert meter_probe._MARKED_PACKET[1] == meter_probe.IP_ECN_CE


def test_errors_and_frames_are_told_from_those_of_others() -> None:
    test = meter_probe.MeterProbe(METER_ID, QUEUE_ID)
    test.setup(100)
    assert not test.on_error(ErrorMessage(1, 1, b"", 99))
    assert not test.on_error(ErrorMessage(1, 1, b"", 100 + test.setup_messages + test.frame_messages))
    assert test.on_error(ErrorMessage(12, 1, b"", 101))
    assert list(test.refused) == ["meter"]
    frame = test.frames(1)[-meter_probe.FRAME_BYTES :]
    assert test.on_packet_in(PacketIn(1, 0, meter_probe.COOKIE, ofp.PORT_CONTROLLER, frame[:64]))
    for in_port, data in ((1, frame), (ofp.PORT_CONTROLLER, frame[:10]), (ofp.PORT_CONTROLLER, bytes(64))):
        assert not test.on_packet_in(PacketIn(1, 0, meter_probe.COOKIE, in_port, data))
    assert test.seen[meter_probe.ProbeKind.PLAIN] == 1


def test_the_test_takes_an_id_that_nobody_has() -> None:
    assert meter_probe.free_meter_id(1, 5, {5, 3}) == 4
    assert meter_probe.free_meter_id(1, 2, {1, 2}) is None
