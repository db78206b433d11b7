"""Every message against Ryu's own serializer and parser, and against bytes written down here."""

from __future__ import annotations

import struct
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ryu's imports warn of what they themselves use, and warnings are errors here
    from ryu.ofproto import ofproto_v1_3 as ryu_ofp
    from ryu.ofproto import ofproto_v1_3_parser as ryu
    from ryu.ofproto.ofproto_parser import msg
    from ryu.ofproto.ofproto_protocol import ProtocolDesc

from controller.errors import ProtocolError
from controller.openflow import constants as ofp
from controller.openflow import flows, messages, meters, multipart
from controller.openflow.actions import Output, PopVlan, PushVlan, SetIpEcn, SetQueue, SetVlanVid
from controller.openflow.ethernet import format_mac
from controller.openflow.flows import Flow, WriteMetadata
from controller.openflow.match import Match

DATAPATH = ProtocolDesc(version=0x04)
TO_CONTROLLER = ofp.PORT_CONTROLLER
MAC = st.integers(0, 2**48 - 1)
PORT = st.integers(1, ofp.PORT_MAX)


@st.composite
def matches(draw: st.DrawFn) -> Match:
    def masked(bits: int) -> tuple[int | None, int | None]:
        value = draw(st.none() | st.integers(0, 2**bits - 1))
        mask = draw(st.none() | st.integers(1, 2**bits - 1)) if value is not None else None
        return value & mask if value is not None and mask is not None else value, mask

    (eth_dst, dst_mask), (eth_src, src_mask), (metadata, metadata_mask) = masked(48), masked(48), masked(64)
    eth_type = draw(st.none() | st.sampled_from([0x0800, 0x86DD]) | st.integers(0, 0xFFFF))
    return Match(
        in_port=draw(st.none() | PORT),
        vlan_vid=draw(st.none() | st.integers(0, 4094) | st.just(ofp.VLAN_PRIORITY)),
        eth_dst=eth_dst,
        eth_src=eth_src,
        eth_type=eth_type,
        eth_dst_mask=dst_mask,
        eth_src_mask=src_mask,
        metadata=metadata,
        metadata_mask=metadata_mask,
        ip_ecn=draw(st.none() | st.integers(0, 3)) if eth_type in (0x0800, 0x86DD) else None,
    )


@st.composite
def written_metadata(draw: st.DrawFn) -> WriteMetadata:
    mask = draw(st.integers(1, 2**64 - 1))
    return WriteMetadata(draw(st.integers(0, 2**64 - 1)) & mask, mask)


ACTION = st.one_of(
    st.builds(Output, PORT),
    st.builds(Output, st.just(ofp.PORT_CONTROLLER), st.integers(0, 0xFFFF)),
    st.builds(SetQueue, st.integers(0, 2**32 - 2)),
    st.builds(PushVlan),
    st.builds(SetVlanVid, st.integers(1, 4094)),
    st.builds(PopVlan),
    st.builds(SetIpEcn, st.integers(0, 3)),
)
FLOW = st.builds(
    Flow,
    st.integers(0, 200),
    st.integers(0, 0xFFFF),
    matches(),
    st.integers(0, 2**64 - 1),
    st.integers(0, 0xFFFF),
    st.booleans(),
    st.none() | st.integers(1, ofp.METER_MAX),
    st.lists(ACTION, max_size=5).map(tuple),
    st.none() | st.integers(201, 254),
    st.none() | written_metadata(),
)


def serialized(message: Any, xid: int) -> bytes:
    message.set_xid(xid)
    message.serialize()
    return bytes(message.buf)


def ryu_match(match: Match) -> Any:
    def masked(value: Any, mask: Any) -> Any:
        return value if mask is None else (value, mask)

    def address(mac: int | None, mask: int | None) -> Any:
        return None if mac is None else masked(format_mac(mac), None if mask is None else format_mac(mask))

    fields = {
        "in_port": match.in_port,
        "vlan_vid": match.vlan_vid and match.vlan_vid | ryu_ofp.OFPVID_PRESENT,
        "eth_dst": address(match.eth_dst, match.eth_dst_mask),
        "eth_src": address(match.eth_src, match.eth_src_mask),
        "eth_type": match.eth_type,
        "metadata": masked(match.metadata, match.metadata_mask),
        "ip_ecn": match.ip_ecn,
    }
    return ryu.OFPMatch(**{name: value for name, value in fields.items() if value is not None})


