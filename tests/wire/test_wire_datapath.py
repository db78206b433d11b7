"""The software switch, driven by messages that Ryu makes and read by Ryu's parser."""

from __future__ import annotations

import struct
import warnings
from typing import Any

import pytest
from support.ip_frames import IPV4, IPV6, ip_frame, traffic_class

from controller.openflow.ethernet import FrameHeader, build_frame, parse_frame
from experiments.switch.datapath import Datapath
from experiments.switch.options import DatapathOptions

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ryu's imports warn of what they themselves use, and warnings are errors here
    from ryu.ofproto import ofproto_v1_3 as ofp
    from ryu.ofproto import ofproto_v1_3_parser as ryu
    from ryu.ofproto.ofproto_parser import msg
    from ryu.ofproto.ofproto_protocol import ProtocolDesc

RYU = ProtocolDesc(version=0x04)
LINK_BPS = 1e9


def switch(**options: Any) -> Datapath:
    datapath = Datapath(0xABC, DatapathOptions(**options))
    for port_no in (1, 2, 3):
        datapath.add_port(port_no, LINK_BPS, 0.0)
    datapath.drain_messages()
    return datapath


def said(datapath: Datapath) -> list[Any]:
    """What the switch has to say, as Ryu's own message objects."""
    buf, out = datapath.drain_messages(), []
    while buf:
        version, kind, length, xid = struct.unpack_from("!BBHI", buf)
        out.append(msg(RYU, version, kind, length, xid, buf[:length]))
        buf = buf[length:]
    return out


def tell(datapath: Datapath, *messages: Any, now_s: float = 0.0) -> list[Any]:
    for xid, message in enumerate(messages, 100):
        message.set_xid(xid)
        message.serialize()
        datapath.receive(bytes(message.buf), now_s)
    return said(datapath)


def flow_mod(**fields: Any) -> Any:
    fields.setdefault("out_port", ofp.OFPP_ANY)
    fields.setdefault("out_group", ofp.OFPG_ANY)
    return ryu.OFPFlowMod(RYU, **fields)


def apply_actions(*actions: Any) -> Any:
    return ryu.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, list(actions))


def forward(port_no: int, **fields: Any) -> Any:
    return flow_mod(instructions=[apply_actions(ryu.OFPActionOutput(port_no))], **fields)


def meter_mod(meter_id: int, rate: int = 1000, burst: int = 100, command: int = 0, flags: int = 13) -> Any:
    return ryu.OFPMeterMod(RYU, command, flags, meter_id, [ryu.OFPMeterBandDrop(rate, burst)])


def frame(dst: int = 2, src: int = 1, vlan_vid: int | None = 10, size: int = 100) -> bytes:
    return build_frame(FrameHeader(dst, src, vlan_vid, 0x0800), b"").ljust(size, b"x")


def meter_stats(datapath: Datapath, now_s: float = 0.0) -> dict[int, Any]:
    (reply,) = tell(datapath, ryu.OFPMeterStatsRequest(RYU), now_s=now_s)
    return {entry.meter_id: entry for entry in reply.body}


def flow_stats(datapath: Datapath, now_s: float = 0.0, **fields: Any) -> list[Any]:
    replies = tell(datapath, ryu.OFPFlowStatsRequest(RYU, **fields), now_s=now_s)
    return [entry for reply in replies for entry in reply.body]


def test_handshake() -> None:
    datapath = Datapath(0xABC)
    assert datapath.drain_messages().hex() == "0400000800000000"
    features, config, echo = tell(
        datapath,
        ryu.OFPHello(RYU),
        ryu.OFPFeaturesRequest(RYU),
        ryu.OFPSetConfig(RYU, 0, 0xFFFF),
        ryu.OFPGetConfigRequest(RYU),
        ryu.OFPEchoRequest(RYU, b"ping"),
    )
    assert (features.datapath_id, features.n_tables, features.xid) == (0xABC, 64, 101)
    assert (config.miss_send_len, config.xid) == (0xFFFF, 103)
    assert (echo.data, echo.xid) == (b"ping", 104)


def test_messages_may_arrive_in_pieces_of_any_size() -> None:
    datapath = switch()
    request = ryu.OFPEchoRequest(RYU, b"0123456789")
    request.serialize()
    for octet in bytes(request.buf) * 2:
        datapath.receive(bytes([octet]), 0.0)
    assert [reply.data for reply in said(datapath)] == [b"0123456789"] * 2


