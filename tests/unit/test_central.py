"""The central controller: order of messages, adoption after a restart, audits, limits, meters that run out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.configs import fabric, star
from support.fabrics import ControlLoop, Fabric, mac_of
from support.switches import Frame, meter_config

from controller import reconciliation
from controller.adoption import sort_installed
from controller.central import CentralController
from controller.config import parse_config
from controller.enforcement import MIN_BURST_S
from controller.errors import InvalidValueError
from controller.events import EventKind
from controller.fabric_state import AWAITED_S
from controller.forwarding.pipeline import Table, admit
from controller.forwarding.topology import Port
from controller.openflow.constants import COUNTER_UNAVAILABLE, MeterModCommand
from controller.openflow.flows import Flow, UnknownFlow
from controller.openflow.match import Match
from controller.openflow.messages import PacketIn
from controller.switch_record import MeterSetting
from controller.tables import flow_key

LEFT, RIGHT = Port(1, 9), Port(2, 9)


def talk(net: Fabric, source, target, vlan_vid=10):
    """Two hosts say hello, and the first sends to the second until nothing is reported any more."""
    for end in (source, target):
        net.learn(mac_of(Port(*end), vlan_vid), Port(*end), vlan_vid)
    frame = Frame(mac_of(Port(*target), vlan_vid), mac_of(Port(*source), vlan_vid), net.tag(Port(*source), vlan_vid))
    while net.send(frame, Port(*source)).reports:
        pass
    return frame


def entry_keys(central):
    entries = central.state.entries
    return {(central.vns.key(s), central.vns.key(r)) for s, r in zip(entries.sender, entries.receiver, strict=True)}


def rate_control_keys(switch, port_no=None):
    return [
        key
        for key, flow in switch.flows.items()
        if flow.table_id == Table.RATE_CONTROL and flow.meter_id and port_no in (None, flow.match.in_port)
    ]


def started(config=None, links=()):
    net = Fabric(config or star(4), links)
    net.start()
    return net


def two_switches():
    return started(fabric({1: {1: [10, 20], 2: [10]}, 2: {1: [10, 20], 2: 20}}), [(LEFT, RIGHT)])


# -- pairs and their meters


def test_a_pair_gets_one_meter_at_the_lower_of_its_limits():
    net = started(star(4, vlans={10: {"send_limit": "80M", "receive_limit": "50M"}}))
    frame = talk(net, (1, 1), (1, 2))
    delivery = net.send(frame, Port(1, 1))
    send, pair = (net.switches[1].meters[meter_id].setting for _, meter_id in delivery.meters)
    assert (send.rate_kbps, pair.rate_kbps) == (80_000, 50_000)
    assert pair.burst_kbits == 15_000
    assert [(port, queue) for port, _, queue in delivery.at] == [(Port(1, 2), 10)]


def test_the_order_of_an_update():
    """Flow deletes, meters, flows that refer to them, later tables first, meter deletes (the switch is strict)."""
    net = started()
    talk(net, (1, 1), (1, 2))
    net.central.entry_removed(1, net.switches[1].age(rate_control_keys(net.switches[1])[0]), net.now_s)
    for port in (1, 3):
        net.learn(mac_of(Port(1, port), 10), Port(1, port), 10)
    frame = Frame(mac_of(Port(1, 3), 10), mac_of(Port(1, 1), 10), 10)
    net.central.frame_reported(1, net.switches[1].run(frame, 1).reports[-1], net.now_s)
    update = net.central.take_updates()[1]
    assert update.meter_command == [MeterModCommand.ADD]
    tables = [flow.table_id for flow in update.flow_adds]
    assert tables == sorted(tables, reverse=True)
    assert len(update.encode(1)) > 0
    net.switches[1].apply(update)


def test_a_meter_that_goes_and_one_that_comes_in_one_update():
    """The id of a meter to be deleted is not given out before the delete has been sent."""
    net = started()
    talk(net, (1, 1), (1, 2))
    net.learn(mac_of(Port(1, 3), 10), Port(1, 3), 10)
    key = rate_control_keys(net.switches[1])[0]
    net.central.entry_removed(1, net.switches[1].age(key), net.now_s)
    net.send(Frame(mac_of(Port(1, 3), 10), mac_of(Port(1, 1), 10), 10), Port(1, 1))
    assert len(net.central.state.entries) == 1
    (meter_id,) = net.central.state.entries.meter_id.tolist()
    assert net.switches[1].meters.keys() == net.central.tables(1).meters.keys()
    assert meter_id in net.switches[1].meters
    assert net.audit(1) == 0
    # The id is free again afterwards.
    talk(net, (1, 3), (1, 1))
    assert sorted(net.central.state.entries.meter_id.tolist()) == [9, 10]


def test_an_aged_pair_gives_its_meter_back():
    net = started()
    frame = talk(net, (1, 1), (1, 2))
    before = len(net.switches[1].meters)
    net.central.entry_removed(1, net.switches[1].age(rate_control_keys(net.switches[1])[0]), net.now_s)
    net.push()
    assert len(net.switches[1].meters) == before - 1
    assert len(net.central.state.entries) == 0
    assert net.send(frame, Port(1, 1)).reports == 1
    assert len(net.switches[1].meters) == before


def test_a_pair_of_which_one_host_is_still_sent_to_keeps_its_meter():
    net = started()
    net.learn(0x02_0000_0000_99, Port(1, 2), 10)
    talk(net, (1, 1), (1, 2))
    keys = rate_control_keys(net.switches[1])
    assert len(keys) == 2
    net.central.entry_removed(1, net.switches[1].age(keys[0]), net.now_s)
    net.push()
    assert len(net.central.state.entries) == 1
    net.central.entry_removed(1, net.switches[1].age(keys[1]), net.now_s)
    net.push()
    assert len(net.central.state.entries) == 0


def test_a_pair_whose_only_host_has_gone_gives_its_meter_back():
    net = started()
    talk(net, (1, 1), (1, 2))
    net.learn(mac_of(Port(1, 2), 10), Port(1, 3), 10)  # it moved
    assert len(net.central.state.entries) == 0
    assert rate_control_keys(net.switches[1]) == []
    assert len(net.switches[1].meters) == 8
    frame = Frame(mac_of(Port(1, 2), 10), mac_of(Port(1, 1), 10), 10)
    while net.send(frame, Port(1, 1)).reports:
        pass
    assert [key[1].port_no for key in entry_keys(net.central)] == [3]


def test_out_of_meters():
    net = started(star(3, limits={10: "100M"}, openflow={"first_meter_id": 100, "last_meter_id": 103}))
    talk(net, (1, 1), (1, 2))
    net.learn(mac_of(Port(1, 3), 10), Port(1, 3), 10)
    frame = Frame(mac_of(Port(1, 3), 10), mac_of(Port(1, 1), 10), 10)
    for _ in range(3):
        delivery = net.send(frame, Port(1, 1))
    # It still gets through, under the send limit, and that is told once.
    assert [port for port, _, _ in delivery.at] == [Port(1, 3)]
    assert delivery.meters == [(1, 100)]
    assert delivery.reports == 0  # the controller is not asked about every frame
    events = [event.kind for event in net.central.events.after(0)]
    assert events.count(EventKind.OUT_OF_METERS) == 1
    # A meter that comes free is used.
    net.central.entry_removed(1, net.switches[1].age(rate_control_keys(net.switches[1])[0]), net.now_s)
    net.push()
    net.push()
    assert net.send(frame, Port(1, 1)).meters == [(1, 100), (1, 103)]


def test_more_vns_than_meter_ids_are_refused():
    with pytest.raises(InvalidValueError, match=r"openflow.last_meter_id: 4"):
        CentralController(star(3, openflow={"first_meter_id": 1, "last_meter_id": 4}))


def test_frames_from_nowhere_change_nothing():
    net = started()
    good = net.switches[1].run(Frame(2**48 - 1, 0x020000000001, 10), 1).reports[0]
    for packet in (
        replace(good, in_port=77),
        replace(good, data=good.data[:12] + b"\x08\x00" + bytes(46)),  # no tag
        PacketIn(
            1, Table.LEARN, good.cookie, 1, good.data.replace(b"\x00\x0a\x08\x00", b"\x00\x63\x08\x00")
        ),  # VLAN 99
    ):
        net.central.frame_reported(1, packet, net.now_s)
        assert net.push() == 0
    assert net.central.network.hosts() == {}


# -- adoption


@pytest.fixture
def talking():
    net = two_switches()
    for pair in (((1, 1), (2, 1)), ((2, 1), (1, 1)), ((1, 1), (1, 2))):
        talk(net, *pair)
    talk(net, (1, 1), (2, 2), 20)
    return net


def restarted(net: Fabric) -> Fabric:
    """A new controller over the switches as they stand; nothing is connected yet."""
    again = Fabric(net.config)
    again.switches, again.peers, again.now_s = net.switches, net.peers, net.now_s + 5.0
    return again


def contents(net):
    return {
        dpid: (dict(switch.flows), {i: meter.setting for i, meter in switch.meters.items()})
        for dpid, switch in net.switches.items()
    }


def test_a_restart_changes_nothing(talking):
    before, mods = contents(talking), [switch.meter_mods for switch in talking.switches.values()]
    again = restarted(talking)
    again.start()
    for dpid in again.switches:
        assert again.audit(dpid) == 0 or dpid
    again.settle()
    for dpid in again.switches:
        assert again.audit(dpid) == 0
    assert contents(again) == before
    assert [switch.meter_mods for switch in again.switches.values()] == mods
    assert entry_keys(again.central) == entry_keys(talking.central)


def test_a_restart_over_one_switch_needs_no_message():
    net = started()
    for source in (1, 2, 3):
        talk(net, (1, source), (1, 4))
    before = contents(net)
    again = restarted(net)
    again.up.add(1)
    again.central.switch_connected(1, net.switches[1].flows.values(), net.switches[1].meter_config(), again.now_s)
    assert again.central.take_updates() == {}
    assert again.audit(1) == 0
    assert contents(again) == before
    assert len(again.central.state.entries) == 3


def test_a_restart_in_the_midst_of_congestion_lets_no_blast_through():
    """Meters that an allocator had set stay as they are: their receiver is taken for congested."""
    net = started(star(5, algorithm="fp"))
    loop = ControlLoop(net)
    for source in (1, 2, 3):
        loop.add((1, source), (1, 4), 10, 350e6)
    loop.run(60)
    again = restarted(net)
    again.start()
    after = ControlLoop(again)
    after.senders = loop.senders
    after.run(40)
    assert loop.rate((1, 4), 10, -10) == pytest.approx(400e6, rel=0.01)
    # The pause between the two has filled the buckets of those who do not respond: they hold hardly anything.
    assert max(got[Port(1, 4), 10] for got in after.received) < (1.02 + MIN_BURST_S / 0.055) * 400e6
    assert sum(after.mods) == 0


def test_meters_of_an_earlier_run_are_not_taken_for_new_pairs():
    """The receiver's switch is not back yet, so the old pair is not known: its meter's id must wait for it."""
    net = two_switches()
    talk(net, (1, 1), (2, 1))
    again = restarted(net)
    again.connect(1)
    talk(again, (1, 2), (1, 1))
    again.connect(2)
    again.hello()
    again.settle()
    again.audit(1)
    assert len(entry_keys(again.central)) == 2
    assert again.audit(1) == 0


def test_pairs_with_switches_on_their_way_wait_for_them():
    """An audit before all switches are back takes nothing away that one of them may still want."""
    net = two_switches()
    talk(net, (1, 1), (2, 1))
    talk(net, (2, 1), (1, 1))
    before, pairs = contents(net), rate_control_keys(net.switches[1])
    again = restarted(net)
    again.connect(1)
    again.audit(1)
    assert [rate_control_keys(net.switches[1]), net.switches[1].meters.keys()] == [pairs, before[1][1].keys()]
    again.connect(2)
    again.hello()
    again.settle()
    for dpid in again.switches:
        again.audit(dpid)
        assert again.audit(dpid) == 0
    assert contents(again) == before
    assert entry_keys(again.central) == entry_keys(net.central)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_pairs_are_controlled_as_soon_as_their_receivers_switch_is_back(order):
    """Not only after the next audit: what an earlier run granted them may be much less than they may have now."""
    net = two_switches()
    talk(net, (1, 1), (2, 1))
    before = contents(net)
    again = restarted(net)
    for dpid in order:
        again.connect(dpid)
    assert entry_keys(again.central) == entry_keys(net.central)
    again.hello()
    again.settle()
    assert contents(again) == before
    for dpid in again.switches:
        assert again.audit(dpid) == 0


def test_who_may_not_get_in_any_more_is_kept_out_whoever_is_on_the_way():
    old = two_switches()
    talk(old, (1, 1), (2, 1), 20)
    admitted = [key for key in old.switches[1].flows if key.match.vlan_vid == 20 and key.match.in_port == 1]
    assert {key.table_id for key in admitted} >= {Table.CLASSIFY, Table.RATE_CONTROL}
    new = Fabric(fabric({1: {1: [10], 2: [10]}, 2: {1: [10, 20], 2: 20}}), [(LEFT, RIGHT)])
    new.switches, new.now_s = old.switches, 2000.0
    new.connect(1)
    assert new.audit(1) > 0
    left = [key for key in admitted if key in old.switches[1].flows]
    assert {key.table_id for key in left} <= {Table.RATE_CONTROL}
    new.connect(2)
    new.hello()
    new.settle()
    new.audit(1)
    assert not [key for key in admitted if key in old.switches[1].flows]


def test_a_switch_that_does_not_come_is_not_waited_for_for_ever():
    net = two_switches()
    talk(net, (1, 1), (2, 1))
    (key,) = rate_control_keys(net.switches[1])
    meter_id = net.switches[1].flows[key].meter_id
    again = restarted(net)
    again.connect(1)
    again.now_s += AWAITED_S
    assert again.audit(1) > 0
    assert key not in net.switches[1].flows
    assert meter_id not in net.switches[1].meters
    assert again.audit(1) == 0


def test_leftovers_of_another_configuration_are_removed_by_the_audit():
    """A VLAN that a port has no more must not get in, and meters of no use go."""
    old = started(fabric({1: {1: [10, 20], 2: [10, 20], 3: [20]}}))
    talk(old, (1, 1), (1, 2), 20)
    talk(old, (1, 1), (1, 3), 20)
    new = Fabric(fabric({1: {1: [10], 2: [10, 20], 3: [20]}}, openflow={"first_meter_id": 2}))
    new.switches, new.now_s = old.switches, 2000.0
    new.start()
    assert new.audit(1) > 0
    assert new.audit(1) == 0
    fresh = started(new.config)
    hosts = [(host.mac, new.central.vns.key(row)) for host, row in new.central.network.hosts().items()]
    for mac, key in hosts:
        fresh.learn(mac, Port(1, key.port_no), key.vlan_vid)
    assert set(new.switches[1].flows) == set(fresh.switches[1].flows)
    assert flow_key(admit(old.config.switches["s1"].ports[1], 20)) not in new.switches[1].flows
    assert new.send(Frame(2**48 - 1, 1, 20), Port(1, 1)).at == []
    # Ids below the new range belong to somebody else.
    assert min(new.switches[1].meters) == 1


def test_what_belongs_to_others_is_left_alone():
    net = Fabric(star(2))
    foreign = Flow(0, 5000, Match(eth_type=0x0806), 0x1234, goto_table=7)
    strange = UnknownFlow(0, 7, 0x99, b"")
    net.up.add(1)
    theirs = {"flows": [foreign, strange], "meters": meter_config({70_000: MeterSetting(5, 5)})}
    net.config = star(2, openflow={"first_meter_id": 1, "last_meter_id": 60_000})
    net.central = CentralController(net.config)
    net.central.switch_connected(1, theirs["flows"], theirs["meters"], 1.0)
    updates = [net.central.take_updates()[1]]
    expected = net.central.tables(1)
    standing = meter_config({**expected.meters, 70_000: MeterSetting(5, 5)})
    ours = sort_installed([*expected.flows.values(), foreign, strange])[0]
    assert sum(net.central.audit(1, expected, ours, standing, 2.0)) == 0
    updates += net.central.take_updates().values()
    assert all(not update.flow_deletes and not update.meter_deletes for update in updates)
    assert 70_000 not in updates[0].meter_id
    up = [event.text for event in net.central.events.after(0) if event.kind == EventKind.SWITCH_UP]
    assert "2 entries of others left alone" in up[0]


# -- audits


def test_audit_of_tables_in_order_is_silent(talking):
    for dpid in talking.switches:
        assert talking.audit(dpid) == 0
    assert EventKind.TABLES_MENDED not in [event.kind for event in talking.central.events.after(0)]


def test_audit_mends_what_is_missing_altered_and_alien(talking):
    before, switch = contents(talking), talking.switches[1]
    missing, altered = sorted(switch.flows, key=str)[:2]
    pair_flow = rate_control_keys(switch)[0]
    del switch.flows[missing]
    switch.flows[altered] = switch.flows[altered]._replace(
        actions=(), goto_table=None, meter_id=None, cookie=0xDE75 << 48
    )
    switch.flows[pair_flow] = switch.flows[pair_flow]._replace(meter_id=1)
    alien = Flow(0, 9999, Match(in_port=1), 0xDE75 << 48, goto_table=4)
    switch.flows[flow_key(alien)] = alien
    del switch.meters[2]
    switch.meters[1].setting = MeterSetting(1, 1)
    switch.apply(_update_with_meter(5000))
    assert talking.audit(1) == 7
    assert contents(talking) == before
    assert talking.audit(1) == 0


def _update_with_meter(meter_id):
    from controller.switch_record import SwitchUpdate

    update = SwitchUpdate()
    update.put_meters({meter_id: MeterSetting(9, 9)}, [])
    return update


def test_audit_leaves_what_changed_while_the_switch_was_asked(talking):
    central, switch = talking.central, talking.switches[1]
    expected, flows, meters = central.tables(1), dict(switch.flows), switch.meter_config()
    talk(talking, (1, 2), (1, 1))
    central.set_limits(central.vns.row_of(10, 1, 1), 1.0, send_limit_bps=1_000_000)
    talking.push()
    before = contents(talking)
    assert sum(central.audit(1, expected, flows, meters, 1.0)) == 0
    assert central.take_updates() == {}
    assert contents(talking) == before


def test_a_mended_meter_is_measured_rightly():
    """A modify outside of the interval zeroes a meter's counters as well."""
    net = started(star(3))
    loop = ControlLoop(net)
    loop.add((1, 1), (1, 2), 10, 100e6)
    loop.run(10)
    (meter_id,) = net.central.state.entries.meter_id.tolist()
    net.switches[1].meters[meter_id].setting = MeterSetting(50_000, 10_000)
    assert net.audit(1) == 1
    loop.run(2)
    assert net.central.received_bps[net.central.vns.row_of(10, 1, 2)] == pytest.approx(100e6, rel=0.01)
    assert EventKind.COUNTERS_IMPLAUSIBLE not in [event.kind for event in net.central.events.after(0)]


