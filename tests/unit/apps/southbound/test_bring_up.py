"""Switches that come with full tables, or come back: what an earlier run left is taken over."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from support.configs import fabric, star
from support.fabrics import ControlLoop, Fabric
from support.host_traffic import (
    LEFT,
    RIGHT,
    contents,
    entry_keys,
    rate_control_keys,
    restarted,
    started,
    talk,
    talking_fabric,
    two_switches,
)
from support.switches import Frame, meter_config

from controller.central import pair_meters, reconciliation
from controller.central.controller import CentralController
from controller.central.fabric_state import SWITCH_WAIT_S
from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.forwarding import forwarding_state
from controller.forwarding.flow_table import flow_key
from controller.forwarding.pipeline import Table, admit
from controller.metering.enforcement import MIN_BURST_S
from controller.openflow.flows import Flow, UnknownFlow
from controller.openflow.match import Match
from controller.switch.adoption import InstalledPairs, hosts_and_pairs, split_own_flows
from controller.switch.meters import id_pool as meter_ids
from controller.switch.switch_record import MeterSetting


@pytest.fixture
def talking():
    return talking_fabric()


def test_a_restart_over_one_switch_needs_no_message():
    net = started()
    for source in (1, 2, 3):
        talk(net, (1, source), (1, 4))
    before = contents(net)
    again = restarted(net)
    again.up.add(1)
    again.central.switch_connected(1, net.switches[1].flows.values(), net.switches[1].meter_config(), again.now_s)
    assert again.central.drain_updates() == {}
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
    assert max(got[PortId(1, 4), 10] for got in after.received) < (1.02 + MIN_BURST_S / 0.055) * 400e6
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
    again.now_s += SWITCH_WAIT_S
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
        fresh.learn(mac, PortId(1, key.port_no), key.vlan_vid)
    assert set(new.switches[1].flows) == set(fresh.switches[1].flows)
    (gone,) = admit(old.config.switches["s1"].ports[1], 20)
    assert flow_key(gone) not in new.switches[1].flows
    assert new.send(Frame(2**48 - 1, 1, 20), PortId(1, 1)).at == []
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
    updates = [net.central.drain_updates()[1]]
    expected = net.central.reconciler.tables(1)
    standing = meter_config({**expected.meters, 70_000: MeterSetting(5, 5)})
    ours = split_own_flows([*expected.flows.values(), foreign, strange])[0]
    assert sum(net.central.reconciler.audit(1, expected, ours, standing, 2.0)) == 0
    updates += net.central.drain_updates().values()
    assert all(not update.flow_deletes and not update.meter_deletes for update in updates)
    assert 70_000 not in updates[0].meter_id
    up = [event.text for event in net.central.events.newer_than(0) if event.kind == EventKind.SWITCH_UP]
    assert "2 foreign flow entries unchanged" in up[0]


def taken_over(net):
    """All that was taken over, by the names of pairs, and the ids that are in use."""
    central = net.central
    entries, enforcement = central.state.entries, central.state.enforcement
    columns = entries.sender, entries.receiver, entries.meter_id, enforcement.rate_bps, enforcement.burst_bits
    ids = {dpid: bytes(record.meter_ids._state) for dpid, record in central.switches.items()}
    tables = {dpid: central.network.desired.flows_at(dpid) for dpid in net.switches}
    wanted = {dpid: {flow for flow in table.values() if flow.meter_id is not None} for dpid, table in tables.items()}
    return [column.tolist() for column in columns], ids, wanted, central.network.hosts()


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_whichever_switch_comes_first_the_same_is_taken_over(talking, order):
    again = restarted(talking)
    for dpid in order:
        again.connect(dpid)
    assert taken_over(again) == taken_over(talking)


def test_of_several_meters_of_a_pair_the_first_counts(talking):
    """As no controller leaves them: nothing is taken over twice, and no id stays claimed for nobody."""
    again = restarted(talking)
    again.connect(1)
    again.connect(2)
    central = again.central
    record, rows = central.switches[1], [central.vns.row_of(10, *at) for at in ((1, 2), (1, 1))]
    assert None not in rows
    before, meters = len(central.state.entries), [record.meter_ids.allocate() for _ in range(2)]
    pairs = [(rows[0], rows[1], meter_id, 1000, 50) for meter_id in meters]
    found = InstalledPairs(*np.array(pairs).T)
    for _ in central.pairs.adopt(found, again.now_s):
        pass
    assert len(central.state.entries) == before + 1
    assert meters[0] in central.state.entries.meter_id
    assert record.meter_ids.allocate() == meters[1]


# -- piece by piece


@pytest.fixture
def one_by_one(monkeypatch):
    """Every piece is as small as can be."""
    for module in (reconciliation, pair_meters, forwarding_state):
        for name in ("_BATCH_SIZE", "_COMPARE_BATCH", "_REPAIR_BATCH", "_CLAIM_BATCH", "_HOST_BATCH"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, 1)


def comes(net, dpid):
    """Bring a switch up piece by piece; what is due is sent between them."""
    switch = net.switches[dpid]
    net.up.add(dpid)
    for _ in net.central.reconciler.bring_up(
        dpid, *split_own_flows(switch.flows.values()), switch.meter_config(), net.now_s
    ):
        yield
        net.tick()
    net.central.reconciler.record_switch_up(dpid, net.now_s)
    net.push()


def everything(net):
    central = net.central
    wanted = {dpid: dict(central.network.desired.flows_at(dpid)) for dpid in net.switches}
    return contents(net), wanted, entry_keys(central), central.network.hosts()


def holdings(net):
    return [split_own_flows(switch.flows.values())[0] for switch in net.switches.values()]


def test_piece_by_piece_a_restart_changes_nothing(talking, one_by_one):
    before, mods = contents(talking), [switch.meter_mods for switch in talking.switches.values()]
    again = restarted(talking)
    counts = [sum(1 for _ in comes(again, dpid)) for dpid in again.switches]
    told = [len(hosts.key) + len(pairs.key) for hosts, pairs in map(hosts_and_pairs, holdings(again))]
    assert all(count > number > 1 for count, number in zip(counts, told, strict=True))
    again.hello()
    again.settle()
    assert [again.audit(dpid) for dpid in again.switches] == [0, 0]
    assert contents(again) == before
    assert [switch.meter_mods for switch in again.switches.values()] == mods
    assert entry_keys(again.central) == entry_keys(talking.central)


def test_a_switch_is_told_nothing_before_all_it_holds_is_known(talking, one_by_one):
    again, told = restarted(talking), []
    again.switches[1].flows.popitem()
    for _ in comes(again, 1):
        connected = again.central.switches[1].connected
        told.append((connected, 1 in again.central.drain_updates()))
    assert (False, True) not in told
    assert (False, False) in told


@pytest.mark.parametrize("pieces", [0, 1, 2, 5, 8, 11, 13])
def test_a_switch_that_goes_meanwhile_is_brought_up_from_the_beginning_when_it_is_back(talking, one_by_one, pieces):
    before = everything(talking)
    talking.disconnect(1)
    coming = comes(talking, 1)
    for _ in range(pieces):
        next(coming)
    coming.close()
    talking.disconnect(1)
    talking.connect(1)
    talking.wait(1.0)
    talking.settle()
    assert [talking.audit(dpid) for dpid in talking.switches] == [0, 0]
    assert everything(talking) == before


@pytest.mark.parametrize("pieces", range(0, 40, 3))
def test_a_switch_that_goes_meanwhile_leaves_no_meter_claimed_for_a_pair_that_is_not_known(talking, one_by_one, pieces):
    """Neither of its own nor of the switches that had waited for its hosts."""
    again = restarted(talking)
    for _ in comes(again, 2):
        pass
    coming = comes(again, 1)
    for _ in range(pieces):
        next(coming, None)
    coming.close()
    again.disconnect(1)
    entries, vns = again.central.state.entries, again.central.vns
    for dpid, record in again.central.switches.items():
        ids = record.meter_ids
        claimed = {meter_id for meter_id in entries.meter_id[vns.dpid[entries.sender] == dpid].tolist() if meter_id}
        claimed |= {meter_id for mine in record.vn_meters.values() for meter_id in mine if meter_id}
        used = {ids.first + index for index, state in enumerate(ids._state) if state == meter_ids._USED}
        assert used == claimed


def test_what_happens_meanwhile_is_not_lost(talking, one_by_one):
    """Hosts and pairs that are new, and limits that change, while a switch is being brought up."""
    talking.disconnect(1)
    for number, _ in enumerate(comes(talking, 1)):
        if number == 2:
            talking.learn(0xD1, PortId(2, 1), 10)
        if number == 6:
            talking.operator.set_vn(talking.central.vns.row_of(10, 1, 2), talking.now_s, send_limit_bps=7_000_000)
        if number == 10:
            talking.learn(0xD2, PortId(2, 2), 20)
    talking.wait(1.0)
    assert [talking.audit(dpid) for dpid in talking.switches] == [0, 0]
    send_meter = talking.central.switches[1].vn_meters[talking.central.vns.row_of(10, 1, 2)].send
    assert talking.switches[1].meters[send_meter].setting.rate_kbps == 7_000
    learned = {flow.match.eth_dst for flow in talking.switches[1].flows.values()}
    assert {0xD1, 0xD2} <= learned


def comes_and(net, dpid, vid, work, later):
    """Bring a switch up piece by piece; so many pieces after a host there is known, ``work`` is done with its pair."""
    known = 0
    for _ in comes(net, dpid):
        hosts = net.central.network.hosts()
        host = next((host for host, row in hosts.items() if net.central.vns.key(row)[:2] == (vid, dpid)), None)
        known += host is not None
        if known == later + 1:
            work(host)
    assert known > later
    net.hello()
    net.settle()
    net.wait(SWITCH_WAIT_S)
    for each in net.switches:
        net.audit(each)
    assert [net.audit(each) for each in net.switches] == [0, 0]


def talk_to(net, host):
    """Let the frame of a pair come up, before or after the meter for it has been taken over."""
    pair = net.central.network.pair_seen(host, PortId(1, 1))
    if pair is not None:
        net.central.pairs.on_pair_seen(pair, net.now_s)


def age(net, host):
    """Let the entry of a pair age, before or after it has been taken over."""
    flows = net.switches[1].flows
    gone = next(key for key in flows if key.table_id == Table.RATE_CONTROL and key.match[:3] == (1, *host))
    net.central.on_flow_removed(1, net.switches[1].age(gone), net.now_s)


@pytest.mark.parametrize("work", [talk_to, age])
@pytest.mark.parametrize("vid", [10, 20])
@pytest.mark.parametrize("later", range(8))
def test_a_pair_that_talks_or_ages_while_its_receivers_switch_comes_has_one_meter_or_none(
    talking, one_by_one, work, vid, later
):
    """Its sender's switch is there, with a meter for it."""
    again = restarted(talking)
    again.connect(1)
    comes_and(again, 2, vid, partial(work, again), later)
    entries, switch = again.central.state.entries, again.switches[1]
    ids = entries.meter_id[again.central.vns.dpid[entries.sender] == 1].tolist()
    assert sorted(ids) == sorted(switch.flows[key].meter_id for key in rate_control_keys(switch))
    assert len(set(ids)) == len(ids)
    assert set(ids) <= switch.meters.keys()
    assert len(entries) == len(entry_keys(again.central))
    assert work is age or len(entries) == len(entry_keys(talking.central))