def test_ports_are_described_and_their_changes_told() -> None:
    datapath = switch()
    (reply,) = tell(datapath, ryu.OFPPortDescStatsRequest(RYU))
    assert [(port.port_no, port.name, port.curr_speed) for port in reply.body] == [
        (1, b"eth1", 1_000_000),
        (2, b"eth2", 1_000_000),
        (3, b"eth3", 1_000_000),
    ]
    datapath.set_port_up(2, False)
    datapath.set_port_up(2, False)
    datapath.remove_port(3)
    datapath.add_port(9, LINK_BPS, 0.0)
    told = [(status.reason, status.desc.port_no, status.desc.state) for status in said(datapath)]
    assert told == [(ofp.OFPPR_MODIFY, 2, 1), (ofp.OFPPR_DELETE, 3, 0), (ofp.OFPPR_ADD, 9, 0)]


def test_the_pipeline_goes_by_priority_through_tables() -> None:
    datapath = switch()
    answers = tell(
        datapath,
        flow_mod(
            table_id=0,
            priority=5,
            match=ryu.OFPMatch(in_port=1, vlan_vid=0x100A),
            instructions=[ryu.OFPInstructionGotoTable(2)],
        ),
        forward(3, table_id=2, priority=1, match=ryu.OFPMatch(eth_dst=("01:00:00:00:00:00", "01:00:00:00:00:00"))),
        forward(2, table_id=2, priority=9, match=ryu.OFPMatch(eth_dst="00:00:00:00:00:02")),
        forward(3, table_id=2, priority=3, match=ryu.OFPMatch()),
    )
    assert answers == []
    for sent in (frame(dst=2), frame(dst=1 << 40), frame(vlan_vid=20), frame(vlan_vid=None)):
        datapath.inject(1, sent, 0.0)
    datapath.inject(2, frame(dst=2), 0.0)
    assert datapath.drain_frames() == [(2, frame(dst=2)), (3, frame(dst=1 << 40))]


def test_tags_are_pushed_set_and_popped() -> None:
    datapath = switch()
    tell(
        datapath,
        flow_mod(
            match=ryu.OFPMatch(in_port=1, vlan_vid=0),
            instructions=[
                apply_actions(ryu.OFPActionPushVlan(), ryu.OFPActionSetField(vlan_vid=0x100A), ryu.OFPActionOutput(2))
            ],
        ),
        flow_mod(
            match=ryu.OFPMatch(in_port=2, vlan_vid=0x100A),
            instructions=[apply_actions(ryu.OFPActionPopVlan(), ryu.OFPActionOutput(1))],
        ),
    )
    untagged = frame(vlan_vid=None)
    datapath.inject(1, untagged, 0.0)
    ((port_no, tagged),) = datapath.drain_frames()
    assert port_no == 2
    assert parse_frame(tagged) == FrameHeader(2, 1, 10, 0x0800)
    datapath.inject(2, tagged, 0.0)
    assert datapath.drain_frames() == [(1, untagged)]


def test_a_frame_does_not_go_back_where_it_came_from_unless_told() -> None:
    datapath = switch()
    tell(datapath, forward(1, match=ryu.OFPMatch(vlan_vid=0x100A)), forward(ofp.OFPP_IN_PORT, match=ryu.OFPMatch()))
    tell(datapath, forward(ofp.OFPP_ALL, match=ryu.OFPMatch(vlan_vid=0x100B)))
    datapath.inject(1, frame(vlan_vid=10), 0.0)
    assert datapath.drain_frames() == []
    datapath.set_port_up(2, False)
    datapath.inject(1, frame(vlan_vid=11), 0.0)
    assert [port_no for port_no, _ in datapath.drain_frames()] == [3]


def test_packet_in_and_packet_out() -> None:
    datapath = switch()
    to_controller = [apply_actions(ryu.OFPActionOutput(ofp.OFPP_CONTROLLER, 64))]
    tell(datapath, flow_mod(cookie=5, match=ryu.OFPMatch(), priority=0, instructions=to_controller))
    tell(datapath, flow_mod(cookie=6, match=ryu.OFPMatch(in_port=2), priority=1, instructions=to_controller))
    datapath.inject(1, frame(), 0.0)
    datapath.inject(2, frame(), 0.0)
    miss, action = said(datapath)
    assert (miss.reason, miss.cookie, miss.match["in_port"], miss.total_len) == (ofp.OFPR_NO_MATCH, 5, 1, 100)
    assert miss.data == frame()[:64]
    assert (action.reason, action.cookie, action.match["in_port"]) == (ofp.OFPR_ACTION, 6, 2)

    def packet_out(in_port: int, port_no: int) -> Any:
        return ryu.OFPPacketOut(RYU, ofp.OFP_NO_BUFFER, in_port, [ryu.OFPActionOutput(port_no)], frame())

    assert tell(datapath, packet_out(ofp.OFPP_CONTROLLER, 3)) == []
    assert datapath.drain_frames() == [(3, frame())]
    (through_table,) = tell(datapath, packet_out(2, ofp.OFPP_TABLE))
    assert through_table.cookie == 6