def test_a_switch_that_was_away_is_measured_rightly():
    net = started(star(3))
    loop = ControlLoop(net)
    loop.add((1, 1), (1, 2), 10, 100e6)
    loop.run(5)
    net.disconnect(1)
    row = net.central.vns.row_of(10, 1, 1)
    for limit in (60_000_000, 400_000_000):  # there and back again, unseen by the switch
        net.central.set_limits(row, net.now_s, send_limit_bps=limit)
        loop.run(5)
    net.connect(1)
    loop.run(3)
    assert net.central.received_bps[net.central.vns.row_of(10, 1, 2)] == pytest.approx(100e6, rel=0.01)
    assert EventKind.COUNTERS_IMPLAUSIBLE not in [event.kind for event in net.central.events.after(0)]
    assert EventKind.CONGESTION_BEGAN not in [event.kind for event in net.central.events.after(0)]


def test_a_switch_that_comes_back_empty_is_filled_again(talking):
    before = contents(talking)
    talking.disconnect(1)
    talking.switches[1].flows.clear()
    talking.switches[1].meters.clear()
    talking.connect(1)
    talking.hello()
    talking.settle()
    assert contents(talking) == before
    assert talking.audit(1) == 0


def test_counters_that_a_switch_does_not_keep_are_unknown():
    net = started(star(3))
    talk(net, (1, 1), (1, 2))
    net.central.interval({}, {}, net.now_s)
    for _ in range(3):
        net.now_s += 0.055
        stats = net.switches[1].meter_stats(net.now_s)
        stats["byte_in_count"] = COUNTER_UNAVAILABLE
        net.central.interval({1: stats}, {1: net.now_s}, net.now_s)
    assert net.central.state.measured.silent_intervals.tolist() == [0]


