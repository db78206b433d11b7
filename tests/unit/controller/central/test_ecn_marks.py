"""Congestion marks from end to end: allowed where frames leave, counted and taken off where they arrive."""

import numpy as np
import pytest
from support.configs import fabric
from support.fabrics import mac_of
from support.host_traffic import EDGES, consistent, contents, restarted, talk, told, two_switches
from support.switches import Frame

from controller.capability.capabilities import Ability, ProbeResult
from controller.central.reconfiguration import reconfigure
from controller.config.yaml_document import ConfigError
from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.forwarding.pairs import Host
from controller.forwarding.pipeline import CE, ECT_0, ECT_1, NOT_ECT, Table
from controller.openflow.constants import ETH_TYPES_IP
from controller.switch.meters.counting import UNLIMITED

MARKED = {10: {"algorithm": "hygenicc"}}
HERE, THERE, NEXT = (1, 1), (2, 1), (1, 2)
ARP = 0x0806


def marking(ecn=None, **sections):
    net = two_switches(vlans=MARKED, ecn={"source": "phantom+network", **(ecn or {})}, **sections)
    for pair in ((HERE, THERE), (THERE, HERE), (HERE, NEXT)):
        talk(net, *pair)
    talk(net, HERE, THERE, 20)
    net.settle()
    return net


def frame_of(source, target, vid=10, **fields):
    return Frame(mac_of(PortId(*target), vid), mac_of(PortId(*source), vid), vid, **fields)


def sent(net, frame, port, *, mark=False):
    """Return the frame on the link between the switches (None: it stayed) and at its end; ``mark``: the link does."""
    crossing = [one for no, one, _ in net.switches[port[0]].run(frame, port[1]).outputs if no == 9]
    if not crossing:
        return None, [one for _, one, _ in net.switches[port[0]].run(frame, port[1]).outputs], []
    (on_link,) = crossing
    if mark and on_link.eth_type in ETH_TYPES_IP and on_link.ip_ecn != NOT_ECT:
        on_link = on_link._replace(ip_ecn=CE)
    trace = net.switches[3 - port[0]].run(on_link, 9)
    return on_link, [one for _, one, _ in trace.outputs], trace.meters


def counters(net):
    """Return the meters of pairs' marks, by (sender's port, receiver's port)."""
    measuring, vns = net.central.fabric.measuring, net.central.vns
    rows = zip(measuring.sender.tolist(), measuring.receiver.tolist(), measuring.meter_id.tolist(), strict=True)
    return {(tuple(vns.key(s)[1:]), tuple(vns.key(r)[1:])): meter_id for s, r, meter_id in rows}


def phantoms(net):
    """Return the phantom meters, by VN."""
    ids, vns = net.central.fabric.phantoms.meter_id, net.central.vns
    return {tuple(vns.key(row)): int(ids[row]) for row in np.flatnonzero(ids)}


def own_entries(net, *tables):
    return [flow for switch in net.switches.values() for flow in switch.flows.values() if flow.table_id in tables]


@pytest.mark.parametrize(
    ("options", "ecn", "on_link", "unmarked", "marked"),
    [
        ({}, NOT_ECT, ECT_1, NOT_ECT, NOT_ECT),
        ({}, ECT_0, ECT_0, ECT_0, NOT_ECT),
        ({}, ECT_1, ECT_1, NOT_ECT, NOT_ECT),  # ECT(1) of guests alone is lost: it looks like the controller's
        ({"expose_to_hosts": True}, NOT_ECT, ECT_1, NOT_ECT, CE),
        ({"expose_to_hosts": True}, ECT_0, ECT_0, ECT_0, CE),
        ({"codepoint": 2}, NOT_ECT, ECT_0, ECT_0, NOT_ECT),
        ({"codepoint": 2}, ECT_0, ECT_0, ECT_0, NOT_ECT),
        ({"codepoint": 2}, ECT_1, ECT_1, ECT_1, NOT_ECT),
    ],
)
def test_frames_may_be_marked_on_the_way_and_marks_are_counted_by_pair(options, ecn, on_link, unmarked, marked):
    net = marking(options)
    assert counters(net).keys() == {(HERE, THERE), (THERE, HERE)}
    for source, target in ((HERE, THERE), (THERE, HERE)):
        for eth_type in ETH_TYPES_IP:
            frame = frame_of(source, target, eth_type=eth_type, ip_ecn=ecn)
            way, (end,), meters = sent(net, frame, source)
            assert (way.ip_ecn, end.ip_ecn) == (on_link, unmarked)
            assert counters(net)[source, target] not in meters
            way, (end,), meters = sent(net, frame, source, mark=True)
            assert (way.ip_ecn, end.ip_ecn) == (CE, marked)
            assert meters.count(counters(net)[source, target]) == 1
    consistent(net)