def test_flow_stats_count_and_filter() -> None:
    datapath = switch()
    tell(datapath, forward(2, cookie=0xA1, priority=1, match=ryu.OFPMatch(vlan_vid=0x100A)), now_s=1.0)
    tell(datapath, forward(3, cookie=0xB1, priority=2, match=ryu.OFPMatch(vlan_vid=0x1014)), now_s=1.0)
    for _ in range(3):
        datapath.inject(1, frame(), 2.0)
    (entry,) = flow_stats(datapath, cookie=0xA0, cookie_mask=0xF0, now_s=3.5)
    assert (entry.packet_count, entry.byte_count, entry.cookie, entry.priority) == (3, 300, 0xA1, 1)
    assert (entry.duration_sec, entry.duration_nsec) == (2, 500_000_000)
    assert entry.match["vlan_vid"] == 0x100A
    assert entry.instructions[0].actions[0].port == 2
    assert [entry.cookie for entry in flow_stats(datapath, now_s=3.5, out_port=3)] == [0xB1]
    assert [entry.cookie for entry in flow_stats(datapath, 3.5, match=ryu.OFPMatch(vlan_vid=0x1014))] == [0xB1]
    assert flow_stats(datapath, 3.5, table_id=7) == []
    everything = (ofp.OFPTT_ALL, ofp.OFPP_ANY, ofp.OFPG_ANY, 0, 0, ryu.OFPMatch())
    (aggregate,) = tell(datapath, ryu.OFPAggregateStatsRequest(RYU, 0, *everything))
    assert (aggregate.body.flow_count, aggregate.body.packet_count) == (2, 3)


def test_flow_stats_may_be_stale() -> None:
    datapath = switch(flow_stats_staleness_s=0.5)
    tell(datapath, forward(2, match=ryu.OFPMatch()))
    datapath.advance(0.0)
    datapath.inject(1, frame(), 0.1)
    datapath.advance(0.4)
    assert flow_stats(datapath)[0].packet_count == 0
    datapath.advance(0.5)
    assert flow_stats(datapath)[0].packet_count == 1


def test_flow_mods_add_modify_and_delete_as_specified() -> None:
    datapath = switch()
    match = ryu.OFPMatch(in_port=1)
    tell(datapath, forward(2, cookie=1, priority=7, match=match))
    datapath.inject(1, frame(), 0.0)
    tell(
        datapath, forward(3, cookie=2, priority=7, match=match, command=ofp.OFPFC_MODIFY_STRICT, cookie_mask=2**64 - 1)
    )
    assert flow_stats(datapath)[0].instructions[0].actions[0].port == 2  # the cookie did not fit
    tell(datapath, forward(3, cookie=9, priority=7, match=match, command=ofp.OFPFC_MODIFY_STRICT))
    (entry,) = flow_stats(datapath)
    assert (entry.instructions[0].actions[0].port, entry.cookie, entry.packet_count) == (3, 1, 1)
    tell(datapath, forward(3, cookie=2, priority=7, match=match))
    (entry,) = flow_stats(datapath)
    assert (entry.cookie, entry.packet_count) == (2, 0)
    tell(datapath, flow_mod(command=ofp.OFPFC_DELETE_STRICT, priority=6, match=match))
    assert len(flow_stats(datapath)) == 1
    tell(datapath, flow_mod(command=ofp.OFPFC_DELETE_STRICT, priority=7, match=match, cookie=3, cookie_mask=3))
    assert len(flow_stats(datapath)) == 1
    tell(datapath, flow_mod(command=ofp.OFPFC_DELETE, table_id=ofp.OFPTT_ALL, cookie=2, cookie_mask=2))
    assert flow_stats(datapath) == []
    datapath.inject(1, frame(), 0.0)
    assert len(datapath.drain_frames()) == 1


def test_a_wide_delete_takes_what_lies_within_it() -> None:
    datapath = switch()
    for vid in (10, 20):
        tell(datapath, forward(2, priority=vid, match=ryu.OFPMatch(in_port=1, vlan_vid=0x1000 | vid)))
    tell(datapath, flow_mod(command=ofp.OFPFC_DELETE, match=ryu.OFPMatch(vlan_vid=0x100A)))
    assert [entry.priority for entry in flow_stats(datapath)] == [20]


