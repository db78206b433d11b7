"""Phantom meters: who has them and what they count. Their coming and going: test_ecn_marks.py."""

import numpy as np
import pytest
from support.configs import fabric, star
from support.fabrics import ControlLoop, Fabric, mac_of
from support.host_traffic import consistent, told
from support.switches import Frame

from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.forwarding.pipeline import Table
from controller.switch.meters.phantom import phantom_settings

M = 1e6
HUB = (1, 4)
MARKED = {"algorithm": "hygenicc"}


def loop_of(config=None, senders=(1, 2), intervals=20):
    net = Fabric(config or star(4, limits={10: "40M", 20: "50M"}, vlans={10: MARKED}))
    net.start()
    loop = ControlLoop(net)
    for port in senders:
        loop.add((1, port), HUB, 10, 30 * M)
        loop.add((1, port), HUB, 20, 30 * M)
    loop.run(intervals)
    return loop


def phantoms(net):
    """Return the phantom meters by VN, as (VLAN, port)."""
    ids, vns = net.central.fabric.phantoms.meter_id, net.central.vns
    return {(int(vns.vlan_vid[row]), int(vns.port_no[row])): int(ids[row]) for row in np.flatnonzero(ids)}


def entries(net, table):
    return [flow for flow in net.switches[1].flows.values() if flow.table_id == table]


def test_receivers_of_a_policy_on_marks_have_a_phantom_meter_and_nobody_else():
    net = loop_of().fabric
    assert list(phantoms(net)) == [(10, 4)]
    (entry,) = entries(net, Table.PHANTOM)
    assert entry.meter_id == phantoms(net)[10, 4]
    assert net.switches[1].meters[entry.meter_id].setting == (39_200, 240)
    consistent(net)


def test_it_counts_what_is_beyond_its_rate_and_holds_nothing_up():
    loop = loop_of(intervals=40)
    row, got_bps, beyond = loop.fabric.central.vns.row_of(10, *HUB), [], []
    for _ in range(40):
        loop.run(1)
        (marks,) = [one.view.marks for one in loop.fabric.central.state.allocators.decisions if one.view.marks]
        got_bps.append(marks.arrived_bps[row])
        beyond.append(marks.beyond_bps[row] > 0)
    assert got_bps == pytest.approx([one[PortId(*HUB), 10] for one in loop.received[-40:]], rel=1e-3)
    assert 0 < sum(beyond) < 40
    assert max(got_bps) > 40 * M


def test_frames_for_an_access_port_pass_the_meter_of_their_own_vlan():
    """The same address in two VLANs, at access ports of one switch; each has its own meter behind the output."""
    ports = {1: [10, 20], 2: 10, 3: 20}
    config = fabric({1: ports}, limits={10: "40M", 20: "50M"}, vlans={10: MARKED, 20: MARKED})
    net = Fabric(config)
    net.start()
    mac = 0x0200_0000_0099
    for port, vid in (((1, 2), 10), ((1, 3), 20)):
        net.learn(mac, PortId(*port), vid)
        net.learn(mac_of(PortId(1, 1), vid), PortId(1, 1), vid)
        net.send(Frame(mac, mac_of(PortId(1, 1), vid), vid), PortId(1, 1))
    net.push()
    for port, vid in ((2, 10), (3, 20)):
        sent = net.send(Frame(mac, mac_of(PortId(1, 1), vid), vid), PortId(1, 1))
        assert [(at.port_no, frame.vlan_vid) for at, frame, _ in sent.at] == [(port, None)]
        passed = {meter for _, meter in sent.meters} & set(phantoms(net).values())
        assert passed == {phantoms(net)[vid, port]}


def test_a_shadow_that_reads_marks_has_them_too():
    loop = loop_of(star(4, limits={10: "40M", 20: "50M"}, vlans={20: {"algorithm": "fs", "shadow": "hygenicc"}}))
    assert list(phantoms(loop.fabric)) == [(20, 4)]


def test_a_new_limit_sets_the_meter_and_its_interval_is_unknown():
    loop = loop_of()
    net = loop.fabric
    row = net.central.vns.row_of(10, *HUB)
    net.operator.set_vn(row, net.now_s, receive_limit_bps=20_000_000)
    net.push()
    (meter_id,) = phantoms(net).values()
    assert net.switches[1].meters[meter_id].setting == (19_600, 120)
    assert np.isnan(net.central.fabric.phantoms.counters.epoch_s[row])
    loop.run(3)
    assert not np.isnan(net.central.fabric.phantoms.counters.epoch_s[row])
    consistent(net)


def test_a_pair_that_aged_takes_the_meter_of_its_receiver_with_it():
    loop = loop_of(senders=(1,))
    net = loop.fabric
    for flow in [f for f in entries(net, Table.RATE_CONTROL) if f.idle_timeout_s and f.match.vlan_vid == 10]:
        key = next(key for key, one in net.switches[1].flows.items() if one is flow)
        net.central.on_flow_removed(1, net.switches[1].age(key), net.now_s)
    net.push()
    assert not phantoms(net)
    consistent(net)


def test_without_meter_ids_left_it_is_said_and_the_pair_goes_on():
    config = star(4, limits={10: "40M"}, vlans={10: MARKED}, openflow={"first_meter_id": 1, "last_meter_id": 17})
    net = Fabric(config)
    net.start()
    loop = ControlLoop(net)
    loop.add((1, 1), HUB, 10, 30 * M)
    loop.run(5)
    assert not phantoms(net)
    assert any("no meter ids left for marks" in text for text in told(net, EventKind.OUT_OF_METERS))
    assert loop.rate(HUB, 10, -3) == pytest.approx(30 * M, rel=0.05)


def test_settings_are_whole_and_let_three_frames_pass():
    rate_bps, burst_bits = phantom_settings(np.array([1e9, 1e4]))
    assert rate_bps.tolist() == [980e6, 9_000.0]
    assert burst_bits.tolist() == [6e6, 37_000.0]