def test_what_is_no_ip_or_of_another_vlan_or_stays_on_its_switch_is_never_marked():
    net = marking()
    way, _, _ = sent(net, frame_of(HERE, THERE, eth_type=ARP), HERE)
    assert way.ip_ecn == NOT_ECT
    way, (end,), _ = sent(net, frame_of(HERE, THERE, 20), HERE, mark=True)
    assert way.ip_ecn == end.ip_ecn == NOT_ECT
    for ecn in (NOT_ECT, ECT_0, ECT_1, CE):
        way, (end,), _ = sent(net, frame_of(HERE, NEXT, ip_ecn=ecn), HERE)
        assert way is None
        assert end.ip_ecn == ecn
    flood = net.send(Frame(2**48 - 1, mac_of(PortId(*HERE), 10), 10), PortId(*HERE))
    assert {frame.ip_ecn for _, frame, _ in flood.at} == {NOT_ECT}


def test_a_mark_of_a_pair_that_is_not_known_is_taken_off_all_the_same():
    net = marking()
    frame = frame_of((2, 1), HERE)._replace(eth_src=0x0200_0000_7777, ip_ecn=CE)
    (end,) = [one for no, one, _ in net.switches[1].run(frame, 9).outputs if no == 1]
    assert end.ip_ecn == NOT_ECT


def test_the_counters_say_what_came_marked():
    net = marking()
    central, now_s = net.central, net.now_s
    row = list(zip(central.state.entries.sender, central.state.entries.receiver, strict=True)).index(
        (central.vns.row_of(10, *HERE), central.vns.row_of(10, *THERE))
    )
    meter = net.switches[2].meters[counters(net)[HERE, THERE]]
    assert meter.setting == UNLIMITED
    for _ in range(3):
        now_s += 0.055
        meter.in_bits += 5_500_000
        stats = {dpid: switch.meter_stats(now_s) for dpid, switch in net.switches.items()}
        central.interval(stats, dict.fromkeys(stats, now_s), now_s)
    (marks,) = [one.view.marks for one in central.state.allocators.decisions if one.view.marks]
    assert marks.marked_bps[row] == pytest.approx(1e8)
    others = np.delete(marks.marked_bps, row)
    assert np.isnan(others).sum() == 2  # of the pair on one switch, and of VLAN 20
    assert np.nansum(others) == 0
    stats = {1: net.switches[1].meter_stats(now_s + 0.055)}  # the receiver's switch is silent
    central.interval(stats, dict.fromkeys(stats, now_s + 0.055), now_s + 0.055)
    (marks,) = [one.view.marks for one in central.state.allocators.decisions if one.view.marks]
    assert np.isnan(marks.marked_bps[row])


def test_phantom_meters_alone_change_no_frame():
    net = two_switches(vlans=MARKED)
    talk(net, HERE, THERE)
    assert not counters(net)
    assert {flow.priority for flow in own_entries(net, Table.MARKS, Table.COUNT)} == {0}
    way, (end,), _ = sent(net, frame_of(HERE, THERE), HERE)
    assert way.ip_ecn == end.ip_ecn == NOT_ECT


def test_a_switch_that_cannot_clear_marks_leaves_its_vlans_to_phantom_meters():
    net = two_switches(vlans=MARKED, ecn={"source": "phantom+network"})
    net.central.switches[2].capabilities.ecn = Ability(ProbeResult.FAILS, "refused")
    for pair in ((HERE, THERE), (HERE, NEXT)):
        talk(net, *pair)
    net.settle()
    assert not counters(net)
    said = "VLAN 10: no marks on the way, since s2 cannot count and clear them: refused"
    assert told(net, EventKind.ECN_MARKS_UNAVAILABLE) == [said]
    assert net.central.fabric.phantoms
    way, (end,), _ = sent(net, frame_of(HERE, THERE), HERE)
    assert way.ip_ecn == end.ip_ecn == NOT_ECT
    consistent(net)