def test_idle_and_hard_timeouts_tell_that_the_flow_is_gone() -> None:
    datapath = switch()
    flags = ofp.OFPFF_SEND_FLOW_REM
    tell(datapath, forward(2, cookie=1, match=ryu.OFPMatch(in_port=1), idle_timeout=5, flags=flags))
    tell(datapath, forward(2, cookie=2, match=ryu.OFPMatch(in_port=2), hard_timeout=6, flags=flags, priority=3))
    tell(datapath, forward(2, cookie=3, match=ryu.OFPMatch(in_port=3), idle_timeout=1))
    datapath.inject(1, frame(), 4.0)
    datapath.advance(5.9)
    assert said(datapath) == []
    datapath.advance(6.0)
    (hard,) = said(datapath)
    assert (hard.cookie, hard.reason, hard.priority, hard.match["in_port"]) == (2, ofp.OFPRR_HARD_TIMEOUT, 3, 2)
    datapath.advance(9.0)
    (idle,) = said(datapath)
    assert (idle.cookie, idle.reason, idle.packet_count, idle.byte_count) == (1, ofp.OFPRR_IDLE_TIMEOUT, 1, 100)
    assert (idle.duration_sec, idle.idle_timeout) == (9, 5)
    assert flow_stats(datapath) == []


def test_a_meter_polices_and_counts_before_the_drop() -> None:
    datapath = switch()
    instructions = [ryu.OFPInstructionMeter(7), apply_actions(ryu.OFPActionOutput(2))]
    # 8 kb of burst are ten frames of 100 bytes; 800 kb/s are one more each millisecond.
    assert tell(datapath, meter_mod(7, 800, 8), flow_mod(match=ryu.OFPMatch(), instructions=instructions)) == []
    for _ in range(13):
        datapath.inject(1, frame(), 0.0)
    assert len(datapath.drain_frames()) == 10
    datapath.inject(1, frame(), 0.0011)
    datapath.inject(1, frame(), 0.0012)
    assert len(datapath.drain_frames()) == 1
    entry = meter_stats(datapath, now_s=2.25)[7]
    assert (entry.packet_in_count, entry.byte_in_count, entry.flow_count) == (15, 1500, 1)
    assert (entry.band_stats[0].packet_band_count, entry.band_stats[0].byte_band_count) == (4, 400)
    assert (entry.duration_sec, entry.duration_nsec) == (2, 250_000_000)


def test_a_modify_refills_the_bucket_and_zeroes_counters_but_not_the_duration() -> None:
    datapath = switch()
    instructions = [ryu.OFPInstructionMeter(7), apply_actions(ryu.OFPActionOutput(2))]
    tell(datapath, meter_mod(7, 800, 8), flow_mod(match=ryu.OFPMatch(), instructions=instructions))
    for _ in range(12):
        datapath.inject(1, frame(), 1.0)
    tell(datapath, meter_mod(7, 800, 8, command=ofp.OFPMC_MODIFY), now_s=1.0)
    entry = meter_stats(datapath, now_s=1.0)[7]
    assert (entry.packet_in_count, entry.band_stats[0].packet_band_count, entry.duration_sec) == (0, 0, 1)
    for _ in range(12):
        datapath.inject(1, frame(), 1.0)
    assert len(datapath.drain_frames()) == 20


def test_without_the_burst_flag_the_bucket_is_one_second() -> None:
    datapath = switch()
    instructions = [ryu.OFPInstructionMeter(7), apply_actions(ryu.OFPActionOutput(2))]
    tell(datapath, meter_mod(7, 16, 1, flags=9), flow_mod(match=ryu.OFPMatch(), instructions=instructions))
    for _ in range(30):
        datapath.inject(1, frame(), 0.0)
    assert len(datapath.drain_frames()) == 20


def test_deleting_a_meter_takes_its_flows_along() -> None:
    datapath = switch()
    flow = flow_mod(match=ryu.OFPMatch(), cookie=4, instructions=[ryu.OFPInstructionMeter(7)], flags=1)
    assert tell(datapath, meter_mod(7), meter_mod(8), flow) == []
    deletes = [ryu.OFPMeterMod(RYU, ofp.OFPMC_DELETE, 0, meter_id) for meter_id in (7, 99)]
    (removed,) = tell(datapath, *deletes)
    assert (removed.cookie, removed.reason) == (4, ofp.OFPRR_DELETE)
    assert list(meter_stats(datapath)) == [8]