# -- limits and algorithms


def snapshot(central):
    return central.vns, central.policies, central.groups, central.state, len(central.events.after(0))


@pytest.mark.parametrize(
    "limits",
    [
        {"send_limit_bps": 600_000_000},
        {"receive_limit_bps": 500_000_001},
        {"send_limit_bps": 1_000_000, "receive_limit_bps": 10**15},
        {"send_limit_bps": 0},
        {"receive_limit_bps": 0},
        {"receive_limit_bps": -5},
        {"send_ceiling_bps": 1_000},
        {"receive_ceiling_bps": 10**10},
        {"send_limit_bps": 1_000_000, "receive_ceiling_bps": 1_000},
    ],
)
def test_limits_that_do_not_fit_change_nothing(limits):
    net = started()
    before = snapshot(net.central)
    with pytest.raises(InvalidValueError) as caught:
        net.central.set_limits(0, 1.0, **limits)
    assert caught.value.key in limits
    assert snapshot(net.central) == before
    assert net.push() == 0


@pytest.mark.parametrize(
    ("name", "parameters"), [("best", {}), ("fp", {"d": 0.5}), ("fs", {"k": 1}), ("fe", {"k": "x"})]
)
def test_algorithms_that_are_wrong_change_nothing(name, parameters):
    net = started()
    before = snapshot(net.central)
    with pytest.raises(InvalidValueError):
        net.central.set_algorithm(10, name, parameters, 1.0)
    assert snapshot(net.central) == before


