"""Silent hosts are asked where they are: the questions' bytes, when they are asked, and what the answer brings."""

from __future__ import annotations

import struct
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import fabric, star
from support.fabrics import Fabric, mac_of
from support.switches import Frame, reported

from controller.fabric.topology import PortId
from controller.forwarding.host_probing import (
    MAX_PROBES,
    MAX_SEARCHES,
    MAX_SEARCHES_PER_VN,
    HostProber,
    arp_request,
    neighbor_solicitation,
)
from controller.forwarding.pairs import Host
from controller.forwarding.pipeline import MetadataFlag
from controller.openflow.ethernet import FrameHeader, build_frame

SENDER_MAC, TARGET_MAC = 0x02_00_00_00_00_01, 0x02_00_00_00_00_02
IPV4 = bytes.fromhex("45000020000040004011") + bytes(2) + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + bytes(12)
SOURCE_V6 = bytes.fromhex("fe80000000000000 0000000000000001")
TARGET_V6 = bytes.fromhex("fe80000000000000 0000000000000002")
IPV6 = struct.pack("!IHBB", 6 << 28, 8, 17, 64) + SOURCE_V6 + TARGET_V6 + bytes(8)
AT = PortId(1, 1)


def header(eth_type, vlan_vid=None):
    return FrameHeader(TARGET_MAC, SENDER_MAC, vlan_vid, eth_type)


def test_the_bytes_of_an_arp_request():
    assert arp_request(header(0x0800, 10), IPV4) == bytes.fromhex(
        "020000000002 020000000001 8100 000a 0806"
        "0001 0800 06 04 0001 020000000001 0a000001 000000000000 0a000002" + "00" * 18
    )


def test_the_bytes_of_a_neighbor_solicitation():
    frame = neighbor_solicitation(header(0x86DD), IPV6)
    assert frame == bytes.fromhex(
        "020000000002 020000000001 86dd 60000000 0020 3a ff"
        "fe800000000000000000000000000001 fe800000000000000000000000000002"
        "87 00 7a1b 00000000 fe800000000000000000000000000002 01 01 020000000001"
    )


@pytest.mark.parametrize("ask", [arp_request, neighbor_solicitation])
@pytest.mark.parametrize(
    "payload",
    [b"", IPV4[:19], IPV6[:39], bytes(60), IPV4[:12] + bytes(4) + IPV4[16:], IPV6[:8] + bytes(16) + IPV6[24:]],
)
def test_what_is_not_ip_or_has_no_address_yet_asks_nobody(ask, payload):
    assert ask(header(0), payload) is None


def test_a_host_that_does_not_answer_is_asked_less_and_less_often_and_then_no_more():
    search = HostProber()
    search.probe_host(Host(10, TARGET_MAC), AT, header(0x0800), IPV4, 0.0)
    asked_s = [tenth / 10 for tenth in range(1000) if search.due_probes(lambda host: False, tenth / 10)]
    assert asked_s == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]
    assert len(asked_s) == MAX_PROBES
    search.probe_host(Host(10, TARGET_MAC), AT, header(0x0800), IPV4, 200.0)
    assert len(search.due_probes(lambda host: False, 200.0)) == 1


def test_a_host_that_is_known_is_not_asked_again():
    search = HostProber()
    search.probe_host(Host(10, TARGET_MAC), AT, header(0x0800), IPV4, 0.0)
    search.probe_host(Host(10, TARGET_MAC), AT, header(0x0800), IPV4, 0.0)
    assert len(search.due_probes(lambda host: False, 0.0)) == 1
    assert search.due_probes(lambda host: True, 5.0) == []
    assert search.due_probes(lambda host: False, 9.0) == []


def test_who_looks_for_much_keeps_nobody_from_looking():
    search = HostProber()
    for port_no in range(MAX_SEARCHES // MAX_SEARCHES_PER_VN + 5):
        for mac in range(MAX_SEARCHES_PER_VN + 5):
            search.probe_host(Host(10, port_no << 16 | mac), PortId(1, port_no + 1), header(0x0800), IPV4, 0.0)
    assert len(search.due_probes(lambda host: False, 0.0)) == MAX_SEARCHES
    wanted = Host(10, 0xABCDEF)
    search.probe_host(wanted, PortId(9, 9), header(0x0800), IPV4, 1.0)
    asked = [question.port for question in search.due_probes(lambda host: False, 1.0)]
    assert PortId(9, 9) in asked
    assert len(asked) == MAX_SEARCHES


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 80)), max_size=60))
@settings(max_examples=40)
def test_the_places_are_shared_whoever_comes_first(asking):
    search = HostProber()
    wanted = Counter()
    for number, (port_no, hosts) in enumerate(asking):
        for mac in range(hosts):
            search.probe_host(Host(10, number << 8 | mac), PortId(1, port_no), header(0x0800), IPV4, 0.0)
        wanted[port_no] += hosts
    got = Counter(question.port.port_no for question in search.due_probes(lambda host: False, 0.0))
    assert sum(got.values()) == min(MAX_SEARCHES, sum(min(n, MAX_SEARCHES_PER_VN) for n in wanted.values()))
    held_back = [port_no for port_no in wanted if got[port_no] < min(wanted[port_no], MAX_SEARCHES_PER_VN)]
    assert all(got[port_no] >= max(got.values()) - 1 for port_no in held_back)


def report(net, port, vlan_vid, payload, eth_dst=TARGET_MAC):
    """A frame of IPv4 from an unknown source comes up from a switch."""
    frame = build_frame(FrameHeader(eth_dst, SENDER_MAC, vlan_vid, 0x0800), payload)
    net.central.on_packet_in(port.dpid, reported(port.port_no, vlan_vid, frame, MetadataFlag.UNKNOWN_SOURCE), net.now_s)
    net.push()


@pytest.mark.parametrize(("port", "tag"), [(PortId(1, 1), 10), (PortId(2, 2), None)])
def test_the_question_comes_as_the_senders_own_frames_do(port, tag):
    net = Fabric(fabric({1: {1: [10, 20], 2: [10]}, 2: {1: [10, 20], 2: 20}}), [(PortId(1, 9), PortId(2, 9))])
    net.start()
    report(net, port, tag or 20, IPV4)
    (question,) = net.central.drain_host_probes(net.now_s)
    assert question == (port, arp_request(header(0x0800, tag), IPV4))


def test_the_answer_tells_where_the_host_is():
    net = Fabric(star(4))
    net.start()
    here, there = PortId(1, 1), PortId(1, 2)
    target = mac_of(there, 10)
    report(net, here, 10, IPV4, target)
    assert len(net.central.drain_host_probes(net.now_s)) == 1
    net.send(Frame(SENDER_MAC, target, net.tag(there, 10)), there)
    assert net.central.network.knows(Host(10, target))
    net.wait(3)
    assert net.central.drain_host_probes(net.now_s) == []
    assert net.send(Frame(target, SENDER_MAC, net.tag(here, 10)), here).reports == 1


@pytest.mark.parametrize("eth_dst", [2**48 - 1, 0x3333_0000_0001, SENDER_MAC])
def test_nobody_asks_for_groups_or_for_who_is_known(eth_dst):
    net = Fabric(star(4))
    net.start()
    report(net, PortId(1, 1), 10, IPV4, eth_dst)
    assert net.central.drain_host_probes(net.now_s) == []