def test_many_meter_mods_in_one_piece_do_what_each_would() -> None:
    alone, together = switch(), switch()
    mods = [meter_mod(number, 100 + number) for number in range(1, 50)]
    mods += [meter_mod(3, 5000, command=ofp.OFPMC_MODIFY), ryu.OFPMeterMod(RYU, ofp.OFPMC_DELETE, 0, 4)]
    mods += [meter_mod(4, 77), meter_mod(4, 78), meter_mod(60, 1, command=ofp.OFPMC_MODIFY), meter_mod(61)]
    errors = tell(alone, *mods)
    together.receive(b"".join(bytes(mod.buf) for mod in mods), 0.0)
    assert [(error.type, error.code, error.xid) for error in said(together)] == [
        (error.type, error.code, error.xid) for error in errors
    ]
    assert [error.code for error in errors] == [ofp.OFPMMFC_METER_EXISTS, ofp.OFPMMFC_UNKNOWN_METER]
    for datapath in (alone, together):
        assert datapath.meters.ids().tolist() == [*range(1, 50), 61]
        assert [datapath.meters.setting(number)[0] for number in (2, 3, 4)] == [102, 5000, 77]


def test_a_modify_that_finds_nothing_asks_for_no_meter() -> None:
    datapath = switch()
    to_meter = {"match": ryu.OFPMatch(in_port=1), "instructions": [ryu.OFPInstructionMeter(5)]}
    assert tell(datapath, flow_mod(command=ofp.OFPFC_MODIFY, **to_meter)) == []
    tell(datapath, forward(2, match=ryu.OFPMatch(in_port=1)))
    (error,) = tell(datapath, flow_mod(command=ofp.OFPFC_MODIFY, **to_meter))
    assert (error.type, error.code) == (ofp.OFPET_METER_MOD_FAILED, ofp.OFPMMFC_INVALID_METER)


def test_meter_config_and_features() -> None:
    datapath = switch(max_meters=1000)
    tell(datapath, meter_mod(7, 800, 8), meter_mod(8, 900, 9, flags=9))
    config, features = tell(datapath, ryu.OFPMeterConfigStatsRequest(RYU), ryu.OFPMeterFeaturesStatsRequest(RYU))
    shown = [(meter.meter_id, meter.flags, meter.bands[0].rate, meter.bands[0].burst_size) for meter in config.body]
    assert shown == [(7, 13, 800, 8), (8, 9, 900, 9)]
    assert (features.body[0].max_meter, features.body[0].band_types) == (1000, 2)


def test_large_replies_come_in_parts_of_the_size_asked_for() -> None:
    datapath = switch(part_bytes=600)
    for number in range(1, 41):
        tell(datapath, meter_mod(number), forward(2, priority=number, match=ryu.OFPMatch()))
    for request in (ryu.OFPMeterStatsRequest(RYU), ryu.OFPFlowStatsRequest(RYU)):
        parts = tell(datapath, request)
        assert len(parts) > 3
        assert [part.flags for part in parts] == [1] * (len(parts) - 1) + [0]
        assert all(part.msg_len <= 600 and part.xid == 100 for part in parts)
        assert sum(len(part.body) for part in parts) == 40
    (empty,) = tell(switch(), ryu.OFPMeterStatsRequest(RYU))
    assert (empty.body, empty.flags) == ([], 0)


def test_port_and_queue_stats() -> None:
    datapath = switch()
    datapath.ports[2].set_queue(10, 1e6, 2e6)
    queued = [apply_actions(ryu.OFPActionSetQueue(10), ryu.OFPActionOutput(2))]
    tell(datapath, flow_mod(match=ryu.OFPMatch(), instructions=queued))
    datapath.inject(1, frame(), 0.0)
    ports, queues = tell(
        datapath, ryu.OFPPortStatsRequest(RYU), ryu.OFPQueueStatsRequest(RYU, 0, ofp.OFPP_ANY, ofp.OFPQ_ALL), now_s=1.5
    )
    by_number = {port.port_no: port for port in ports.body}
    assert (by_number[1].rx_bytes, by_number[1].rx_packets, by_number[2].tx_bytes) == (100, 1, 100)
    (queue,) = queues.body
    assert (queue.port_no, queue.queue_id, queue.tx_bytes, queue.tx_packets) == (2, 10, 100, 1)
    assert (queue.duration_sec, queue.duration_nsec) == (1, 500_000_000)