def test_a_vlan_that_is_not_there_has_no_algorithm():
    net = started()
    before = snapshot(net.central)
    with pytest.raises(InvalidValueError, match="vlan_vid: 99"):
        net.central.set_algorithm(99, "fs", {}, 1.0)
    assert snapshot(net.central) == before


def test_a_send_limit_is_in_force_at_once():
    net = started()
    row = net.central.vns.row_of(10, 1, 2)
    net.central.set_limits(row, 1.0, send_limit_bps=123_456_789, receive_limit_bps=1_000_000)
    assert net.push() == 1
    meter = net.switches[1].meters[net.central.switches[1].send_meter[row]]
    assert meter.setting == MeterSetting(123_456, 37_037)
    kinds = [event.kind for event in net.central.events.after(0)]
    assert kinds[-1] == EventKind.LIMIT_CHANGED


def test_a_ceiling_is_in_force_at_once_where_the_vlan_borrows():
    net = started()
    row = net.central.vns.row_of(10, 1, 2)
    net.central.set_limits(row, 1.0, send_ceiling_bps=450_000_000)
    assert net.push() == 0  # fp lends nothing
    net.central.set_algorithm(10, "max-min", {}, 1.0)
    assert net.push() == 1
    meter = net.switches[1].meters[net.central.switches[1].send_meter[row]]
    assert meter.setting.rate_kbps == 450_000
    net.central.set_limits(row, 2.0, send_ceiling_bps=None, receive_ceiling_bps=700_000_000)
    assert net.push() == 1
    assert meter.setting.rate_kbps == 400_000
    assert net.central.events.after(0)[-1].text.endswith("send ceiling none, receive ceiling 700000000 bit/s")


