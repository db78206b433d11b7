"""Another configuration for a running controller: only what differs is sent, and the rest goes on as it was."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.configs import fabric, star
from support.fabrics import ControlLoop, Fabric, mac_of
from support.host_traffic import consistent
from support.switches import Frame

from controller.central.reconfiguration import PreparedReconfiguration, reconfigure
from controller.config.config_diff import check_changeable
from controller.errors import InvalidValueError
from controller.fabric.config_model import Endpoint, Tls
from controller.fabric.topology import PortId
from controller.forwarding.forwarding_state import ForwardingState
from controller.switch.port_entries import flows_of_ports

LEFT, RIGHT = PortId(1, 9), PortId(2, 9)
VLANS = {10: "40M", 20: "50M"}
TWO = {1: {1: [10, 20], 2: [10]}, 2: {1: [10, 20], 2: 20}}


def reload(net, config):
    """Give the fabric's controller another configuration; return how many messages that took."""
    made = beforehand(net, config)
    net.push()
    change = reconfigure(net.central, config, net.now_s, made)
    change.finish(net.central)
    net.config = config
    return net.push()


def beforehand(net, config):
    """Do what can be done before the fabric has another configuration."""
    made = PreparedReconfiguration(config, net.central.events)
    for _ in made.build_switch_flows(net.central):
        pass
    return made


def running(config, senders, links=(), intervals=40):
    net = Fabric(config, links)
    net.start()
    loop = ControlLoop(net)
    for source, target, vlan_vid, rate_bps in senders:
        loop.add(source, target, vlan_vid, rate_bps)
    loop.run(intervals)
    return loop


def run_alike(loop, twin, intervals):
    """Run both: receivers get the same, and what the first one's switches hold is what they should."""
    loop.run(intervals)
    twin.run(intervals)
    assert loop.received == twin.received
    consistent(loop.fabric)


BLAST = [((1, port), (1, 4), 10, 30e6) for port in (1, 2, 3)] + [((1, 2), (1, 4), 20, 20e6)]


def settings_of(net):
    return {dpid: {i: meter.setting for i, meter in switch.meters.items()} for dpid, switch in net.switches.items()}


@pytest.mark.parametrize("algorithm", ["fs", "sp", "fp", "fe"])
def test_the_same_configuration_changes_nothing(algorithm):
    config = star(4, limits=VLANS, algorithm=algorithm)
    loop, twin = running(config, BLAST), running(config, BLAST)
    assert reload(loop.fabric, copy.deepcopy(config)) == 0
    run_alike(loop, twin, 30)
    assert loop.mods == twin.mods
    assert settings_of(loop.fabric) == settings_of(twin.fabric)


def test_what_was_made_beforehand_is_not_made_again(monkeypatch):
    config = star(4, limits=VLANS)
    loop = running(config, BLAST)
    made = beforehand(loop.fabric, star(4, limits={**VLANS, 10: "30M"}))
    monkeypatch.setattr(ForwardingState, "put_switch", None)
    reconfigure(loop.fabric.central, made.fabric.config, loop.fabric.now_s, made)


@pytest.mark.parametrize("event", ["a host", "a meter", "a queue", "a fence", "gone"])
def test_what_happens_after_the_beginning_is_known_in_the_end(event):
    config = star(4, limits=VLANS)
    loop = running(config, BLAST[:2])
    net = loop.fabric
    other = star(5, limits=VLANS)
    (record,) = net.central.switches.values()
    row, mine = next(iter(record.vn_meters.items()))
    if event == "a meter":  # that it has in the beginning, and another one in the end
        record.set_vn_meters({row: mine._replace(report=1_000)})
    made = beforehand(net, other)
    record.set_vn_meters({row: mine})
    if event == "a host":
        loop.add((1, 3), (1, 4), 10, 30e6)
        loop.run(20)
    elif event == "a queue":
        made.flow_inputs = {
            dpid: (meters, not queues, numbers) for dpid, (meters, queues, numbers) in made.flow_inputs.items()
        }
    elif event == "a fence":
        net.central.network.fence(PortId(1, 3), True)
    elif event == "gone":
        net.central.switch_disconnected(1, net.now_s)
    net.push()
    reconfigure(net.central, other, net.now_s, made).finish(net.central)
    net.config = other
    net.push()
    if event != "gone":
        consistent(net)
    joined = flows_of_ports(net.central.switches[1].installed, {3})
    assert (not joined) == (event == "a fence")