@pytest.mark.parametrize("eth_type", [IPV4, IPV6])
def test_congestion_marks_are_counted_and_cleared_before_the_output_and_metered_behind_it(eth_type: int) -> None:
    """A drop band of the greatest rate only counts; a meter behind the output counts and takes nothing away."""
    datapath = switch()
    tag = ofp.OFPVID_PRESENT | 10
    ce = ryu.OFPMatch(vlan_vid=tag, eth_type=eth_type, ip_ecn=3)
    counted = [
        ryu.OFPInstructionMeter(1),
        apply_actions(ryu.OFPActionSetField(ip_ecn=0)),
        ryu.OFPInstructionGotoTable(1),
    ]
    out = [
        apply_actions(
            ryu.OFPActionPopVlan(),
            ryu.OFPActionOutput(2),
            ryu.OFPActionPushVlan(),
            ryu.OFPActionSetField(vlan_vid=tag),
        ),
        ryu.OFPInstructionGotoTable(2),
    ]
    assert not tell(
        datapath,
        meter_mod(1, 2**32 - 1),
        meter_mod(2, 1, burst=1),
        flow_mod(table_id=2, match=ryu.OFPMatch(vlan_vid=tag), instructions=[ryu.OFPInstructionMeter(2)]),
        flow_mod(table_id=1, match=ryu.OFPMatch(vlan_vid=tag), instructions=out),
        flow_mod(table_id=0, priority=1, match=ryu.OFPMatch(), instructions=[ryu.OFPInstructionGotoTable(1)]),
        flow_mod(table_id=0, priority=9, match=ce, instructions=counted),
    )
    marks = [3, 0, 1, 2, 3, 3]
    for mark in marks:
        datapath.inject(1, ip_frame(eth_type, 0xB8 | mark, 1, 2, 10), 0.0)
    got = [frame for port, frame in datapath.drain_frames() if port == 2]
    assert [traffic_class(frame) for frame in got] == [0xB8 | (0 if mark == 3 else mark) for mark in marks]
    assert {parse_frame(frame).vlan_vid for frame in got} == {None}
    (reply,) = tell(datapath, ryu.OFPMeterStatsRequest(RYU, 0, ofp.OFPM_ALL))
    counting, phantom = sorted(reply.body, key=lambda meter: meter.meter_id)
    assert (counting.packet_in_count, counting.band_stats[0].packet_band_count) == (3, 0)
    assert phantom.packet_in_count == len(marks)
    assert phantom.byte_in_count == sum(len(frame) + 4 for frame in got)  # with the tag
    assert phantom.band_stats[0].packet_band_count == len(marks) - 1  # its bucket holds one; and yet all were delivered


def test_barriers_come_after_what_was_before_them_or_late_or_never() -> None:
    datapath = switch()
    error, reply = tell(datapath, meter_mod(1, 0), ryu.OFPBarrierRequest(RYU))
    assert (error.xid, reply.xid, reply.msg_type) == (100, 101, ofp.OFPT_BARRIER_REPLY)
    datapath.faults.barrier_delay_s = 0.3
    assert tell(datapath, ryu.OFPBarrierRequest(RYU), now_s=1.0) == []
    datapath.advance(1.2)
    assert said(datapath) == []
    datapath.advance(1.3)
    assert [late.xid for late in said(datapath)] == [100]
    datapath.faults.barrier_delay_s = 0.0
    datapath.faults.lose_barriers = 1
    assert [reply.xid for reply in tell(datapath, ryu.OFPBarrierRequest(RYU), ryu.OFPBarrierRequest(RYU))] == [101]


def test_roles() -> None:
    datapath = switch()
    slave, error, stale, equal = tell(
        datapath,
        ryu.OFPRoleRequest(RYU, ofp.OFPCR_ROLE_SLAVE, 5),
        forward(2, match=ryu.OFPMatch()),
        ryu.OFPRoleRequest(RYU, ofp.OFPCR_ROLE_MASTER, 4),
        ryu.OFPRoleRequest(RYU, ofp.OFPCR_ROLE_EQUAL, 0),
    )
    assert (slave.role, slave.generation_id) == (ofp.OFPCR_ROLE_SLAVE, 5)
    assert (error.type, error.code) == (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_IS_SLAVE)
    assert (stale.type, stale.code) == (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)
    assert equal.role == ofp.OFPCR_ROLE_EQUAL
    assert tell(datapath, forward(2, match=ryu.OFPMatch())) == []


def raw(message_type: int, body: bytes = b"", version: int = 4) -> Any:
    class Raw:
        buf = bytes([version, message_type]) + (8 + len(body)).to_bytes(2) + (100).to_bytes(4) + body

        def set_xid(self, xid: int) -> None:
            """The bytes are what they are."""

        def serialize(self) -> None:
            """Likewise."""

    return Raw()


def goto(next_table: int, **fields: Any) -> Any:
    return flow_mod(instructions=[ryu.OFPInstructionGotoTable(next_table)], **fields)


def applying(*actions: Any) -> Any:
    return flow_mod(instructions=[apply_actions(*actions)])