def test_limits_set_while_a_switch_is_away_are_there_when_it_is_back():
    net = started()
    talk(net, (1, 1), (1, 2))
    row = net.central.vns.row_of(10, 1, 1)
    net.disconnect(1)
    net.central.set_limits(row, 1.0, send_limit_bps=10_000_000)
    net.central.interval({}, {}, net.now_s + 1)
    assert net.push() == 0
    net.connect(1)
    settings = {i: meter.setting.rate_kbps for i, meter in net.switches[1].meters.items()}
    assert settings == {i: setting.rate_kbps for i, setting in net.central.tables(1).meters.items()}
    send, pair = sorted(settings.values(), reverse=True)[-2:]  # of one that told nothing, no burst is given on top
    assert (send, pair) == (10_000, pytest.approx(10_000, rel=0.03))


def test_names_are_those_people_use():
    config = parse_config(
        "vlans: {10: {send_limit: 1M, receive_limit: 1M}}\n"
        'switches: {edge-a: {dpid: "00000000000000a1", ports: {3: {capacity: 10M, access: 10}}}}\n',
        "f",
    )
    central = CentralController(config)
    assert central.vn_name(0) == "VLAN 10 at edge-a:3"
    assert np.uint64(0xA1) in central.vns.dpid


# -- comparing piece by piece, and only what has changed