def ryu_action(action: object) -> Any:
    match action:
        case Output(port_no, max_len):
            return ryu.OFPActionOutput(port_no, max_len)
        case SetQueue(queue_id):
            return ryu.OFPActionSetQueue(queue_id)
        case PushVlan():
            return ryu.OFPActionPushVlan()
        case SetVlanVid(vlan_vid):
            return ryu.OFPActionSetField(vlan_vid=vlan_vid | ryu_ofp.OFPVID_PRESENT)
        case SetIpEcn(ip_ecn):
            return ryu.OFPActionSetField(ip_ecn=ip_ecn)
    return ryu.OFPActionPopVlan()


def ryu_instructions(flow: Flow) -> list[Any]:
    out: list[Any] = []
    if flow.meter_id is not None:
        out.append(ryu.OFPInstructionMeter(flow.meter_id))
    if flow.actions:
        out.append(ryu.OFPInstructionActions(ryu_ofp.OFPIT_APPLY_ACTIONS, [ryu_action(a) for a in flow.actions]))
    if flow.write_metadata is not None:
        out.append(ryu.OFPInstructionWriteMetadata(*flow.write_metadata))
    if flow.goto_table is not None:
        out.append(ryu.OFPInstructionGotoTable(flow.goto_table))
    return out


def ryu_flow_add(flow: Flow) -> Any:
    return ryu.OFPFlowMod(
        DATAPATH,
        cookie=flow.cookie,
        table_id=flow.table_id,
        idle_timeout=flow.idle_timeout_s,
        priority=flow.priority,
        out_port=ryu_ofp.OFPP_ANY,
        out_group=ryu_ofp.OFPG_ANY,
        flags=ryu_ofp.OFPFF_SEND_FLOW_REM if flow.send_flow_removed else 0,
        match=ryu_match(flow.match),
        instructions=ryu_instructions(flow),
    )


def flow_add(flow: Flow, xid: int) -> bytes:
    return flows.encode_flow_mods([(ofp.FlowModCommand.ADD, flow)], xid)


@given(FLOW, st.integers(0, 2**32 - 1))
def test_flow_add_is_what_ryu_sends(flow: Flow, xid: int) -> None:
    assert flow_add(flow, xid) == serialized(ryu_flow_add(flow), xid)


def flow_stats_entry(number: int, flow: Flow) -> bytes:
    """Ryu serializes no statistics: the fixed part by hand, match and instructions by Ryu, who must read it back."""
    tail = bytearray()
    ryu_match(flow.match).serialize(tail, 0)
    for instruction in ryu_instructions(flow)[::-1]:
        instruction.serialize(tail, len(tail))
    fixed = (48 + len(tail), flow.table_id, 3, 500_000_000, flow.priority, flow.idle_timeout_s, 0)
    counters = (int(flow.send_flow_removed), flow.cookie, number, 2**63 + number)
    entry = struct.pack("!HBxIIHHHH4xQQQ", *fixed, *counters) + bytes(tail)
    theirs = ryu.OFPFlowStats.parser(entry, 0)
    assert (theirs.cookie, theirs.byte_count, theirs.length) == (flow.cookie, 2**63 + number, len(entry))
    return entry


@settings(max_examples=50)
@given(st.lists(FLOW, max_size=3))
def test_flow_stats_made_by_ryu_decode_to_the_flows_that_were_added(given_flows: list[Flow]) -> None:
    body = b"".join(flow_stats_entry(number, flow) for number, flow in enumerate(given_flows))
    decoded = flows.decode_flow_stats(body)
    assert decoded.flows == given_flows
    assert decoded.packet_count.tolist() == list(range(len(given_flows)))
    assert decoded.byte_count.tolist() == [2**63 + number for number in range(len(given_flows))]
    assert decoded.duration_s.tolist() == [3.5] * len(given_flows)


@settings(max_examples=50)
@given(FLOW, FLOW)
def test_what_is_known_from_an_earlier_reply_changes_no_result(before: Flow, now: Flow) -> None:
    earlier = flows.decode_flow_stats(flow_stats_entry(1, before))
    body = flow_stats_entry(7, before) + flow_stats_entry(8, now)
    again = flows.decode_flow_stats(body, earlier.known)
    assert again.flows == [before, now]
    assert again.flows[0] is earlier.flows[0]
    assert again.packet_count.tolist() == [7, 8]
    assert again.known == flows.decode_flow_stats(body).known


