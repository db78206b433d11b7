"""The model fabric by itself: links, queues, meters and TCP in virtual time, without a controller."""

from __future__ import annotations

import pytest

from controller.errors import InvalidValueError
from controller.fabric.topology import PortId
from controller.openflow.constants import MeterModCommand
from controller.openflow.meters import decode_meter_stats
from controller.openflow.multipart import encode_meter_stats_request
from experiments.model.control.uncontrolled import install_forwarding, install_shares, set_meter
from experiments.model.fabric import ModelFabric, ModelOptions
from experiments.model.queues import QueueOptions
from experiments.model.sources import OnOff, UdpSource
from experiments.model.tcp import TcpSource
from experiments.ovs.static_limits import equal_shares
from topologies.builders import fabrics
from topologies.fabric import Fabric, PhysicalNode, TopoLink, TopoSwitch

LAWS = ("reno", "cubic", "dctcp")


def star(pns=3, link_rate_bps=100_000_000, **options) -> ModelFabric:
    model = ModelFabric(fabrics["dets-fig1"](pns=pns, link_rate_bps=link_rate_bps), ModelOptions(**options))
    install_forwarding(model)
    return model


def send(model, source, sender, receiver, vid=1, at_s=0.0):
    model.connect(source, model.fabric.vn(vid, sender), model.fabric.vn(vid, receiver))
    model.at(at_s, lambda: source.start(model.slot))
    return source


def received_bps(model, number, vid=1, seconds=1.0):
    got = model.received[model.fabric.vn(vid, number)]
    before = got.octets
    model.run(model.now_s + seconds)
    return (got.octets - before) * 8 / seconds


@pytest.mark.parametrize("rate_bps", [3e5, 15e6, 99e6])
def test_udp_arrives_at_its_rate(rate_bps):
    model = star()
    source = send(model, UdpSource(rate_bps, model.slot_s), 1, 3)
    assert received_bps(model, 3, seconds=4.0) == pytest.approx(rate_bps, rel=0.01)
    assert source.lost == 0


@pytest.mark.parametrize("link_rate_bps", [10_000_000, 1_000_000_000, 100_000_000_000])
def test_a_link_carries_its_rate_and_drops_the_rest(link_rate_bps):
    model = star(link_rate_bps=link_rate_bps)
    sources = [send(model, UdpSource(0.9 * link_rate_bps, model.slot_s), pn, 3) for pn in (1, 2)]
    model.run(0.5)
    assert received_bps(model, 3) == pytest.approx(link_rate_bps, rel=0.002)
    lost = [source.lost for source in sources]
    assert min(lost) > 0.8 * max(lost)


@pytest.mark.parametrize("head_drop", [True, False])
def test_packets_are_delivered_lost_or_waiting(head_drop):
    model = star(4, queues=QueueOptions(limit_packets=50, head_drop=head_drop))
    sources = [send(model, UdpSource(60e6, model.slot_s), 1, 4), send(model, TcpSource("reno", model.slot_s), 2, 4)]
    sources.append(send(model, UdpSource(30e6, model.slot_s), 3, 4, vid=2))
    model.run(3.0)
    waiting = model.ports[PortId(1, 4)].queue(0).packets
    assert 0 < waiting <= 50
    assert sum(s.sent - s.delivered - s.lost for s in sources) == waiting


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("link_rate_bps", [20_000_000, 1_000_000_000])
def test_one_tcp_fills_its_link(law, link_rate_bps):
    model = star(link_rate_bps=link_rate_bps)
    send(model, TcpSource(law, model.slot_s), 1, 3)
    model.run(5.0)
    assert received_bps(model, 3, seconds=5.0) == pytest.approx(link_rate_bps, rel=0.03)


@pytest.mark.parametrize("law", ["reno", "cubic"])
def test_tcp_flows_share_a_link(law):
    model = star(5)
    flows = [send(model, TcpSource(law, model.slot_s), pn, 5, at_s=0.1 * pn) for pn in range(1, 5)]
    model.run(5.0)
    before = [flow.delivered for flow in flows]
    model.run(45.0)
    shares = [flow.delivered - count for flow, count in zip(flows, before, strict=True)]
    assert min(shares) > 0.5 * max(shares)