def mended(net):
    return [event.text for event in net.central.events.after(0) if event.kind == EventKind.TABLES_MENDED]


def test_an_audit_of_some_entries_mends_those_and_looks_at_no_other(talking):
    switch, central = talking.switches[1], talking.central
    gone, altered, unseen = list(switch.flows)[:3]
    del switch.flows[gone]
    switch.flows[altered] = switch.flows[altered]._replace(idle_timeout_s=77)
    del switch.flows[unseen]
    expected = central.tables(1)
    some = {altered: switch.flows[altered]}
    assert sum(central.audit(1, expected, some, switch.meter_config(), 2.0, [gone, altered])) == 2
    talking.push()
    assert gone in switch.flows
    assert switch.flows[altered].idle_timeout_s != 77
    assert unseen not in switch.flows
    assert talking.audit(1) == 1


def test_between_the_pieces_of_an_audit_anything_may_change(talking, monkeypatch):
    monkeypatch.setattr(reconciliation, "_AT_ONCE", 1)
    switch, central = talking.switches[1], talking.central
    gone = sorted(switch.flows, key=str)[:2]
    flows = {key: flow for key, flow in switch.flows.items() if key not in gone}
    expected, meters = central.tables(1), switch.meter_config()
    for key in gone:
        del switch.flows[key]
    counts = []
    for count in central.audit(1, expected, flows, meters, 2.0):
        counts.append(count)
        if len(counts) == 1:
            talk(talking, (1, 2), (1, 1))
        talking.push()
    assert sum(counts) == 2
    assert len(counts) == len(expected.flows) + len(flows) + 1
    assert max(counts) == 1
    assert mended(talking) == ["switch s1: 2 entries and meters mended"]
    assert switch.flows.keys() > expected.flows.keys()
    assert talking.audit(1) == 0


def test_an_audit_given_up_tells_what_it_has_mended(talking, monkeypatch):
    monkeypatch.setattr(reconciliation, "_AT_ONCE", 1)
    switch, central = talking.switches[1], talking.central
    before = contents(talking)
    for key in sorted(switch.flows, key=str)[:2]:
        del switch.flows[key]
    audit = central.audit(1, central.tables(1), dict(switch.flows), switch.meter_config(), 2.0)
    assert next(count for count in audit if count) == 1
    audit.close()
    assert mended(talking) == ["switch s1: 1 entries and meters mended"]
    assert talking.audit(1) == 1
    assert contents(talking) == before


def test_what_has_changed_since_the_last_comparison_is_remembered(talking):
    record = talking.central.switches[1]
    record.touched = set()
    talking.learn(0xC1, Port(1, 1), 10)
    changed = {key for key, flow in record.installed.items() if 0xC1 in (flow.match.eth_src, flow.match.eth_dst)}
    assert changed
    assert changed <= record.touched
    assert len(record.touched) < len(record.installed)