def test_entries_that_differ_in_anything_but_counters_are_not_mistaken_for_known_ones() -> None:
    flow = Flow(1, 2, Match(in_port=3), 4, idle_timeout_s=5, meter_id=6, goto_table=7)
    raw = flow_stats_entry(1, flow)
    known = flows.decode_flow_stats(raw).known
    counting = {*range(4, 12), *range(20, 24), *range(32, 48)}  # duration, padding, packet_count, byte_count
    for position in set(range(2, len(raw))) - counting - {3}:
        changed = raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :]
        try:
            (decoded,) = flows.decode_flow_stats(changed, known).flows
        except ProtocolError:
            continue
        assert decoded == flows.decode_flow_stats(changed).flows[0], position


def test_flow_stats_of_open_vswitch_decode_to_the_flows_that_were_added() -> None:
    # The body of the reply of Open vSwitch 3.1 (userspace datapath) after these flows had been added to it.
    body = bytes.fromhex(
        "0050000000000000001e848000640000000000000000000000000000dead000100000000000000000000000000000000000100128000"
        "00040000000180000c02100a00000000000000010008010000000078000000000000001e848000640000000000000000000000000000"
        "dead00010000000000000000000000000000000000010012800000040000000280000c02000000000000000000060008000000020004"
        "00200000000000110008810000000019001080000c02100a00000000000000010008010000000038000000000000000f424000000000"
        "000000000000000000000000dead00020000000000000000000000000000000000010004000000000060010000000000000f42400007"
        "0000000000000000000000000000dead00030000000000000000000000000000000000010014800006060180c200000e80000a0288cc"
        "00000000000400180000000000000010fffffffdffff0000000000000098010000000000000f42400006000000000000000000000000"
        "0000dead0003000000000000000000000000000000000001001a8000070c01000000000001000000000080000c02100a000000000000"
        "0004004800000000001500080000000a0000001000000002000000000000000000120008000000000000001000000003000000000000"
        "000000000010fffffffd00800000000000000068010000000000000f42400005001e000000010000000000000000dead000300000000"
        "000000000000000000000000000100268000000400000001800008060000000000038000060600000000000280000c02100a00000006"
        "00080000000300010008020000000088020000000000000f424000090000000000000000000000000000000000050000000000000000"
        "000000000000000000010012800000040000000480000c02100a00000000000000040040000000000012000800000000001100088100"
        "00000019001080000c02100b0000000000000015000800000000000000100000000500000000000000000068020000000000000f4240"
        "0008000000000000000000000000000000000005000000000000000000000000000000000001001080000a02080080000c02100a0004"
        "0028000000000019001080000c02100b00000000000000000010fffffff80000000000000000"
    )
    ours, vlan_10, untagged = 0xDEAD0000, Match(vlan_vid=10), Match(in_port=2, vlan_vid=ofp.VLAN_NONE)
    floods = vlan_10._replace(eth_dst=1 << 40, eth_dst_mask=1 << 40)
    to_all = (SetQueue(10), Output(2), PopVlan(), Output(3), Output(TO_CONTROLLER, 128))
    to_vlan_11 = (PopVlan(), PushVlan(), SetVlanVid(11), SetQueue(0), Output(5))
    expected = {
        Flow(0, 100, Match(in_port=1, vlan_vid=10), ours + 1, goto_table=1),
        Flow(0, 100, untagged, ours + 1, meter_id=2, actions=(PushVlan(), SetVlanVid(10)), goto_table=1),
        Flow(0, 0, Match(), ours + 2),
        Flow(1, 5, Match(in_port=1, vlan_vid=10, eth_dst=2, eth_src=3), ours + 3, 30, True, meter_id=3, goto_table=2),
        Flow(1, 6, floods, ours + 3, actions=to_all),
        Flow(1, 7, Match(eth_type=0x88CC, eth_dst=0x0180C200000E), ours + 3, actions=(Output(TO_CONTROLLER, 0xFFFF),)),
        Flow(2, 8, vlan_10._replace(eth_type=0x800), 5, actions=(SetVlanVid(11), Output(ofp.PORT_IN_PORT))),
        Flow(2, 9, vlan_10._replace(in_port=4), 5, actions=to_vlan_11),
    }
    decoded = flows.decode_flow_stats(body)
    assert set(decoded.flows) == expected
    assert len(decoded.flows) == len(expected)
    assert set(decoded.duration_s.tolist()) == {0.001, 0.002}