@pytest.mark.parametrize("law", LAWS)
def test_segments_are_sent_again_until_all_have_arrived(law):
    """A finite transfer through a link that another tenant blasts at: every segment arrives once."""
    model = star(4, queues=QueueOptions(ecn_packets=20))
    send(model, UdpSource(95e6, model.slot_s), 2, 4, vid=2)
    source = TcpSource(law, model.slot_s)
    model.connect(source, model.fabric.vn(1, 1), model.fabric.vn(1, 4))
    model.at(0.5, lambda: source.transfer(1_000_000, model.slot))
    model.run(30.0)
    (done,) = source.transfers
    assert done.packets == -(-1_000_000 // 1448)
    assert done.began_s == pytest.approx(0.5)
    assert done.ended_s < 30.0
    assert source.delivered == done.packets
    assert source.sent == source.delivered + source.lost


def test_marks_keep_dctcp_s_queue_short():
    depth = {}
    for law in ("dctcp", "reno"):
        model = star(4, 1_000_000_000, queues=QueueOptions(limit_packets=1000, ecn_packets=65))
        flows = [send(model, TcpSource(law, model.slot_s), pn, 4) for pn in (1, 2, 3)]
        seen = []
        for number in range(1, 200):
            model.at(
                1.0 + number / 100,
                lambda seen=seen, model=model: seen.append(model.ports[PortId(1, 4)].queue(0).packets),
            )
        model.run(3.0)
        depth[law] = sum(seen) / len(seen)
        assert received_bps(model, 4) >= 0.94e9
        assert all(flow.lost == 0 for flow in flows) is (law == "dctcp")
    assert depth["dctcp"] < 0.5 * depth["reno"]


def test_an_on_off_source_sends_about_half_the_time():
    model = star(seed=3)
    source = UdpSource(10e6, model.slot_s)
    model.connect(source, model.fabric.vn(1, 1), model.fabric.vn(1, 3))
    model.generate(OnOff(source, 0.5, model.slot_s, model.rng))
    assert received_bps(model, 3, seconds=60.0) == pytest.approx(5e6, rel=0.1)


def test_delays_of_links_are_in_the_round_trip():
    nodes = tuple(PhysicalNode(n, f"s{n}", 1, (1,), 100_000_000, link_delay_s=0.002) for n in (1, 2))
    links = (TopoLink("s1", 2, "s2", 2, 100_000_000, delay_s=0.010),)
    model = ModelFabric(Fabric("two", (TopoSwitch("s1", 1), TopoSwitch("s2", 2)), nodes, (1,), links), ModelOptions())
    install_forwarding(model)
    ends = model.fabric.vn(1, 1), model.fabric.vn(1, 2)
    assert model.round_trip_s(*ends) == pytest.approx(0.028)
    source = TcpSource("reno", model.slot_s, return_s=model.round_trip_s(*ends))
    model.connect(source, *ends)
    source.start(0)
    model.run(1.0)
    assert source.min_rtt_s == pytest.approx(0.028, abs=0.0015)


def install_static_limits(model, limits_bps, bursts_s):
    """Share each VLAN's limit equally among all PNs but the last, the receiver; its port has a queue per VLAN."""
    *senders, last = model.fabric.pns
    pairs = {
        (model.fabric.vn(vid, pn.number), model.fabric.vn(vid, last.number)): bursts_s[vid]
        for vid in limits_bps
        for pn in senders
    }
    limits = {vn: limits_bps[vn.vlan_vid] for vn in model.fabric.vns() if vn.vlan_vid in limits_bps}
    install_shares(model, equal_shares(pairs, limits, limits), {last: limits_bps})


def limited(rate_kbps, burst_kbits, source_of) -> tuple[ModelFabric, object]:
    model = star()
    install_static_limits(model, {1: 2 * rate_kbps * 1000}, {1: burst_kbits / rate_kbps})
    return model, send(model, source_of(model), 1, 3)


def meter_row(model, meter_id):
    datapath = model.switches[1]
    datapath.drain_messages()
    datapath.receive(encode_meter_stats_request(1), model.now_s)
    rows = decode_meter_stats(datapath.drain_messages()[16:])
    return rows[rows["meter_id"] == meter_id][0]


def test_a_meter_polices_and_counts_frames_of_the_controller_like_others():
    """What is sent by packet-out meets the pipeline frame by frame: that is how a controller tests a switch."""
    model = star()
    set_meter(model, 1, 1, rate_kbps=100_000, burst_kbits=10)
    assert [model.switches[1].meters.police(1, 500, model.now_s) for _ in range(3)] == [True, True, False]
    row = meter_row(model, 1)
    assert (row["byte_in_count"], row["band_packet_count"]) == (1500, 1)
    assert not model.switches[1].meters.police(2, 500, model.now_s), "there is no such meter"


def test_a_meter_lets_its_rate_and_one_burst_through_and_counts_before_the_drop():
    model, source = limited(10_000, 2_000, lambda model: UdpSource(50e6, model.slot_s))
    model.set_queues({PortId(1, 3): {}})
    model.run(2.0)
    assert source.delivered * source.frame_bits == pytest.approx(2 * 10e6 + 2e6, rel=0.005)
    row = meter_row(model, 1)
    assert row["byte_in_count"] * 8 == source.sent * source.frame_bits
    assert row["band_packet_count"] == source.lost
    assert row["duration_s"] == pytest.approx(2.0)


def test_each_modify_is_a_gift_of_one_burst():
    """50 Mb/s, 200 ms, modified every 55 ms: 200 Mb/s got through on Open vSwitch (fact 1 of the design)."""
    model = ModelFabric(fabrics["dets-fig1"](pns=3, link_rate_bps=1_000_000_000), ModelOptions())
    install_static_limits(model, {1: 100_000_000}, {1: 0.2})
    model.set_queues({PortId(1, 3): {}})
    send(model, UdpSource(300e6, model.slot_s), 1, 3)

    def modify(number):
        set_meter(model, 1, 1, 50_000, 10_000, MeterModCommand.MODIFY)
        model.at(number * 0.055, lambda: modify(number + 1))

    modify(1)
    model.run(0.5)
    assert received_bps(model, 3, seconds=2.2) == pytest.approx(50e6 + 10e6 / 0.055, rel=0.02)
    row = meter_row(model, 1)
    assert row["duration_s"] == pytest.approx(2.7)
    assert row["byte_in_count"] * 8 < 300e6 * 0.06


@pytest.mark.parametrize(("burst_s", "least", "most"), [(0.05, 0.3, 0.6), (0.2, 0.90, 1.0)])
def test_tcp_needs_a_bucket_of_its_retransmission_time_out(burst_s, least, most):
    """Its round trip is far below that, so that its least window is above the rate: it sends until all is lost."""
    model = star(slot_s=0.0002)
    install_static_limits(model, {1: 100_000_000}, {1: burst_s})
    model.set_queues({PortId(1, 3): {}})
    source = send(model, TcpSource("cubic", model.slot_s), 1, 3)
    model.run(2.0)
    assert received_bps(model, 3, seconds=10.0) / 50e6 == pytest.approx((least + most) / 2, abs=(most - least) / 2)
    assert source.time_outs > 10


def test_queues_keep_tenants_apart():
    """40 and 50 Mb/s of a 100 Mb/s port against a blast of 150 Mb/s."""
    model = star(4)
    install_static_limits(model, {1: 120_000_000, 2: 300_000_000}, {1: 1.0, 2: 1.0})
    model.set_queues({PortId(1, 4): {0: (100_000, 100_000_000), 1: (40_000_000,) * 2, 2: (50_000_000,) * 2}})
    flows = [send(model, TcpSource("cubic", model.slot_s), pn, 4) for pn in (1, 2, 3)]
    for pn in (1, 2, 3):
        send(model, UdpSource(50e6, model.slot_s), pn, 4, vid=2)
    model.run(2.0)
    first = model.received[model.fabric.vn(2, 4)].octets
    assert received_bps(model, 4, seconds=5.0) == pytest.approx(40e6, rel=0.01)
    assert (model.received[model.fabric.vn(2, 4)].octets - first) * 8 / 5 == pytest.approx(50e6, rel=0.01)
    assert all(flow.time_outs == 0 for flow in flows)


def test_a_queue_may_borrow_what_is_idle():
    model = star(3)
    install_static_limits(model, {1: 1_000_000_000, 2: 1_000_000_000}, {1: 1.0, 2: 1.0})  # meters that hold nothing
    model.set_queues({PortId(1, 3): {0: (100_000, 10**8), 1: (40_000_000, 10**8), 2: (50_000_000, 10**8)}})
    send(model, UdpSource(90e6, model.slot_s), 1, 3, vid=2)
    model.run(0.5)
    assert received_bps(model, 3, vid=2) == pytest.approx(90e6, rel=0.01)
    send(model, UdpSource(90e6, model.slot_s), 2, 3, vid=1, at_s=model.now_s)
    model.run(model.now_s + 0.5)
    before = model.received[model.fabric.vn(1, 3)].octets
    assert received_bps(model, 3, vid=2) == pytest.approx(55e6, rel=0.05)
    assert (model.received[model.fabric.vn(1, 3)].octets - before) * 8 == pytest.approx(45e6, rel=0.05)


def test_values_that_make_no_sense_are_refused():
    model = star()
    with pytest.raises(InvalidValueError, match="slot_s"):
        ModelOptions(slot_s=0.5)
    with pytest.raises(InvalidValueError, match="rate_bps"):
        UdpSource(0, 0.001)
    with pytest.raises(InvalidValueError, match="congestion_control"):
        TcpSource("vegas", 0.001)
    with pytest.raises(InvalidValueError, match="receiver"):
        model.connect(UdpSource(1e6, 0.001), model.fabric.vn(1, 1), model.fabric.vn(2, 2))


def test_a_pns_way_out_has_classes_on_demand():
    """UDP of one VN takes a plain way out from TCP of another; classes keep the second its part, and are taken away."""
    model = star(3)
    flow = send(model, TcpSource("cubic", model.slot_s), 1, 2)
    send(model, UdpSource(150e6, model.slot_s), 1, 3, vid=2)
    model.run(2.0)
    assert received_bps(model, 2, seconds=4.0) < 20e6
    model.set_uplink_queues(1, {1: (40_000_000, 100_000_000), 2: (50_000_000, 100_000_000)})
    model.run(model.now_s + 2.0)
    before = flow.time_outs
    assert 38e6 < received_bps(model, 2, seconds=4.0) < 52e6
    assert flow.time_outs == before
    model.set_uplink_queues(1, {})
    model.run(model.now_s + 2.0)
    assert received_bps(model, 2, seconds=4.0) < 20e6
    with pytest.raises(InvalidValueError, match=r"vlan_vid: 9 is not a VLAN of PN 1 \(1, 2\)"):
        model.set_uplink_queues(1, {9: (1_000_000, 1_000_000)})


def test_a_slower_edge_port_is_where_its_traffic_queues_up():
    """A receiver's rate of 86 % of its link, as host placement needs it: the edge port serves that, not the link's."""
    fabric = fabrics["gatekeeper-hosts"](pns=3, link_rate_bps=100_000_000, access_rates_bps={3: 86_000_000})
    model = ModelFabric(fabric, ModelOptions())
    install_forwarding(model)
    for pn in (1, 2):
        send(model, UdpSource(45e6, model.slot_s), pn, 3)
    model.run(1.0)
    assert received_bps(model, 3, seconds=2.0) == pytest.approx(86e6, rel=0.01)
