"""Whatever a switch sends: a result or a ProtocolError that names message, field and expectation, nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.errors import InvalidValueError, ProtocolError
from controller.openflow import constants as ofp
from controller.openflow import flows, messages, meters, multipart
from controller.openflow.actions import Output, SetQueue, SetVlanVid
from controller.openflow.ethernet import FrameHeader, build_frame, parse_frame
from controller.openflow.flows import Flow, UnknownFlow
from controller.openflow.match import Match, encode_match

METER_ENTRY = bytes.fromhex("000000010038") + bytes(50)
TWO_BANDS = bytes.fromhex("000000010048") + bytes(66)
CONFIG_ENTRY = bytes.fromhex("0018000d00000001" + "00010010" + "0000000100000001" + "00000000")
CONFIG_TWO = bytes.fromhex("0028000d00000002" + ("00010010" + "0000000100000001" + "00000000") * 2)
FLOW = Flow(0, 1, Match(in_port=1, vlan_vid=10), 5, meter_id=1, actions=(SetVlanVid(3), Output(2)), goto_table=2)


def flow_stats_entry(flow: Flow = FLOW, flags: int = 0, hard_timeout_s: int = 0) -> bytes:
    tail = encode_match(flow.match) + flows.encode_instructions(flow)
    head = bytes([flow.table_id, 0]) + bytes(8) + flow.priority.to_bytes(2) + bytes(2) + hard_timeout_s.to_bytes(2)
    head += flags.to_bytes(2) + bytes(4) + flow.cookie.to_bytes(8) + bytes(16)
    return (2 + len(head) + len(tail)).to_bytes(2) + head + tail


FLOW_ENTRY = flow_stats_entry()
PORT = (3).to_bytes(4) + bytes(60)


def message(message_type: int, body: bytes) -> bytes:
    return bytes([4, message_type]) + (8 + len(body)).to_bytes(2) + bytes(4) + body


PACKET_IN = message(10, bytes(16) + encode_match(Match(in_port=1)) + bytes(2) + b"frame")
FLOW_REMOVED = message(11, bytes(40) + encode_match(Match(in_port=1, eth_dst=5)))

BODIES: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "meter stats": (meters.decode_meter_stats, METER_ENTRY * 2),
    "meter stats, two bands": (meters.decode_meter_stats, METER_ENTRY + TWO_BANDS),
    "meter config": (meters.decode_meter_config, CONFIG_ENTRY * 2),
    "meter config, two bands": (meters.decode_meter_config, CONFIG_ENTRY + CONFIG_TWO),
    "meter features": (meters.decode_meter_features, bytes(16)),
    "port stats": (multipart.decode_port_stats, bytes(224)),
    "queue stats": (multipart.decode_queue_stats, bytes(80)),
    "port desc": (multipart.decode_port_desc, PORT * 2),
    "flow stats": (flows.decode_flow_stats, FLOW_ENTRY * 2),
    "multipart": (multipart.multipart_header, message(19, bytes(8))),
    "packet in": (messages.parse_packet_in, PACKET_IN),
    "flow removed": (messages.parse_flow_removed, FLOW_REMOVED),
    "error": (messages.parse_error, message(1, bytes(4))),
    "port status": (messages.parse_port_status, message(12, bytes(8) + PORT)),
    "frame": (parse_frame, build_frame(FrameHeader(1, 2, 10, 0x800), b"")),
}


def complaint_of(decode: Callable[[bytes], object], buf: bytes) -> str | None:
    """The text of the ProtocolError, or None; any other error gets through and fails the test."""
    try:
        decode(buf)
    except ProtocolError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", BODIES)
def test_every_cut_is_told_or_leaves_whole_entries(name: str) -> None:
    decode, good = BODIES[name]
    decode(good)
    refused = [complaint for size in range(len(good)) if (complaint := complaint_of(decode, good[:size]))]
    whole_entries_before_the_end = 2
    assert len(refused) >= len(good) - whole_entries_before_the_end
    assert all("expected" in complaint for complaint in refused)


@pytest.mark.parametrize("name", BODIES)
@settings(max_examples=80)
@given(st.data(), st.binary(max_size=300))
def test_damaged_and_random_bytes_never_raise_anything_else(name: str, data: st.DataObject, noise: bytes) -> None:
    decode, good = BODIES[name]
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    for octets in (bytes(damaged), noise):
        complaint = complaint_of(decode, octets)
        assert complaint is None or "expected" in complaint


@pytest.mark.parametrize(
    "entry",
    [
        flow_stats_entry(hard_timeout_s=5),
        flow_stats_entry(flags=ofp.FlowModFlags.CHECK_OVERLAP),
        FLOW_ENTRY[:-8] + bytes.fromhex("0003000800000000"),  # write-actions where goto-table was
        FLOW_ENTRY[:-8] + bytes.fromhex("0001000801000000"),
    ],
)
def test_an_entry_beyond_flow_is_unknown_or_different_but_never_ours(entry: bytes) -> None:
    (flow,) = flows.decode_flow_stats(entry).flows
    assert flow != FLOW
    assert flow.cookie == FLOW.cookie


def entry_of(match: str = "", instructions: str = "") -> bytes:
    """An entry of a flow-stats reply with these TLVs in its match and these instructions, in hexadecimal."""
    fields, tail = bytes.fromhex(match), bytes.fromhex(instructions)
    padded = (1).to_bytes(2) + (4 + len(fields)).to_bytes(2) + fields + bytes(-(4 + len(fields)) % 8)
    return (48 + len(padded + tail)).to_bytes(2) + FLOW_ENTRY[2:48] + padded + tail


def applied(action: str) -> str:
    """The instruction to apply an action."""
    return "0004" + (8 + len(action) // 2).to_bytes(2).hex() + "00000000" + action


@pytest.mark.parametrize(
    "entry",
    [
        entry_of(instructions=applied("0011000888a80000")),  # push-vlan of a service tag
        entry_of(instructions=applied("0016000800000001")),  # group
        entry_of(instructions=applied("0019001080000c02000a000000000000")),  # set-field of vlan_vid, not OFPVID_PRESENT
        entry_of(instructions=applied("0019001080000a020800000000000000")),  # set-field of eth_type
        entry_of(instructions=applied("0016000800000001") + "0001000802000000"),
        entry_of(instructions="00060008000000010006000800000002"),  # two meters
        entry_of(match="80000d041000" + "1000"),  # any VLAN
        entry_of(match="80000c021fff"),
        entry_of(match="80000108" + "00000001" + "0000ffff"),  # in_port under a mask
        entry_of(match="8000000400000001" * 2),
        entry_of(match="000100047f000001"),  # of another class
        entry_of(match="80001401" + "11"),  # ip_proto
    ],
)
def test_an_entry_that_flow_cannot_say_is_kept_as_it_came(entry: bytes) -> None:
    assert flows.decode_flow_stats(entry).flows == [UnknownFlow(0, 1, 5, entry)]


def test_masks_that_leave_no_bit_out_are_none() -> None:
    entry = entry_of(match="80000108" + "00000001" + "ffffffff" + "80000d04" + "100a" + "1fff")
    (flow,) = flows.decode_flow_stats(entry).flows
    assert isinstance(flow, Flow)
    assert flow.match == Match(in_port=1, vlan_vid=10)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (entry_of(instructions="0001000400000000"), "instruction.len: 4, expected 8 or more"),
        (entry_of(instructions=applied("00000000")), "action.len: 0, expected a multiple of 8"),
        (
            entry_of(instructions=applied("0015000c0000000100000000")),
            "action.len: 12, expected a multiple of 8 from 8 on",
        ),
        (entry_of(instructions=applied("0000000800000001")), "output.len: 8, expected 16"),
        (entry_of(match="80000002" + "0001"), "oxm_length of in_port: 2, expected 4"),
        (entry_of(match="80000104" + "00000001"), "oxm_length of in_port: 4, expected 8"),
        (entry_of(match="80001503" + "112233"), "oxm_length of field 10 with a mask: 3, expected an even number"),
        (FLOW_ENTRY[:50] + b"\0\3" + FLOW_ENTRY[52:], "match.length: 3, expected 4 or more"),
    ],
)
def test_what_is_wrong_in_one_place_of_an_entry_is_told(entry: bytes, told: str) -> None:
    assert told in (complaint_of(flows.decode_flow_stats, entry) or "")


@pytest.mark.parametrize(
    ("decode", "buf", "told"),
    [
        (messages.parse_error, b"\x01" + message(1, bytes(4))[1:], "ERROR: version: 1, expected 4"),
        (messages.parse_error, message(2, bytes(4)), "ERROR: type: 2, expected 1"),
        (messages.parse_error, message(1, bytes(4)) + b"x", "ERROR: length: 12, expected 13, the bytes that arrived"),
        (messages.parse_error, message(1, bytes(2)), "ERROR: type and code: 2 bytes left, expected 4 or more"),
        (
            messages.parse_packet_in,
            message(10, bytes(16) + encode_match(Match(eth_dst=1)) + bytes(2)),
            "PACKET_IN: match: no in_port, expected in_port",
        ),
        (
            messages.parse_flow_removed,
            message(11, FLOW_REMOVED[8:] + bytes(8)),
            "length: 8 bytes after the match, expected none",
        ),
        (messages.parse_port_status, message(12, bytes(8) + PORT * 2), "port: 2 ports, expected one"),
        (messages.parse_port_status, message(12, bytes(8)), "port: 0 ports, expected one"),
        (
            meters.decode_meter_stats,
            METER_ENTRY + bytes.fromhex("000000020030") + bytes(42),
            "length of entry 1: 48, expected 40 and 16 for each band",
        ),
    ],
)
def test_what_is_wrong_in_one_place_is_told(decode: Callable[[bytes], object], buf: bytes, told: str) -> None:
    assert told in (complaint_of(decode, buf) or "")


def meter_mods(*columns: list[int]) -> bytes:
    return meters.encode_meter_mods(*map(np.array, columns), 1)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Match(vlan_vid=4095), "match.vlan_vid: 4095 is reserved"),
        (lambda: Match(vlan_vid=4097), "match.vlan_vid: 4097 is not an integer from 0 to 4096"),
        (lambda: Match(in_port=0), "match.in_port: 0 is not"),
        (lambda: Match(in_port=1)._replace(in_port=0), "match.in_port: 0 is not"),
        (lambda: Match(eth_dst_mask=1), "match.eth_dst_mask: 1 is set without eth_dst"),
        (lambda: Match(eth_dst=3, eth_dst_mask=1), "match.eth_dst: 3 has bits outside eth_dst_mask"),
        (lambda: Flow(255, 0, Match(), 0), "flow.table_id: 255 is not"),
        (lambda: Flow(3, 0, Match(), 0, goto_table=3), "flow.goto_table: 3 is not an integer from 4 to 254"),
        (lambda: Flow(0, 0, Match(), 0, meter_id=0), "flow.meter_id: 0 is not"),
        (lambda: Output(2, 128), "output.max_len: 128 means nothing for a port other than CONTROLLER"),
        (lambda: SetQueue(-1), "set_queue.queue_id: -1 is not"),
        (lambda: flows.encode_flow_mods([(ofp.FlowModCommand.ADD, FLOW)], -1), "xid: -1 is outside"),
        (lambda: flows.encode_flow_mods([(ofp.FlowModCommand.DELETE, FLOW)], 1), "is not ADD, MODIFY_STRICT or"),
        (lambda: flows.encode_flow_delete_by_cookie(0, 0, 1), "cookie_mask: 0 is not"),
        (
            lambda: meters.encode_meter_mods(0, [1], np.array([1.5]), [1], 1),
            "rate_kbps: 'float64' is not a column of integers",
        ),
        (lambda: meters.encode_meter_mods(0, [1, 2], [1], [1, 1], 1), "rate_kbps: 1 rows do not match the 2 rows"),
        (lambda: meters.encode_meter_mods(0, [1], [[1]], [1], 1), "rate_kbps: (1, 1) is not a column"),
        (lambda: meter_mods([0, 0], [1, 0], [1, 1], [1, 1]), "meter_id[1]: 0 is outside"),
        (lambda: meter_mods([0], [ofp.METER_MAX + 1], [1], [1]), "meter_id[0]: 4294901761 is outside 1 to"),
        (lambda: meter_mods([0, 0], [1, 2], [0, 1], [1, 1]), "rate_kbps[0]: 0 is outside 1 to 4294967295"),
        (lambda: meter_mods([0, 1], [1, 2], [1, 2**32], [1, 1]), "rate_kbps[1]: 4294967296 is outside"),
        (lambda: meter_mods([0, 1], [1, 2], [1, 1], [1, 0]), "burst_kbits[1]: 0 is outside"),
        (lambda: meter_mods([0, 3], [1, 2], [1, 1], [1, 1]), "command[1]: 3 is outside 0 to 2"),
    ],
)
def test_what_cannot_be_sent_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        make()
    assert told in str(caught.value)


def test_nothing_to_send_is_no_bytes() -> None:
    none = np.empty(0, np.int64)
    assert meters.encode_meter_mods(ofp.MeterModCommand.ADD, none, none, none, 1) == b""
    assert meters.encode_meter_deletes([], 1) == b""
    assert flows.encode_flow_mods([], 1) == b""
    assert len(meters.decode_meter_stats(b"")) == 0
    assert [len(column) for column in meters.decode_meter_config(b"")] == [0, 0]
    assert flows.decode_flow_stats(b"").flows == []


@pytest.mark.parametrize(
    ("header", "frame"),
    [
        (FrameHeader(0x0180C200000E, 2, None, 0x88CC), "0180c200000e" + "000000000002" + "88cc"),
        (FrameHeader(1, 2, 10, 0x0800), "000000000001" + "000000000002" + "8100000a" + "0800"),
    ],
)
def test_frames(header: FrameHeader, frame: str) -> None:
    assert parse_frame(bytes.fromhex(frame)) == header
    assert build_frame(header, b"").hex() == frame
    # The priority bits of a tag are not the VLAN.
    assert parse_frame(bytes.fromhex("000000000001" + "010000000002" + "8100f00a" + "0800")).vlan_vid == 10
    assert FrameHeader(1 << 40, 0, None, 0).is_multicast
    assert not FrameHeader(2 << 40, 0, None, 0).is_multicast