def matching(**fields: Any) -> Any:
    return forward(2, match=ryu.OFPMatch(**fields))


NO_MATCH_LENGTH = bytes(16) + bytes(24) + b"\x00\x01\x00\xff" + bytes(4)
WILD = bytes(40) + bytes.fromhex("00010014" + "8000070c" + "000000000003" + "000000000001") + bytes(4)
SHORT_HEADER = b"\4\2\0\7\0\0\0\x64"
# By type of error and code.
REFUSED = [
    ("BAD_REQUEST", "BRC_BAD_VERSION", raw(2, version=5)),
    ("BAD_REQUEST", "BRC_BAD_TYPE", raw(77)),
    ("BAD_REQUEST", "BRC_BAD_MULTIPART", raw(18, b"\x00\x63" + bytes(6))),
    ("BAD_REQUEST", "BRC_BAD_LEN", raw(14, bytes(20))),
    ("BAD_REQUEST", "BRC_BAD_PORT", ryu.OFPPortStatsRequest(RYU, 0, 55)),
    ("BAD_REQUEST", "BRC_BUFFER_UNKNOWN", ryu.OFPPacketOut(RYU, 5, 1, [])),
    ("BAD_MATCH", "BMC_BAD_LEN", raw(14, NO_MATCH_LENGTH)),
    ("BAD_MATCH", "BMC_BAD_FIELD", matching(ipv4_src="10.0.0.1", eth_type=0x800)),
    ("BAD_MATCH", "BMC_BAD_MASK", matching(vlan_vid=(0x1000, 0x1000))),
    ("BAD_MATCH", "BMC_BAD_VALUE", matching(vlan_vid=0x1FFF)),
    ("BAD_MATCH", "BMC_BAD_WILDCARDS", raw(14, WILD)),
    ("BAD_MATCH", "BMC_BAD_PREREQ", matching(ip_ecn=3)),
    (
        "BAD_INSTRUCTION",
        "BIC_UNSUP_INST",
        flow_mod(instructions=[ryu.OFPInstructionActions(ofp.OFPIT_WRITE_ACTIONS, [])]),
    ),
    ("BAD_INSTRUCTION", "BIC_BAD_TABLE_ID", goto(1, table_id=1)),
    ("BAD_INSTRUCTION", "BIC_BAD_TABLE_ID", goto(64)),
    ("FLOW_MOD_FAILED", "FMFC_BAD_TABLE_ID", forward(2, table_id=64)),
    ("BAD_ACTION", "BAC_BAD_TYPE", applying(ryu.OFPActionDecNwTtl())),
    ("BAD_ACTION", "BAC_BAD_SET_TYPE", applying(ryu.OFPActionSetField(eth_src="00:00:00:00:00:01"))),
    ("BAD_ACTION", "BAC_BAD_OUT_PORT", forward(ofp.OFPP_ANY)),
    ("BAD_ACTION", "BAC_MATCH_INCONSISTENT", applying(ryu.OFPActionPopVlan())),
    ("BAD_ACTION", "BAC_MATCH_INCONSISTENT", applying(ryu.OFPActionSetField(ip_ecn=0))),
    ("BAD_ACTION", "BAC_BAD_TAG", applying(*[ryu.OFPActionPushVlan()] * 3)),
    ("METER_MOD_FAILED", "MMFC_INVALID_METER", flow_mod(instructions=[ryu.OFPInstructionMeter(5)])),
    ("METER_MOD_FAILED", "MMFC_INVALID_METER", meter_mod(0)),
    ("METER_MOD_FAILED", "MMFC_METER_EXISTS", meter_mod(1)),
    ("METER_MOD_FAILED", "MMFC_UNKNOWN_METER", meter_mod(2, command=1)),
    ("METER_MOD_FAILED", "MMFC_UNKNOWN_METER", ryu.OFPMeterStatsRequest(RYU, 0, 55)),
    ("METER_MOD_FAILED", "MMFC_OUT_OF_METERS", meter_mod(101)),
    ("METER_MOD_FAILED", "MMFC_BAD_RATE", meter_mod(2, 0)),
    ("METER_MOD_FAILED", "MMFC_BAD_FLAGS", meter_mod(2, flags=2)),
    ("METER_MOD_FAILED", "MMFC_BAD_COMMAND", meter_mod(2, command=9)),
    ("METER_MOD_FAILED", "MMFC_OUT_OF_BANDS", ryu.OFPMeterMod(RYU, 0, 13, 2, [ryu.OFPMeterBandDrop(1, 1)] * 2)),
    ("QUEUE_OP_FAILED", "QOFC_BAD_QUEUE", ryu.OFPQueueStatsRequest(RYU, 0, ofp.OFPP_ANY, 5)),
    ("GROUP_MOD_FAILED", "GMFC_OUT_OF_GROUPS", ryu.OFPGroupMod(RYU, ofp.OFPGC_ADD, 0, 1, [])),
]


