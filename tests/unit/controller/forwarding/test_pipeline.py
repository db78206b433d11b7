"""Isolation, by running random frames through the produced flow entries of two switches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import fabric
from support.fabrics import Fabric, mac_of
from support.switches import BROADCAST, Frame

from controller.fabric.topology import PortId
from controller.forwarding.pipeline import ETH_TYPE_LLDP, GROUP_BIT, OWN_COOKIE, OWN_COOKIE_MASK, Table
from controller.openflow.flows import Flow

# Trunks 1 and 2, access ports 3 and 4; both switches alike; VLAN 30 and a native VLAN on the second only. Port 9 links
# them, 8 is unused.
PORTS = {1: {1: [10, 20], 2: [10], 3: 10, 4: 20}, 2: {1: [10, 20, 30], 2: [20], 3: 20, 4: 10}}
NATIVE = {(2, 1): 20}
LIMITS = {10: "100M", 20: "100M", 30: "100M"}
EDGES = [PortId(dpid, port_no) for dpid, ports in PORTS.items() for port_no in ports]
VNS = [
    (PortId(dpid, port_no), vid)
    for dpid, ports in PORTS.items()
    for port_no, vids in ports.items()
    for vid in (vids if isinstance(vids, list) else [vids])
]


def build(learned):
    net = Fabric(fabric(PORTS, limits=LIMITS, native=NATIVE), [((1, 9), (2, 9))])
    net.start()
    if learned:
        for port, vid in VNS:
            net.learn(mac_of(port, vid), port, vid)
        for source, vid in VNS:  # and all pairs have talked
            for target, other in VNS:
                if other == vid and source != target:
                    frame = Frame(mac_of(target, vid), mac_of(source, vid), net.tag(source, vid))
                    while net.send(frame, source).reports:
                        pass
    return net


NETS = {False: build(False), True: build(True)}

macs = st.sampled_from(
    [
        *(mac_of(port, vid) for port, vid in VNS),
        BROADCAST,
        0x0100_5E00_0001,
        0x0200_0000_0099,
        0x3333_FF00_0001,
        0x3333_0000_0001,
        0x0180_C200_0000,
        0x0180_C200_000E,
        0x0180_C200_0010,
    ]
)
frames = st.builds(
    Frame,
    eth_dst=macs,
    eth_src=macs,
    vlan_vid=st.sampled_from([None, 0, 10, 20, 30, 31, 4094]),
    eth_type=st.sampled_from([0x0800, 0x0806, 0x86DD, ETH_TYPE_LLDP, 0x8808]),
)


def asks(frame):
    """Whether a frame asks for a neighbour, by ARP or by IPv6's Neighbor Discovery."""
    return frame.eth_type == 0x0806 or (frame.eth_type == 0x86DD and frame.eth_dst >> 24 == 0x3333FF)


def members(vid):
    return {port for port, other in VNS if other == vid}


def vlan_of(port, frame):
    """The VLAN that a frame from a host is in, or None where it must not get in."""
    vids = PORTS[port.dpid][port.port_no]
    if isinstance(vids, int):
        return vids if not frame.vlan_vid else None  # 0: a priority and no VLAN
    return frame.vlan_vid if frame.vlan_vid in vids else None if frame.vlan_vid else NATIVE.get(port)


@pytest.mark.parametrize("learned", [False, True])
@given(frames, st.sampled_from(EDGES))
@settings(max_examples=300)
def test_isolation(learned, frame, port):
    delivery = NETS[learned].send(frame, port, report=False)
    got = [out for out, _, _ in delivery.at]
    assert len(set(got)) == len(got)  # one copy each
    vid = vlan_of(port, frame)
    link_local = frame.eth_dst & ~0xF == 0x0180_C200_0000
    if vid is None or frame.eth_type == ETH_TYPE_LLDP or link_local or frame.eth_src & GROUP_BIT:
        assert (got, delivery.reports) == ([], 0)
        return
    others = members(vid) - {port}
    assert set(got) <= others
    homes = [home for home, other in VNS if other == vid and mac_of(home, vid) == frame.eth_dst]
    if learned and homes:
        assert got == [home for home in homes if home != port]
    else:
        assert set(got) == others
    for out, copy, queue in delivery.at:
        untagged = isinstance(PORTS[out.dpid][out.port_no], int) or NATIVE.get(out) == vid
        assert copy == frame._replace(vlan_vid=None if untagged else vid)
        assert queue == vid
    # The sending VN's limit holds for whatever gets in, then a known pair's or that of floods; reports have one too.
    central = NETS[learned].central
    row = central.vns.row_of(vid, *port)
    mine = central.switches[port.dpid].vn_meters[row]
    names = {(port.dpid, meter_id): name for name, meter_id in mine._asdict().items()}
    flooded = [] if learned and homes else ["discovery" if asks(frame) else "flood"]
    paired = ["pair"] if learned and homes and homes != [port] else []
    passed = [names.get(meter, "pair") for meter in delivery.meters]
    reported = ["report"] if delivery.reports else []
    assert passed == ["send", *paired, *flooded, *reported]
    own = learned and frame.eth_src == mac_of(port, vid)
    assert delivery.reports == (0 if own or (homes == [port] and learned) else 1)


@given(frames, st.sampled_from([PortId(1, 8), PortId(2, 8), PortId(1, 77)]))
def test_ports_that_lead_nowhere_let_nothing_in(frame, port):
    delivery = NETS[True].send(frame, port, report=False)
    assert delivery.at == []
    assert delivery.reports == (1 if frame.eth_type == ETH_TYPE_LLDP else 0)  # links are found by LLDP


@given(frames)
def test_what_another_switch_admitted_is_not_limited_again(frame):
    trace = NETS[True].switches[2].run(frame, 9)
    assert trace.meters == []
    if frame.vlan_vid not in LIMITS:
        assert trace.outputs == []
    assert all(out != 9 for out, _, _ in trace.outputs)


def test_all_entries_are_owned_and_in_their_table():
    for switch in NETS[True].switches.values():
        for flow in switch.flows.values():
            assert isinstance(flow, Flow)
            assert flow.cookie & OWN_COOKIE_MASK == OWN_COOKIE
            assert flow.cookie & 0xFF == flow.table_id
            assert flow.table_id in list(Table)
            assert flow.meter_id is None or flow.table_id in (Table.SEND_LIMIT, Table.RATE_CONTROL, Table.PACKET_IN)
            assert flow.goto_table is None or flow.goto_table > flow.table_id


def test_queues_are_not_set_on_links():
    for switch in NETS[True].switches.values():
        for _, frame, queue in switch.run(Frame(BROADCAST, 0x0200_0000_0001, 10), 1).outputs[:1]:
            assert frame.vlan_vid == 10
            assert queue is None  # the link's copy goes first


@pytest.mark.parametrize(("mode", "queue"), [("per-vlan", 10), ("single", None)])
def test_entries_name_the_queue_of_a_vlan_where_there_is_one(mode, queue):
    net = Fabric(fabric({1: {1: [10], 2: [10]}}, limits={10: "100M"}, queues={"mode": mode}))
    net.start()
    ends = [PortId(1, 1), PortId(1, 2)]
    for port in ends:
        net.learn(mac_of(port, 10), port, 10)
    sent = net.send(Frame(mac_of(ends[1], 10), mac_of(ends[0], 10), 10), ends[0])
    assert [(port, number) for port, _, number in sent.at] == [(ends[1], queue)]
    flood = net.send(Frame(BROADCAST, mac_of(ends[0], 10), 10), ends[0])
    assert [(port, number) for port, _, number in flood.at] == [(ends[1], queue)]