def test_new_ports_and_vlans_disturb_nobody():
    """Rows of all tables move: a VLAN comes in before the others, a port before and one behind them."""
    ports = {port: [10, 20] for port in (2, 3, 4, 5)}
    senders = [((1, port), (1, 5), 10, 30e6) for port in (2, 3, 4)] + [((1, 3), (1, 5), 20, 20e6)]
    loop, twin = (running(fabric({1: ports}, limits=VLANS), senders) for _ in range(2))
    net = loop.fabric
    before = settings_of(net)[1]
    kept = dict(net.switches[1].flows)
    more = {1: [5, 10, 20], 2: [5, 10, 20], **{port: [5, 10, 20] for port in (3, 4, 5)}, 6: 10}
    assert reload(net, fabric({1: more}, limits={5: "10M", **VLANS})) > 0
    after = settings_of(net)[1]
    floods = {i for mine in net.central.switches[1].vn_meters.values() for i in (mine.flood, mine.discovery)}
    assert {i: after[i] for i in before.keys() - floods} == {i: before[i] for i in before.keys() - floods}
    assert all(after[i].rate_kbps < before[i].rate_kbps for i in before.keys() & floods if after[i] != before[i])
    assert len(after) == len(before) + 4 * (5 + 2 + 1)  # VLAN 5 at five ports, port 1 in both others, port 6
    floods = {key for key in kept if "eth_dst" not in repr(key) or key.priority == 10}
    assert all(net.switches[1].flows[key] == kept[key] for key in kept.keys() - floods)
    run_alike(loop, twin, 30)
    assert loop.mods[-29:] == twin.mods[-29:]
    net.learn(mac_of(PortId(1, 6), 10), PortId(1, 6), 10)
    assert net.send(Frame(mac_of(PortId(1, 5), 10), mac_of(PortId(1, 6), 10), None), PortId(1, 6)).at


def test_what_is_removed_goes_with_its_meters_and_nothing_else():
    config = star(4, limits=VLANS)
    loop, twin = running(config, BLAST), running(config, BLAST)
    net = loop.fabric
    reload(net, star(4, limits={10: "40M"}))
    assert all("20" not in str(key.match.vlan_vid) for key in net.switches[1].flows)
    assert len(net.switches[1].meters) == 4 * 4 + 3
    loop.senders, twin.senders = loop.senders[:3], twin.senders[:3]
    loop.run(30)
    twin.run(30)
    assert [got[PortId(1, 4), 10] for got in loop.received] == [got[PortId(1, 4), 10] for got in twin.received]
    consistent(net)
    reload(net, config)
    consistent(net)


def test_a_limit_of_the_file_is_in_force_at_once():
    loop = running(star(4, limits=VLANS), BLAST)
    net = loop.fabric
    before = settings_of(net)[1]
    reload(net, star(4, limits={**VLANS, 10: "20M"}))
    after = settings_of(net)[1]
    changed = {i for i in before if after[i] != before[i]}
    flood_kbps = 20_000 // 10 // 3 // 2  # what a VN may flood, and ask for its neighbours
    assert {after[i].rate_kbps for i in changed} == {20_000, flood_kbps}
    assert len(changed) == 3 * 4  # what the VLAN's VNs may send, flood and ask; grants follow in the next interval
    loop.run(20)
    assert loop.rate((1, 4), 10, -10) == pytest.approx(20e6, rel=0.03)
    consistent(net)


def test_links_and_paths_stand():
    config = fabric(TWO, limits=VLANS)
    links = [(LEFT, RIGHT)]
    senders = [((1, 1), (2, 1), 10, 60e6), ((1, 2), (2, 1), 10, 60e6), ((2, 2), (1, 1), 20, 70e6)]
    loop, twin = running(config, senders, links), running(config, senders, links)
    assert reload(loop.fabric, copy.deepcopy(config)) == 0
    more = fabric({**TWO, 2: {**TWO[2], 3: 10}}, limits=VLANS)
    reload(loop.fabric, more)
    run_alike(loop, twin, 20)


def test_a_switch_that_is_removed_is_told_of_and_no_path_leads_there():
    net = running(fabric(TWO, limits=VLANS), [((1, 1), (2, 1), 10, 60e6)], [(LEFT, RIGHT)]).fabric
    net.push()
    change = reconfigure(net.central, fabric({1: TWO[1]}, limits=VLANS), net.now_s)
    assert change.removed == {2}
    change.finish(net.central)
    net.push()
    assert not len(net.central.state.entries)
    assert not [key for key, flow in net.switches[1].flows.items() if key.match.in_port == LEFT.port_no]
    assert len(net.switches[1].meters) == 3 * 4


def test_without_enough_meter_ids_everything_is_as_before():
    tight = {"openflow": {"first_meter_id": 1, "last_meter_id": 12}}
    loop, twin = (running(star(4, limits=VLANS, **tight), BLAST) for _ in range(2))
    net = loop.fabric
    net.push()
    with pytest.raises(InvalidValueError, match=r"openflow.last_meter_id: 12 leaves switch s1"):
        reconfigure(net.central, star(5, limits=VLANS, **tight), net.now_s)
    run_alike(loop, twin, 10)


