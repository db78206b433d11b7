"""What an earlier run left, read back."""

from __future__ import annotations

import pytest
from support.configs import star
from support.fabrics import Fabric, mac_of

from controller.fabric.topology import PortId
from controller.forwarding import pipeline
from controller.forwarding.desired_flows import flow_key
from controller.forwarding.pairs import Host, Pair
from controller.openflow.flows import Flow, UnknownFlow
from controller.openflow.match import Match
from controller.switch.adoption import adopted_host, adopted_pair, sort_installed

OURS = pipeline.known_source(1, 10, 0xAA, 300)


def test_own_entries_are_told_from_others_by_their_cookie():
    foreign = Flow(2, 100, Match(in_port=1), 0xDE74_0000_0000_0002)
    none = Flow(2, 99, Match(in_port=1), 0)
    beyond = UnknownFlow(0, 1, pipeline.OWN_COOKIE, b"")  # ours by its cookie, and not something that we make
    assert sort_installed([OURS, foreign, none, beyond]) == ({flow_key(OURS): OURS}, 3)


def test_a_learned_address_is_a_host():
    assert adopted_host(OURS) == Host(10, 0xAA)


@pytest.mark.parametrize(
    "flow",
    [
        pipeline.unknown_source(1, 10, report=True),
        pipeline.rate_control(1, 10, 0xAA, 5, 300),
        pipeline.forward_to_switch(1, 10, 0xAA),
    ],
)
def test_other_entries_are_no_hosts(flow):
    assert adopted_host(flow) is None


def test_a_metered_entry_is_a_pair_when_its_ends_are_known():
    net = Fabric(star(3))
    net.start()
    network, mac = net.central.network, mac_of(PortId(1, 2), 10)
    flow = pipeline.rate_control(1, 10, mac, 5, 300)
    assert adopted_pair(flow, network, 1) is None
    net.learn(mac, PortId(1, 2), 10)
    rows = [net.central.vns.row_of(10, 1, port) for port in (1, 2)]
    assert adopted_pair(flow, network, 1) == Pair(*rows)
    assert adopted_pair(flow, network, 7) is None  # no such switch
    assert adopted_pair(pipeline.rate_control(9, 10, mac, 5, 300), network, 1) is None  # no such port
    assert adopted_pair(pipeline.rate_control(2, 10, mac, 5, 300), network, 1) is None  # within one VN
    assert adopted_pair(pipeline.discover_pair(10, mac), network, 1) is None
    assert adopted_pair(pipeline.within_vn(1, 10, mac), network, 1) is None