def test_flow_mods_by_key_and_deletes_by_cookie_are_what_ryu_sends() -> None:
    flow = Flow(3, 7, Match(in_port=1, vlan_vid=10), 0xABC, meter_id=9, goto_table=4)
    for command, sent in (("MODIFY_STRICT", flow), ("DELETE_STRICT", Flow(3, 7, flow.match, 0xABC))):
        expected = ryu_flow_add(sent)
        expected.command, expected.cookie_mask = getattr(ryu_ofp, f"OFPFC_{command}"), 2**64 - 1
        assert flows.encode_flow_mods([(ofp.FlowModCommand[command], flow)], 8) == serialized(expected, 8)
    by_cookie = ryu_flow_add(Flow(0, 0, Match(), 0xD000))
    by_cookie.cookie_mask, by_cookie.table_id, by_cookie.command = 0xF000, ryu_ofp.OFPTT_ALL, ryu_ofp.OFPFC_DELETE
    assert flows.encode_flow_delete_by_cookie(0xD000, 0xF000, 2) == serialized(by_cookie, 2)


def test_flow_mods_in_one_go_are_the_single_ones_with_xids_counted_on() -> None:
    flow = Flow(0, 1, Match(), 1)
    rows = [(ofp.FlowModCommand.DELETE_STRICT, flow), (ofp.FlowModCommand.ADD, flow)]
    expected = flows.encode_flow_mods(rows[:1], 2**32 - 1) + flow_add(flow, 0)
    assert flows.encode_flow_mods(rows, 2**32 - 1) == expected


def test_a_flow_add_byte_by_byte() -> None:
    flow = Flow(2, 5, Match(in_port=1, vlan_vid=10), 0xDE75000000000001, meter_id=3, goto_table=4)
    assert flow_add(flow, 0x11).hex() == (
        "040e005800000011" + "de75000000000001" + "0000000000000000" + "0200" + "00000000" + "0005"
        "ffffffff" + "ffffffff" + "ffffffff" + "0000" + "0000"
        "00010012" + "80000004" + "00000001" + "80000c02" + "100a" + "000000000000"
        "0006000800000003" + "0001000804000000"
    )


@pytest.mark.parametrize("command", list(ofp.MeterModCommand))
def test_meter_mods_are_what_ryu_sends(command: ofp.MeterModCommand) -> None:
    bands = [] if command == ofp.MeterModCommand.DELETE else [ryu.OFPMeterBandDrop(5000, 700)]
    flags = 0 if command == ofp.MeterModCommand.DELETE else 13
    expected = b"".join(
        serialized(ryu.OFPMeterMod(DATAPATH, int(command), flags, number, bands), 40 + number) for number in (1, 2)
    )
    assert meters.encode_meter_mods(command, [1, 2], [5000, 5000], [700, 700], 41) == expected


def test_meter_mods_of_mixed_commands_keep_their_order() -> None:
    mixed = meters.encode_meter_mods(np.array([2, 0, 2, 1]), [4, 5, 6, 7], [0, 10, 0, 20], [0, 1, 0, 2], 1)
    expected = (
        meters.encode_meter_deletes([4], 1)
        + meters.encode_meter_mods(ofp.MeterModCommand.ADD, [5], [10], [1], 2)
        + meters.encode_meter_deletes([6], 3)
        + meters.encode_meter_mods(ofp.MeterModCommand.MODIFY, [7], [20], [2], 4)
    )
    assert mixed == expected


def test_a_meter_mod_byte_by_byte() -> None:
    assert meters.encode_meter_mods(ofp.MeterModCommand.MODIFY, [7], [50_000], [10_000], 0xFF).hex() == (
        "041d0020000000ff" + "0001" + "000d" + "00000007" + "0001" + "0010" + "0000c350" + "00002710" + "00000000"
    )