def test_a_change_that_is_undone_has_never_been():
    config = star(4, limits=VLANS, algorithm="fe")
    loop, twin = running(config, BLAST), running(config, BLAST)
    net = loop.fabric
    net.push()
    change = reconfigure(net.central, star(6, limits={5: "1M", **VLANS}), net.now_s)
    change.undo(net.central)
    run_alike(loop, twin, 20)


def test_events_and_what_was_measured_stay():
    loop = running(star(4, limits=VLANS), BLAST)
    central = loop.fabric.central
    events, received = central.events.newer_than(0), central.fabric.received_bps[central.vns.row_of(10, 1, 4)]
    owed = central.fabric.guarantees.entitled_bps.sum()
    reload(loop.fabric, star(6, limits={5: "1M", **VLANS}))
    assert central.events.newer_than(0) == events
    assert central.fabric.received_bps[central.vns.row_of(10, 1, 4)] == received > 0
    assert central.fabric.guarantees.entitled_bps.sum() == owed > 0


def flood(loop, place, vlan_vid, bits):
    """Let a VN flood so much; its meter counts it."""
    central = loop.fabric.central
    meter_id = central.switches[place[0]].vn_meters[central.vns.row_of(vlan_vid, *place)].flood
    loop.fabric.switches[place[0]].meters[meter_id].pass_bits(bits, loop.fabric.now_s)


@pytest.mark.parametrize("change", ["reload", "a limit, all the time"])
def test_what_floods_take_of_a_receive_limit_is_known_all_the_time(change):
    loop = running(star(4, limits=VLANS), BLAST, intervals=1)
    net, (receiver, other) = loop.fabric, ((1, 4), (1, 2))
    for number in range(80):
        if number >= 40 and change != "reload":
            limit_bps = 30_000_000 + number % 2 * 5_000_000
            net.operator.set_vn(net.central.vns.row_of(10, *other), net.now_s, receive_limit_bps=limit_bps)
            net.push()
        elif number == 40:
            reload(net, star(5, limits={5: "1M", **VLANS}))
        flood(loop, (1, 1), 10, 1e6 * loop.interval_s)
        loop.run(1)
        if number >= 40:
            left_bps = net.central.fabric.shared_vns.receive_limit_bps[net.central.vns.row_of(10, *receiver)]
            assert left_bps == pytest.approx(39e6, rel=0.01)


PORTS = st.dictionaries(
    st.integers(1, 4), st.lists(st.sampled_from([10, 20, 30]), min_size=1, max_size=3, unique=True), min_size=1
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    before=PORTS,
    after=st.lists(PORTS, min_size=1, max_size=3),
    talks=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.sampled_from([10, 20, 30])), max_size=8),
)
def test_whatever_changes_switches_come_to_what_they_should_hold(before, after, talks):
    limits = {10: "10M", 20: "20M", 30: "30M"}
    net = Fabric(fabric({1: before}, limits=limits))
    net.start()
    for ports in [*after, before]:
        now = net.config.switches["s1"].ports
        for source, target, vid in talks:
            if source in now and target in now and vid in now[source].vlan_vids and vid in now[target].vlan_vids:
                for end in (source, target):
                    net.learn(mac_of(PortId(1, end), vid), PortId(1, end), vid)
                if source != target:
                    ends = [mac_of(PortId(1, end), vid) for end in (target, source)]
                    net.send(Frame(*ends, net.tag(PortId(1, source), vid)), PortId(1, source))
        reload(net, fabric({1: ports}, limits=limits))
        consistent(net)
        central = net.central
        assert len(np.unique(central.state.entries.meter_id)) == len(central.state.entries)


def test_other_classes_of_queues_let_switches_connect_again():
    """What they were set to names other queues."""
    loop = running(star(2), [], intervals=1)
    change = reconfigure(loop.fabric.central, star(2, queues={"mode": "single"}), 9.0)
    assert change.removed == {1}
    assert not loop.fabric.central.vns.has_queue.any()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"interval_ms": 100}, r"control.interval_ms: 100 can only be changed by a restart \(dets runs with 55\)"),
        ({"openflow_listen": Endpoint("0.0.0.0", 6653)}, r"openflow.listen: '0.0.0.0:6653' can only .* 127.0.0.1:6653"),
        ({"openflow_tls": Tls("a.pem", "a.key")}, r"openflow.certificate: 'a.pem' can only"),
        ({"last_meter_id": 9}, r"openflow.last_meter_id: 9 can only"),
        ({"rest": replace(star(2).rest, requests_per_s=7)}, r"rest.requests_per_s: 7 can only"),
    ],
)
def test_what_only_a_restart_can_change_is_refused(change, said):
    before = star(2)
    with pytest.raises(InvalidValueError, match=said):
        check_changeable(before, replace(before, **change))
    check_changeable(before, star(3, limits=VLANS))