@pytest.mark.parametrize(("error_type", "code", "message"), REFUSED)
def test_what_must_be_refused_is_refused_with_the_right_type_and_code(error_type: str, code: str, message: Any) -> None:
    datapath = switch(max_meters=100)
    tell(datapath, meter_mod(1))
    before = len(flow_stats(datapath)), list(meter_stats(datapath))
    (answer,) = tell(datapath, message)
    assert (answer.type, answer.code) == (getattr(ofp, f"OFPET_{error_type}"), getattr(ofp, f"OFP{code}"))
    assert (answer.xid, answer.data) == (100, bytes(message.buf)[:128])
    assert (len(flow_stats(datapath)), list(meter_stats(datapath))) == before
    assert not datapath.conversations[0].broken


def test_a_length_below_the_headers_breaks_the_connection() -> None:
    datapath = switch()
    datapath.receive(SHORT_HEADER, 0.0)
    (answer,) = said(datapath)
    assert (answer.type, answer.code, answer.xid) == (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_BAD_LEN, 100)
    assert answer.data == SHORT_HEADER
    assert datapath.conversations[0].broken


def test_a_full_table_refuses_what_is_new_only() -> None:
    datapath = switch(entries_per_table=2)
    flows = [forward(2, priority=number, match=ryu.OFPMatch(in_port=1)) for number in (1, 2, 3)]
    (error,) = tell(datapath, *flows)
    assert (error.type, error.code, error.xid) == (ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_TABLE_FULL, 102)
    assert tell(datapath, forward(3, priority=2, match=ryu.OFPMatch(in_port=1)), forward(2, table_id=1)) == []


def test_overlaps_are_checked_when_asked_for() -> None:
    datapath = switch()
    tell(datapath, forward(2, priority=5, match=ryu.OFPMatch(in_port=1)))
    check = ofp.OFPFF_CHECK_OVERLAP
    (error,) = tell(datapath, forward(2, priority=5, match=ryu.OFPMatch(vlan_vid=0x100A), flags=check))
    assert (error.type, error.code) == (ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_OVERLAP)
    for _ in range(2):
        assert tell(datapath, forward(2, priority=5, match=ryu.OFPMatch(in_port=2), flags=check)) == []


def test_meters_may_be_refused_pretended_or_lacking() -> None:
    refusing, pretending, without = switch(), switch(), switch(max_meters=0)
    refusing.meters.abilities.refuse = True
    (error,) = tell(refusing, meter_mod(1))
    assert error.code == ofp.OFPMMFC_OUT_OF_METERS
    (features,) = tell(without, ryu.OFPMeterFeaturesStatsRequest(RYU))
    assert (features.body[0].max_meter, features.body[0].band_types) == (0, 0)
    pretending.meters.abilities.limit = pretending.meters.abilities.count = False
    instructions = [ryu.OFPInstructionMeter(1), apply_actions(ryu.OFPActionOutput(2))]
    assert tell(pretending, meter_mod(1, 1, 1), flow_mod(match=ryu.OFPMatch(), instructions=instructions)) == []
    for _ in range(100):
        pretending.inject(1, frame(), 0.0)
    assert len(pretending.drain_frames()) == 100
    assert meter_stats(pretending)[1].packet_in_count == 0


def test_counters_jump_wrap_and_reset_on_demand() -> None:
    datapath = switch()
    instructions = [ryu.OFPInstructionMeter(1), apply_actions(ryu.OFPActionOutput(2))]
    tell(datapath, meter_mod(1), meter_mod(2), flow_mod(match=ryu.OFPMatch(), instructions=instructions))
    datapath.inject(1, frame(), 0.0)
    datapath.meters.shift(1, "byte_in_count", 2**64 - 50)
    datapath.ports[1].offsets["rx_bytes"] = 10**12
    stats = meter_stats(datapath)
    assert (stats[1].byte_in_count, stats[1].packet_in_count, stats[2].byte_in_count) == (50, 1, 0)
    (ports,) = tell(datapath, ryu.OFPPortStatsRequest(RYU, 0, 1))
    assert ports.body[0].rx_bytes == 10**12 + 100
    datapath.meters.offsets.clear()
    datapath.meters.reset_counters()
    assert meter_stats(datapath)[1].byte_in_count == 0