REQUESTS = {
    "meter": (multipart.encode_meter_stats_request(5), ryu.OFPMeterStatsRequest(DATAPATH)),
    "meter config": (multipart.encode_meter_config_request(5), ryu.OFPMeterConfigStatsRequest(DATAPATH)),
    "meter features": (multipart.encode_meter_features_request(5), ryu.OFPMeterFeaturesStatsRequest(DATAPATH)),
    "port": (multipart.encode_port_stats_request(5), ryu.OFPPortStatsRequest(DATAPATH)),
    "queue": (multipart.encode_queue_stats_request(5), ryu.OFPQueueStatsRequest(DATAPATH)),
    "one queue": (multipart.encode_queue_stats_request(5, 3, 10), ryu.OFPQueueStatsRequest(DATAPATH, 0, 3, 10)),
    "port desc": (multipart.encode_port_desc_request(5), ryu.OFPPortDescStatsRequest(DATAPATH)),
    "flow": (
        multipart.encode_flow_stats_request(5, 0xA0, 0xF0, 3),
        ryu.OFPFlowStatsRequest(DATAPATH, 0, 3, cookie=0xA0, cookie_mask=0xF0),
    ),
    "barrier": (messages.encode_barrier_request(5), ryu.OFPBarrierRequest(DATAPATH)),
    "packet out": (
        messages.encode_packet_out(5, ofp.PORT_CONTROLLER, (SetQueue(3), Output(2)), b"frame"),
        ryu.OFPPacketOut(
            DATAPATH,
            ryu_ofp.OFP_NO_BUFFER,
            ryu_ofp.OFPP_CONTROLLER,
            [ryu.OFPActionSetQueue(3), ryu.OFPActionOutput(2, 0)],
            b"frame",
        ),
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_what_ryu_sends(name: str) -> None:
    ours, theirs = REQUESTS[name]
    assert ours == serialized(theirs, 5)


def test_meter_stats_of_one_band_each() -> None:
    body = bytes.fromhex(
        "00000001" + "0038" + "000000000000" + "00000002" + "000000000000012c" + "0000000000009c40"
        "00000005" + "0ee6b280" + "0000000000000007" + "0000000000000009"
    )
    decoded = meters.decode_meter_stats(body * 3)
    assert decoded.dtype == meters.METER_STATS
    assert decoded.tolist() == [(1, 7, 40000, 5.25, 9)] * 3
    theirs = ryu.OFPMeterStats.parser(body, 0)
    assert (theirs.byte_in_count, theirs.band_stats[0].byte_band_count) == (40000, 9)


def test_meter_stats_with_foreign_meters_among_ours() -> None:
    def entry(meter_id: int, *bands: tuple[int, int]) -> bytes:
        head = meter_id.to_bytes(4) + (40 + 16 * len(bands)).to_bytes(2) + bytes(18) + (10 * meter_id).to_bytes(8)
        return head + bytes(8) + b"".join(a.to_bytes(8) + b.to_bytes(8) for a, b in bands)

    body = entry(1, (3, 4)) + entry(2) + entry(3, (1, 10), (2, 20), (3, 30)) + entry(4, (2**63, 1), (2**63 - 1, 2))
    body += entry(5, (1, 1), (2**64 - 1, 1)) + entry(6, (5, 6))
    decoded = meters.decode_meter_stats(body)
    assert decoded["meter_id"].tolist() == [1, 2, 3, 4, 5, 6]
    assert decoded["byte_in_count"].tolist() == [10, 20, 30, 40, 50, 60]
    unavailable = meters.PACKETS_UNAVAILABLE
    assert decoded["band_packet_count"].tolist() == [3, 0, 6, 2**32 - 1, unavailable, 5]
    assert decoded["band_byte_count"].tolist() == [4, 0, 60, 3, 2, 6]


def test_a_foreign_meter_among_many_of_ours_changes_nothing_for_them() -> None:
    count = 100
    ours = b"".join(struct.pack("!IH6xIQQIIQQ", number, 56, 1, number, 2, 3, 0, 4, number) for number in range(count))
    alone = meters.decode_meter_stats(ours)
    foreign = struct.pack("!IH6xIQQII", 7, 40, 0, 0, 0, 0, 0)
    for at in (0, 17, 50, count):
        mixed = meters.decode_meter_stats(ours[: at * 56] + foreign + ours[at * 56 :])
        assert mixed["meter_id"][at] == 7
        assert (np.delete(mixed, at) == alone).all()


def test_meter_config_tells_ours_from_others() -> None:
    def config(meter_id: int, *bands: Any) -> bytes:
        body = bytearray()
        for band in bands:
            band.serialize(body, len(body))
        return (8 + len(body)).to_bytes(2) + (13).to_bytes(2) + meter_id.to_bytes(4) + body

    ours = config(1, ryu.OFPMeterBandDrop(100, 20)) + config(2, ryu.OFPMeterBandDrop(300, 40))
    rows, others = meters.decode_meter_config(ours)
    assert rows.tolist() == [(1, 13, 100, 20), (2, 13, 300, 40)]
    assert others.tolist() == []
    two = config(4, ryu.OFPMeterBandDrop(1, 1), ryu.OFPMeterBandDrop(2, 2))
    remark = config(5, ryu.OFPMeterBandDscpRemark(9, 9, 1))
    rows, others = meters.decode_meter_config(config(3) + ours + two + remark)
    assert rows["meter_id"].tolist() == [1, 2]
    assert sorted(others.tolist()) == [3, 4, 5]


def test_meter_features() -> None:
    # From Open vSwitch 3.1.
    features = meters.decode_meter_features(bytes.fromhex("00040000000000020000000f08000000"))
    assert features == meters.MeterFeatures(262144, 2, meters.MeterFlags(15), 8, 0)
    assert features.can_drop


def test_port_stats_columns() -> None:
    counters = list(range(100, 112))
    packed = struct.pack("!I4x12QII", 7, *counters, 9, 500_000_000)
    decoded = multipart.decode_port_stats(packed * 2)
    assert decoded.tolist() == [(7, *counters, 9.5)] * 2
    assert decoded.dtype.names == multipart.PORT_STATS.names
    theirs = ryu.OFPPortStats.parser(packed, 0)
    assert all(decoded[0][name] == getattr(theirs, name) for name in multipart.PORT_STATS.names[:-1])


def test_queue_stats_columns() -> None:
    packed = struct.pack("!IIQQQII", 7, 10, 1000, 20, 3, 4, 250_000_000)
    assert multipart.decode_queue_stats(packed).tolist() == [(7, 10, 1000, 20, 3, 4.25)]
    theirs = ryu.OFPQueueStats.parser(packed, 0)
    assert (theirs.queue_id, theirs.tx_bytes, theirs.tx_packets, theirs.tx_errors) == (10, 1000, 20, 3)


def test_port_desc() -> None:
    # From Open vSwitch 3.1: the local port of a bridge, down.
    body = bytes.fromhex(
        "fffffffe00000000a659f7e7874c0000627264746573740000000000000000000000000100000001000008400000000000000000000000000098"
        "968000000000"
    )
    (port,) = multipart.decode_port_desc(body)
    assert port == multipart.PortDesc(ofp.PORT_LOCAL, "brdtest", 0xA659F7E7874C, 1, 1, 10_000_000, 0)
    assert not port.up


def test_a_description_byte_by_byte() -> None:
    """OpenFlow 1.3.5, 7.3.5.1: texts of 256 bytes, 32 for the serial number, each ended by a zero."""
    made_by, hardware, software, serial, datapath = b"Nicira, Inc.", b"Open vSwitch", b"3.1.0", b"None", b"s1"
    body = b"".join(text.ljust(256, b"\0") for text in (made_by, hardware, software))
    body += serial.ljust(32, b"\0") + datapath.ljust(256, b"\0")
    assert multipart.decode_desc(body) == ("Nicira, Inc.", "Open vSwitch", "3.1.0", "None", "s1")


def test_multipart_parts() -> None:
    buf = bytes.fromhex("0413001800000005" + "0005000100000000" + "0102030405060708")
    part = multipart.multipart_header(buf)
    assert (part.type, part.more, bytes(part.body)) == (ofp.MultipartType.QUEUE, True, bytes(range(1, 9)))


def test_packet_in() -> None:
    match, reason = ryu.OFPMatch(in_port=3, metadata=9), ofp.PacketInReason.ACTION
    theirs = ryu.OFPPacketIn(DATAPATH, ryu_ofp.OFP_NO_BUFFER, 5, reason, 2, 0xC0, match, b"frame")
    parsed = messages.parse_packet_in(serialized_by_fields(theirs))
    assert parsed == messages.PacketIn(1, 2, 0xC0, 3, b"frame", 9)


def serialized_by_fields(packet_in: Any) -> bytes:
    """Ryu serializes no packet-in, so: its fixed part by hand, its match by Ryu; and Ryu must read the same back."""
    match = bytearray()
    packet_in.match.serialize(match, 0)
    body = ryu_ofp.OFP_NO_BUFFER.to_bytes(4) + packet_in.total_len.to_bytes(2) + bytes([packet_in.reason])
    body += bytes([packet_in.table_id]) + packet_in.cookie.to_bytes(8) + bytes(match) + bytes(2) + packet_in.data
    buf = b"\x04\x0a" + (8 + len(body)).to_bytes(2) + bytes(4) + body
    back = msg(DATAPATH, 4, ryu_ofp.OFPT_PACKET_IN, len(buf), 0, buf)
    assert (back.match["in_port"], back.data) == (packet_in.match["in_port"], packet_in.data)
    return buf


def test_flow_removed() -> None:
    fixed = "00000000000000c0" + "0064" + "00" + "03" + "00000007" + "1dcd6500" + "001e" + "0000"
    counters = "0000000000000005" + "00000000000001f4"
    match = "00010012" + "80000004" + "00000001" + "80000c02" + "100a" + "000000000000"
    buf = bytes.fromhex("040b0048" + "00000000" + fixed + counters + match)
    parsed = messages.parse_flow_removed(buf)
    assert parsed == messages.FlowRemoved(Match(in_port=1, vlan_vid=10), 0xC0, 3, 100, 0, 7.5, 5, 500)
    theirs = msg(DATAPATH, 4, ryu_ofp.OFPT_FLOW_REMOVED, len(buf), 0, buf)
    assert (theirs.cookie, theirs.priority, theirs.match["vlan_vid"]) == (0xC0, 100, 0x100A)


@pytest.mark.parametrize(
    ("error_type", "code", "text"),
    [
        (ryu_ofp.OFPET_METER_MOD_FAILED, ryu_ofp.OFPMMFC_OUT_OF_METERS, "METER_MOD_FAILED / OUT_OF_METERS"),
        (ryu_ofp.OFPET_FLOW_MOD_FAILED, ryu_ofp.OFPFMFC_TABLE_FULL, "FLOW_MOD_FAILED / TABLE_FULL"),
        (ryu_ofp.OFPET_ROLE_REQUEST_FAILED, ryu_ofp.OFPRRFC_BAD_ROLE, "ROLE_REQUEST_FAILED / BAD_ROLE"),
        (99, 3, "error type 99 / code 3"),
    ],
)
def test_errors_are_told_by_name(error_type: int, code: int, text: str) -> None:
    theirs = ryu.OFPErrorMsg(DATAPATH, type_=error_type, code=code, data=b"refused message")
    parsed = messages.parse_error(serialized(theirs, 12))
    assert parsed.text == text
    assert (parsed.type, parsed.code, parsed.data, parsed.xid) == (error_type, code, b"refused message", 12)


def test_every_code_has_the_number_that_ryu_gives_it() -> None:
    prefixes = {
        ofp.ErrorType.BAD_REQUEST: "OFPBRC_",
        ofp.ErrorType.BAD_ACTION: "OFPBAC_",
        ofp.ErrorType.BAD_INSTRUCTION: "OFPBIC_",
        ofp.ErrorType.BAD_MATCH: "OFPBMC_",
        ofp.ErrorType.FLOW_MOD_FAILED: "OFPFMFC_",
        ofp.ErrorType.GROUP_MOD_FAILED: "OFPGMFC_",
        ofp.ErrorType.PORT_MOD_FAILED: "OFPPMFC_",
        ofp.ErrorType.METER_MOD_FAILED: "OFPMMFC_",
        ofp.ErrorType.ROLE_REQUEST_FAILED: "OFPRRFC_",
    }
    known = 0
    for error_type, prefix in prefixes.items():
        for code, name in enumerate(ofp.ERROR_CODES[error_type]):
            theirs = getattr(ryu_ofp, prefix + name, None)
            assert theirs in (None, code), f"{prefix}{name}"
            known += theirs is not None
    assert known > 70


def test_every_reserved_port_has_the_number_that_ryu_gives_it() -> None:
    for name in ("MAX", "IN_PORT", "TABLE", "FLOOD", "ALL", "CONTROLLER", "LOCAL", "ANY"):
        assert getattr(ofp, f"PORT_{name}") == getattr(ryu_ofp, f"OFPP_{name}"), name


def test_port_status() -> None:
    port = bytes.fromhex("00000003" + "00000000" + "02000000000a" + "0000") + b"s1-eth3".ljust(16, b"\0") + bytes(32)
    buf = b"\x04\x0c\x00\x50" + bytes(4) + b"\x01" + bytes(7) + port
    parsed = messages.parse_port_status(buf)
    assert (parsed.reason, parsed.port.port_no, parsed.port.name) == (ofp.PortReason.DELETE, 3, "s1-eth3")
    assert parsed.port.up