def test_another_policy_takes_all_away_and_gives_it_again():
    net = marking()
    assert len(own_entries(net, Table.COUNT)) == 4
    assert phantoms(net).keys() == {(10, *HERE), (10, *THERE), (10, *NEXT)}
    net.operator.set_vlan(10, net.now_s, algorithm="fp")
    net.settle()
    assert not counters(net)
    assert not phantoms(net)
    assert len(own_entries(net, Table.COUNT)) == len(own_entries(net, Table.MARKS)) == 2
    assert not own_entries(net, Table.PHANTOM)
    way, _, _ = sent(net, frame_of(HERE, THERE), HERE)
    assert way.ip_ecn == NOT_ECT
    consistent(net)
    net.operator.set_vlan(10, net.now_s, algorithm="hygenicc")
    net.settle()
    assert counters(net).keys() == {(HERE, THERE), (THERE, HERE)}
    assert phantoms(net).keys() == {(10, *HERE), (10, *THERE), (10, *NEXT)}
    consistent(net)


def test_a_later_run_takes_over_the_meters_that_stand():
    net = marking()
    kept = [(dpid, meter_id) for (_, (dpid, _)), meter_id in counters(net).items()]
    kept.append((1, phantoms(net)[10, *NEXT]))
    for dpid, meter_id in kept:
        net.switches[dpid].meters[meter_id].in_bits = 8e6
    before = contents(net)
    again = restarted(net)
    again.start()
    assert (counters(again), phantoms(again)) == (counters(net), phantoms(net))
    assert contents(again) == before
    assert {net.switches[dpid].meters[meter_id].in_bits for dpid, meter_id in kept} == {8e6}  # a modify would zero it
    again.wait(60.0)
    for pair in ((HERE, THERE), (THERE, HERE), (HERE, NEXT)):
        talk(again, *pair)
    consistent(again)


def test_a_reload_keeps_them_and_can_switch_them_off():
    net = marking()
    before = counters(net), phantoms(net)
    net.push()
    reconfigure(net.central, net.config, net.now_s).finish(net.central)
    assert net.push() == 0
    assert (counters(net), phantoms(net)) == before
    plain = fabric(EDGES, vlans=MARKED)
    reconfigure(net.central, plain, net.now_s).finish(net.central)
    net.settle()
    assert not counters(net)
    consistent(net)


def test_a_host_that_goes_and_one_that_comes_are_counted_in_step():
    net = marking()
    mac = 0x0200_0000_5555
    net.learn(mac, PortId(*HERE), 10)
    net.settle()
    frame = frame_of(HERE, THERE)._replace(eth_src=mac)
    _, _, meters = sent(net, frame, HERE, mark=True)
    assert counters(net)[HERE, THERE] in meters
    net.central.network.forget_host(Host(10, mac))
    net.settle()
    consistent(net)


def test_entries_do_not_grow_with_the_hosts_of_both_ends():
    """64 hosts at each end: as many entries as hosts, and not as pairs of hosts."""
    net = marking()
    for end in (HERE, THERE):
        for number in range(60):
            net.learn(0x0200_0000_8000 | end[0] << 8 | number, PortId(*end), 10)
    net.settle()
    assert len(own_entries(net, Table.MARKS, Table.COUNT)) < 8 * 130


def test_without_meter_ids_left_it_is_said_and_marks_are_taken_off():
    net = marking(openflow={"first_meter_id": 1, "last_meter_id": 14})
    assert told(net, EventKind.OUT_OF_METERS)
    way, (end,), _ = sent(net, frame_of(THERE, HERE), THERE, mark=True)
    assert (way.ip_ecn, end.ip_ecn) == (CE, NOT_ECT)
    consistent(net)


@pytest.mark.parametrize(
    ("key", "value"), [("source", "ecn"), ("expose_to_hosts", "show"), ("codepoint", 3), ("codepoint", 0)]
)
def test_what_ecn_may_say(key, value):
    with pytest.raises(ConfigError, match=rf"ecn\.{key}"):
        fabric(EDGES, ecn={key: value})


def test_a_reload_changes_what_packets_carry_and_what_hosts_see():
    net = marking()
    other = fabric(EDGES, vlans=MARKED, ecn={"source": "phantom+network", "expose_to_hosts": True, "codepoint": 2})
    net.push()
    reconfigure(net.central, other, net.now_s).finish(net.central)
    net.settle()
    way, (end,), meters = sent(net, frame_of(HERE, THERE), HERE, mark=True)
    assert (way.ip_ecn, end.ip_ecn) == (CE, CE)
    assert counters(net)[HERE, THERE] in meters
    way, _, _ = sent(net, frame_of(HERE, THERE), HERE)
    assert way.ip_ecn == ECT_0
    consistent(net)
