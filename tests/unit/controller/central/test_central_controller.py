"""The central controller: order of messages, pairs and their meters, limits and algorithms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.configs import fabric, star
from support.fabrics import mac_of
from support.host_traffic import (
    EDGES,
    consistent,
    contents,
    entry_keys,
    rate_control_keys,
    restarted,
    started,
    talk,
    told,
)
from support.switches import Frame

from controller.capability.meter_monitor import NOT_KNOWN
from controller.central.controller import CentralController
from controller.errors import InvalidValueError
from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.forwarding.pairs import Host
from controller.forwarding.pipeline import MetadataFlag, Table
from controller.openflow.constants import MeterModCommand
from controller.switch.switch_record import MeterSetting


def age(net, number=0):
    """Let the entry of a pair at switch 1 age, and the controller hear of it."""
    net.central.on_flow_removed(1, net.switches[1].age(rate_control_keys(net.switches[1])[number]), net.now_s)


# -- pairs and their meters


def test_a_pair_gets_one_meter_at_the_lower_of_its_limits():
    net = started(star(4, vlans={10: {"send_limit": "80M", "receive_limit": "50M"}}))
    frame = talk(net, (1, 1), (1, 2))
    delivery = net.send(frame, PortId(1, 1))
    send, pair = (net.switches[1].meters[meter_id].setting for _, meter_id in delivery.meters)
    assert (send.rate_kbps, pair.rate_kbps) == (80_000, 50_000)
    assert pair.burst_kbits == 15_000
    assert [(port, queue) for port, _, queue in delivery.at] == [(PortId(1, 2), 10)]


def test_what_meters_are_set_to_is_known_of_those_of_pairs():
    net = started()
    standing = np.array(sorted(net.switches[1].meters), dtype=np.int64)
    rate_kbps, burst_kbits = net.central.fabric.meter_settings(1, standing)
    assert (rate_kbps == NOT_KNOWN).all()
    assert (burst_kbits == NOT_KNOWN).all()
    talk(net, (1, 1), (1, 2))
    (meter_id,) = net.central.state.entries.meter_id.tolist()
    asked = np.array([int(standing[-1]), meter_id, meter_id + 1], dtype=np.int64)
    rate_kbps, burst_kbits = net.central.fabric.meter_settings(1, asked)
    enforcement = net.central.state.enforcement
    assert rate_kbps.tolist() == [NOT_KNOWN, int(enforcement.rate_kbps[0]), NOT_KNOWN]
    assert burst_kbits.tolist() == [NOT_KNOWN, int(enforcement.burst_kbits[0]), NOT_KNOWN]


def test_what_an_interval_has_summed_up_is_what_is_measured():
    net = started()
    talk(net, (1, 1), (1, 2))
    fabric = net.central.fabric
    net.central.interval({}, {}, net.now_s, {})
    fabric.state = fabric.state._replace(measured=fabric.state.measured._replace(offered_bps=np.array([5e6])))
    (receiver,) = fabric.state.entries.receiver.tolist()
    of_vns = fabric.receiver_loads_bps
    assert (of_vns[0][receiver], of_vns[0].sum()) == (5e6, 5e6)
    net.central.interval({}, {}, net.now_s + 0.055, {})
    assert fabric.receiver_loads_bps is not of_vns
    np.testing.assert_array_equal(fabric.receiver_loads_bps, of_vns)


def test_the_order_of_an_update():
    """Flow deletes, meters, flows that refer to them, later tables first, meter deletes (the switch is strict)."""
    net = started()
    talk(net, (1, 1), (1, 2))
    age(net)
    for port in (1, 3):
        net.learn(mac_of(PortId(1, port), 10), PortId(1, port), 10)
    frame = Frame(mac_of(PortId(1, 3), 10), mac_of(PortId(1, 1), 10), 10)
    net.central.on_packet_in(1, net.switches[1].run(frame, 1).reports[-1], net.now_s)
    update = net.central.drain_updates()[1]
    assert update.meter_mods()[0].tolist() == [MeterModCommand.ADD]
    tables = [flow.table_id for flow in update.flow_adds]
    assert tables == sorted(tables, reverse=True)
    assert len(update.encode(1)) > 0
    net.switches[1].apply(update)


def test_a_meter_that_goes_and_one_that_comes_in_one_update():
    """The id of a meter to be deleted is not given out before the delete has been sent."""
    net = started()
    talk(net, (1, 1), (1, 2))
    net.learn(mac_of(PortId(1, 3), 10), PortId(1, 3), 10)
    age(net)
    net.send(Frame(mac_of(PortId(1, 3), 10), mac_of(PortId(1, 1), 10), 10), PortId(1, 1))
    assert len(net.central.state.entries) == 1
    consistent(net)
    # The id is free again afterwards.
    talk(net, (1, 3), (1, 1))
    assert sorted(net.central.state.entries.meter_id.tolist()) == [33, 34]  # behind the four of each VN


def test_a_pair_gives_its_meter_back_when_none_of_its_hosts_is_sent_to():
    net = started()
    net.learn(0x02_0000_0000_99, PortId(1, 2), 10)
    before = len(net.switches[1].meters)
    frame = talk(net, (1, 1), (1, 2))
    assert len(rate_control_keys(net.switches[1])) == 2
    for left in (1, 0):
        age(net)
        net.push()
        assert len(net.central.state.entries) == left
        assert len(net.switches[1].meters) == before + left
    assert net.send(frame, PortId(1, 1)).reports == 1
    assert len(net.switches[1].meters) == before + 1


def test_a_pair_whose_only_host_has_gone_gives_its_meter_back():
    net = started()
    talk(net, (1, 1), (1, 2))
    net.learn(mac_of(PortId(1, 2), 10), PortId(1, 3), 10)  # it moved
    assert len(net.central.state.entries) == 0
    assert rate_control_keys(net.switches[1]) == []
    assert len(net.switches[1].meters) == 8 * 4
    frame = Frame(mac_of(PortId(1, 2), 10), mac_of(PortId(1, 1), 10), 10)
    while net.send(frame, PortId(1, 1)).reports:
        pass
    assert [key[1].port_no for key in entry_keys(net.central)] == [3]


def test_meters_of_new_pairs_are_adopted():
    config = fabric(EDGES)
    without_queues = {name: replace(switch, ovsdb=None) for name, switch in config.switches.items()}
    net = started(replace(config, switches=without_queues))
    talk(net, (1, 1), (2, 1), 10)
    before = contents(net)
    assert [flow for flow in net.switches[1].flows.values() if flow.table_id == Table.COUNT and flow.meter_id]
    again = restarted(net)
    again.start()
    talk(again, (1, 1), (2, 1), 10)
    assert contents(again) == before


def test_out_of_meters():
    net = started(star(3, limits={10: "100M"}, openflow={"first_meter_id": 100, "last_meter_id": 112}))
    talk(net, (1, 1), (1, 2))
    net.learn(mac_of(PortId(1, 3), 10), PortId(1, 3), 10)
    frame = Frame(mac_of(PortId(1, 3), 10), mac_of(PortId(1, 1), 10), 10)
    for _ in range(3):
        delivery = net.send(frame, PortId(1, 1))
    # It still gets through, under the send limit, and that is told once.
    assert [port for port, _, _ in delivery.at] == [PortId(1, 3)]
    assert delivery.meters == [(1, 100)]
    assert delivery.reports == 0  # the controller is not asked about every frame
    assert len(told(net, EventKind.OUT_OF_METERS)) == 1
    # A meter that comes free is used.
    age(net)
    net.push()
    net.push()
    assert net.send(frame, PortId(1, 1)).meters == [(1, 100), (1, 112)]


def test_floods_without_a_meter_are_told():
    net = started(star(3, limits={10: "100M"}, openflow={"first_meter_id": 100, "last_meter_id": 103}))
    assert told(net, EventKind.OUT_OF_METERS) == ["switch s1: no ids left for 2 meters of floods"]
    assert net.learn(mac_of(PortId(1, 3), 10), PortId(1, 3), 10).meters == [(1, 102)]


def test_more_vns_than_meter_ids_are_refused():
    with pytest.raises(InvalidValueError, match=r"openflow.last_meter_id: 4"):
        CentralController(star(3, openflow={"first_meter_id": 1, "last_meter_id": 4}))


def test_frames_from_nowhere_change_nothing():
    net = started()
    good = net.switches[1].run(Frame(2**48 - 1, 0x020000000001, 10), 1).reports[0]
    for packet in (
        replace(good, in_port=77),
        replace(good, metadata=0),
        replace(good, metadata=MetadataFlag.UNKNOWN_SOURCE | 99),  # of no VLAN of that port
        replace(good, table_id=Table.LEARN),
    ):
        net.central.on_packet_in(1, packet, net.now_s)
        assert net.push() == 0
    assert net.central.network.hosts() == {}


# -- limits and algorithms


def last_event(net):
    return net.central.events.newer_than(0)[-1].text


def test_a_send_limit_is_in_force_at_once():
    net = started()
    row = net.central.vns.row_of(10, 1, 2)
    net.operator.set_vn(row, 1.0, send_limit_bps=123_456_789, receive_limit_bps=1_000_000)
    assert net.push() == 1 + 2 * 4  # what the others may flood to it shrinks with its receive limit
    meters = net.switches[1].meters
    assert meters[net.central.switches[1].vn_meters[row].send].setting == MeterSetting(123_456, 37_037)
    for other in np.flatnonzero(net.central.vns.vlan_vid == 10).tolist():
        mine = net.central.switches[1].vn_meters[other]
        assert sum(meters[i].setting.rate_kbps for i in (mine.flood, mine.discovery)) == 1_000 // 10 // 3
    assert net.central.events.newer_than(0)[-1].kind == EventKind.LIMIT_CHANGED


def test_a_ceiling_is_in_force_at_once_where_the_vlan_borrows():
    net = started()
    row = net.central.vns.row_of(10, 1, 2)
    with pytest.raises(InvalidValueError, match="only max-min"):
        net.operator.set_vn(row, 1.0, send_ceiling_bps=450_000_000)
    net.operator.set_vlan(10, 1.0, algorithm="max-min")
    assert net.push() == 0
    net.operator.set_vn(row, 1.0, send_ceiling_bps=450_000_000)
    assert net.push() == 1
    meter = net.switches[1].meters[net.central.switches[1].vn_meters[row].send]
    assert meter.setting.rate_kbps == 450_000
    net.operator.set_vn(row, 2.0, send_ceiling_bps=None, receive_ceiling_bps=700_000_000)
    assert net.push() == 1
    assert meter.setting.rate_kbps == 400_000
    assert last_event(net).endswith("send ceiling none, receive ceiling 700M")
    # Under another algorithm ceilings are stored, and not used.
    net.operator.set_vlan(10, 3.0, algorithm="fs")
    assert last_event(net) == "VLAN 10: fs; the ceilings of 1 VNs are stored and not used"
    assert net.central.vns.receive_max_bps[row] == 400e6
    net.operator.set_vlan(10, 4.0, algorithm="max-min")
    assert last_event(net) == "VLAN 10: max-min"
    assert net.central.vns.receive_max_bps[row] == 700e6


def test_limits_set_while_a_switch_is_away_are_there_when_it_is_back():
    net = started()
    talk(net, (1, 1), (1, 2))
    row = net.central.vns.row_of(10, 1, 1)
    net.disconnect(1)
    net.operator.set_vn(row, 1.0, send_limit_bps=10_000_000)
    net.central.interval({}, {}, net.now_s + 1)
    assert net.push() == 0
    net.connect(1)
    settings = {i: meter.setting.rate_kbps for i, meter in net.switches[1].meters.items()}
    assert settings == {i: setting.rate_kbps for i, setting in net.central.reconciler.tables(1).meters.items()}
    mine, pair_id = net.central.switches[1].vn_meters[row], net.central.state.entries.meter_id[0]
    send, pair = settings[mine.send], settings[pair_id]  # of one that told nothing, no burst is given on top
    assert (send, pair) == (10_000, pytest.approx(10_000, rel=0.03))


# -- what tenants may cost


@pytest.mark.parametrize(
    ("hosts", "turns", "every_s", "kind"),
    [
        (1, 5, 0.5, None),  # a router's address that moves four times in two seconds
        (1, 12, 3, None),  # a host that moves now and then
        (1, 6, 0.5, EventKind.HOST_TWICE),
        (2, 6, 0.5, EventKind.HOST_TWICE),
        (3, 6, 0.5, EventKind.LOOP_SUSPECTED),
        (40, 6, 0.5, EventKind.LOOP_SUSPECTED),
    ],
)
def test_an_address_at_two_ports_is_told_apart_from_a_loop(hosts, turns, every_s, kind):
    net = started()
    for turn in range(turns + 1):
        for host in range(hosts):
            net.learn(0x0200_0000_0001 + host, PortId(1, 3 + turn % 2), 10)
        net.wait(every_s)
    for one in (EventKind.HOST_TWICE, EventKind.LOOP_SUSPECTED):
        assert len(told(net, one)) == (one == kind), one
    if kind is not None:
        (text,) = told(net, kind)
        assert "s1:3 and" in text
        assert "s1:4 by turns" in text
        assert ("02:00:00:00:00:01" in text) == (kind == EventKind.HOST_TWICE)


def test_hosts_that_move_back_and_forth_are_followed_no_more():
    net = started()
    mac = mac_of(PortId(1, 3), 10)
    for number in range(400):
        net.learn(mac, PortId(1, 3 + number % 2), 10)
    assert net.push() == 0
    assert len(told(net, EventKind.HOST_FLAPPING)) == 1
    where = net.central.network.hosts()[Host(10, mac)]
    other = PortId(1, 4 if net.central.vns.key(where).port_no == 3 else 3)
    net.wait(1)
    net.learn(mac, other, 10)
    assert net.central.network.hosts()[Host(10, mac)] == net.central.vns.row_of(10, *other)


def test_a_vn_that_reports_much_is_not_listened_to_and_others_are():
    net = started(star(4, control={"max_macs_per_vn": 10_000}))
    for number in range(400):
        net.learn(0x0600_0000_0000 + number, PortId(1, 1), 10)
    row = net.central.vns.row_of(10, 1, 1)
    assert 200 <= len(net.central.network.hosts_of_vn(row)) <= 201
    assert net.central.fabric.floods.reports_dropped[row] >= 199
    net.learn(mac_of(PortId(1, 2), 10), PortId(1, 2), 10)
    assert net.central.network.knows(Host(10, mac_of(PortId(1, 2), 10)))
