"""What an earlier run left, read back."""

from __future__ import annotations

import numpy as np
from support.configs import star
from support.fabrics import Fabric, mac_of

from controller.fabric.topology import PortId
from controller.forwarding import pipeline
from controller.forwarding.flow_table import FlowTable, flow_key
from controller.forwarding.pairs import Host
from controller.forwarding.pipeline import VnMeters
from controller.openflow.flows import Flow, UnknownFlow
from controller.openflow.match import Match
from controller.openflow.meters import METER_CONFIG
from controller.switch.adoption import DeferredAdoption, adopted_pairs, hosts_and_pairs, split_own_flows, vn_meter_flows
from controller.switch.meters.meter_settings import MeterSettingsTable

OURS = pipeline.known_source(1, 10, 0xAA, 300)


def test_own_entries_are_told_from_others_by_their_cookie():
    foreign = Flow(2, 100, Match(in_port=1), 0xDE74_0000_0000_0002)
    none = Flow(2, 99, Match(in_port=1), 0)
    beyond = UnknownFlow(0, 1, pipeline.OWN_COOKIE, b"")  # ours by its cookie, and not something that we make
    assert split_own_flows([OURS, foreign, none, beyond]) == ({flow_key(OURS): OURS}, 3)


def test_entries_of_sources_are_hosts_and_metered_ones_of_destinations_pairs_and_others_neither() -> None:
    table = FlowTable(
        [
            pipeline.unknown_source(1, 10, report=True),
            pipeline.rate_control(1, 10, 0xAA, None, 300),
            pipeline.forward_within_vn(1, 10, 0xAA),
            pipeline.report_new_pair(10, 0xAA),
            pipeline.forward_to_switch(1, 10, 0xAA),
            pipeline.known_source(3, 11, 0xFF_0000_0001_00, 300),
            pipeline.rate_control(0x1_0000, 4094, 0xAABB_CCDD_EE00, 77, 300),
            *pipeline.limit_floods(5, 12, VnMeters(flood=7, discovery=8)),
        ]
    )
    hosts, pairs = hosts_and_pairs(table)
    told = [[column.tolist() for column in rows[1:]] for rows in (hosts, pairs)]
    assert told == [[[3], [11], [0xFF_0000_0001_00], [0]], [[0x1_0000], [4094], [0xAABB_CCDD_EE00], [77]]]
    assert all(table.contains(rows.key).all() for rows in (hosts, pairs))
    assert sorted(flow.meter_id or 0 for flow in vn_meter_flows(table)) == [7, 8, 8]


def test_a_metered_entry_is_a_pair_when_its_ends_are_known():
    net = Fabric(star(3))
    net.start()
    network, mac = net.central.network, mac_of(PortId(1, 2), 10)
    # Behind port 2 it is within one VN, and there is no port 9.
    _, rows = hosts_and_pairs(FlowTable(pipeline.rate_control(port, 10, mac, 5, 300) for port in (1, 9, 2)))
    assert rows.in_port.tolist() == [1, 2, 9]
    meters = MeterSettingsTable(*np.array([[9, 90, 91], [5, 50, 51]]).T)
    assert [column.tolist() for column in adopted_pairs(rows, network, 1, meters)] == [[]] * 5
    net.learn(mac, PortId(1, 2), 10)
    sender, receiver = (net.central.vns.row_of(10, 1, port) for port in (1, 2))
    found = adopted_pairs(rows, network, 1, meters)
    assert [column.tolist() for column in found] == [[sender], [receiver], [5], [50], [51]]
    assert not len(adopted_pairs(rows, network, 7, meters).sender)  # no such switch


def test_what_is_awaited_is_taken_once_when_its_host_is_known() -> None:
    _, rows = hosts_and_pairs(FlowTable(pipeline.rate_control(1, 10, mac, 5 + mac, 300) for mac in range(1, 6)))
    awaiting = DeferredAdoption(rows, np.empty(0, METER_CONFIG))
    assert awaiting.pop_known(lambda host: host == Host(10, 2)).meter_id.tolist() == [7]
    assert awaiting.entries.mac.tolist() == [1, 3, 4, 5]
    assert awaiting.pop_known(lambda host: host.mac > 3).meter_id.tolist() == [9, 10]
    assert awaiting.pop_known(lambda host: host.mac > 3).meter_id.tolist() == []
    assert awaiting.entries.mac.tolist() == [1, 3]
    assert (
        awaiting.pop_known(lambda host: host.mac != 1, [Host(10, 1), Host(20, 3), Host(10, 9)]).meter_id.tolist() == []
    )
    assert awaiting.pop_known(lambda host: True, [Host(10, 9), Host(10, 3)]).mac.tolist() == [3]
    assert awaiting.entries.mac.tolist() == [1]
