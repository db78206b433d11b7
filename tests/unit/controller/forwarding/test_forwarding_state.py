"""Forwarding, by running frames through the produced flow entries: floods, moves, ageing, links that come and go."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.configs import fabric, star
from support.fabrics import Fabric, LoopError, mac_of
from support.host_traffic import nothing_to_mend, told
from support.switches import BROADCAST, Frame

from controller.events import EventKind
from controller.fabric.topology import LINK_TIMEOUT_S, PortId, Topology
from controller.forwarding.pairs import Host
from controller.forwarding.pipeline import Table

EDGE = 1  # every switch has its host behind port 1; port 10 + n leads to switch n


def mesh(edges, switches):
    """A fabric in which port 10 + b of switch a leads to switch b."""
    config = fabric({dpid: {EDGE: [10, 20]} for dpid in switches})
    return Fabric(config, [((a, 10 + b), (b, 10 + a)) for a, b in edges])


def reached(net, dpid, vlan_vid=10):
    delivery = net.send(Frame(BROADCAST, mac_of(PortId(dpid, EDGE), vlan_vid), vlan_vid), PortId(dpid, EDGE))
    return sorted(port.dpid for port, _, _ in delivery.at)


def connected(edges, switches, dpid):
    graph = nx.Graph(list(edges))
    graph.add_nodes_from(switches)
    return sorted(nx.node_connected_component(graph, dpid) - {dpid})


graphs = st.sets(st.tuples(st.integers(1, 6), st.integers(1, 6)).filter(lambda ends: ends[0] < ends[1]), max_size=15)
SWITCHES = range(1, 7)


@given(graphs)
@settings(max_examples=15)
def test_a_flood_reaches_every_host_once(edges):
    net = mesh(edges, SWITCHES)
    net.start()
    for dpid in SWITCHES:
        assert reached(net, dpid) == connected(edges, SWITCHES, dpid)
    for source in SWITCHES:  # and a frame to a known host that one only
        for target in connected(edges, SWITCHES, source):
            frame = Frame(mac_of(PortId(target, EDGE), 10), mac_of(PortId(source, EDGE), 10), 10)
            delivery = net.send(frame, PortId(source, EDGE), report=False)
            assert [(port, queue) for port, _, queue in delivery.at] == [(PortId(target, EDGE), 10)]


@given(graphs, graphs, st.randoms(use_true_random=False))
@settings(max_examples=30, phases=[Phase.explicit, Phase.generate])
def test_no_flood_loops_while_links_come_and_go(before, after, random):
    """Every message of every change is followed by a flood, switches hear of it in any order."""
    net = mesh(before, SWITCHES)
    net.start()
    for dpid in SWITCHES:
        net.learn(mac_of(PortId(dpid, EDGE), 10), PortId(dpid, EDGE), 10)
    changes = [(edge, True) for edge in after - before] + [(edge, False) for edge in before - after]
    random.shuffle(changes)
    for (a, b), up in changes:
        end, other = PortId(a, 10 + b), PortId(b, 10 + a)
        if up:
            net.peers[end], net.peers[other] = other, end
            net.central.on_discovery_frame(end, other, net.now_s)
            net.central.on_discovery_frame(other, end, net.now_s)
        else:
            net.central.port_down(a, end.port_no, net.now_s)  # the link itself still carries frames
        if random.random() < 0.5:
            step_by_step(net, random)
        if random.random() < 0.5:
            net.now_s += 0.055
            net.central.tick(net.now_s)
            step_by_step(net, random)
    net.settle()
    for a, b in before - after:
        net.cut(PortId(a, 10 + b))
    for dpid in SWITCHES:
        assert reached(net, dpid) == connected(after, SWITCHES, dpid)


def step_by_step(net, random):
    """Let the switches do what they are told one after another, and flood from everywhere in between."""
    updates = list(net.central.drain_updates().items())
    random.shuffle(updates)
    for dpid, update in updates:
        net.switches[dpid].apply(update)
        for source in SWITCHES:
            net.send(Frame(BROADCAST, mac_of(PortId(source, EDGE), 10), 10), PortId(source, EDGE), report=False)


def test_the_loop_detector_detects_loops():
    net = mesh({(1, 2), (2, 3), (1, 3)}, (1, 2, 3))
    net.start()
    for switch in net.switches.values():
        for key, flow in list(switch.flows.items()):
            if flow.table_id == Table.FORWARD and flow.match.vlan_vid == 10:
                links = [other for other in (11, 12, 13) if other != 10 + switch.dpid]
                actions = tuple(type(flow.actions[-1])(port) for port in links)
                switch.flows[key] = type(flow)(flow.table_id, flow.priority, flow.match, flow.cookie, actions=actions)
    with pytest.raises(LoopError):
        reached(net, 1)


RING = {(1, 2), (2, 3), (3, 4), (1, 4)}


def ring():
    net = mesh(RING, range(1, 5))
    net.start()
    for dpid in range(1, 5):
        net.learn(mac_of(PortId(dpid, EDGE), 10), PortId(dpid, EDGE), 10)
    return net


def unicast(net, source, target, vlan_vid=10):
    frame = Frame(mac_of(PortId(target, EDGE), vlan_vid), mac_of(PortId(source, EDGE), vlan_vid), vlan_vid)
    while True:
        delivery = net.send(frame, PortId(source, EDGE))
        if not delivery.reports:
            return [port.dpid for port, _, _ in delivery.at]


def test_a_link_that_falls_silent_is_gone_around():
    net = ring()
    assert unicast(net, 1, 2) == [2]
    net.cut(PortId(1, 12))
    assert unicast(net, 1, 2) == []
    net.wait(LINK_TIMEOUT_S + 2)
    net.settle()
    assert unicast(net, 1, 2) == [2]
    assert reached(net, 1) == [2, 3, 4]
    assert told(net, EventKind.LINK_DOWN)


def test_links_that_go_together_have_their_paths_found_once(monkeypatch):
    net = mesh({(a, b) for a in SWITCHES for b in SWITCHES if a < b}, SWITCHES)
    net.start()
    found = []
    find = Topology.paths
    monkeypatch.setattr(Topology, "paths", lambda topology: found.append(1) or find(topology))
    for dpid in SWITCHES[1:]:
        net.cut(PortId(1, 10 + dpid))
        net.central.port_down(1, 10 + dpid, net.now_s)
    net.push()
    assert len(found) == 1
    net.settle(1)
    assert reached(net, 2) == [3, 4, 5, 6]


def test_the_entries_of_a_link_that_goes_follow_in_pieces_and_all_of_them(monkeypatch):
    net, most = ring(), 3
    monkeypatch.setattr("controller.central.controller.MAX_FLOW_CHANGES", most)
    for number in range(2 * most):
        net.central.network.learn_host(Host(10, 0x02_00_00_00_10_00 | number), PortId(2, EDGE))
    while net.central.network.desired.pending:
        net.push()
    net.cut(PortId(1, 12))
    net.central.port_down(1, 12, net.now_s)
    sent = [net.push()]
    while net.central.network.desired.pending:
        sent.append(net.push())
    assert len(sent) > 2
    assert max(sent) <= most
    assert unicast(net, 1, 2) == [2]
    net.settle()  # floods follow last
    assert reached(net, 1) == [2, 3, 4]


def test_a_switch_that_is_lost_is_gone_around_and_comes_back():
    net = ring()
    assert unicast(net, 1, 3) == [3]
    net.disconnect(2)
    net.settle()
    assert unicast(net, 1, 3) == [3]
    assert reached(net, 1) == [3, 4]
    net.connect(2)
    net.hello()
    net.settle()
    assert unicast(net, 1, 2) == [2]
    assert reached(net, 2) == [1, 3, 4]
    nothing_to_mend(net)


def test_links_from_edge_ports_are_forgeries():
    net = ring()
    before = net.central.network.topology.links()
    assert not net.central.on_discovery_frame(PortId(1, EDGE), PortId(3, 14), net.now_s)
    assert not net.central.on_discovery_frame(PortId(3, 14), PortId(1, EDGE), net.now_s)
    assert net.central.network.topology.links() == before


# -- hosts


def hosts(net):
    return {host.mac: net.central.vns.key(row)[1:] for host, row in net.central.network.hosts().items()}


def test_a_host_that_moves_is_found_at_its_new_place():
    net = ring()
    mac = mac_of(PortId(2, EDGE), 10)
    frame = Frame(mac, mac_of(PortId(1, EDGE), 10), 10)
    assert unicast(net, 1, 2) == [2]
    net.learn(mac, PortId(4, EDGE), 10)
    for _ in range(3):
        delivery = net.send(frame, PortId(1, EDGE))
    assert [port for port, _, _ in delivery.at] == [PortId(4, EDGE)]
    assert delivery.reports == 0
    assert hosts(net)[mac] == (4, EDGE)
    nothing_to_mend(net)


def test_one_address_in_two_vlans_is_two_hosts():
    net = ring()
    mac = mac_of(PortId(2, EDGE), 10)
    net.learn(mac, PortId(3, EDGE), 20)
    assert unicast(net, 1, 2) == [2]
    assert net.central.network.knows(Host(20, mac))
    frame = Frame(mac, 0x02_0000_0000_07, 20)
    assert [port for port, _, _ in net.send(frame, PortId(1, EDGE)).at] == [PortId(3, EDGE)]


def aged(net, dpid, table, mac):
    """Let the entries of a table for an address age on a switch, and tell the controller."""
    switch = net.switches[dpid]
    keys = [
        key
        for key, flow in switch.flows.items()
        if flow.table_id == table and flow.idle_timeout_s and mac in (key.match.eth_src, key.match.eth_dst)
    ]
    assert keys
    for key in keys:
        net.central.on_flow_removed(dpid, switch.age(key), net.now_s)
    net.push()


def test_a_silent_host_is_forgotten_once_nobody_sends_to_it():
    net = ring()
    unicast(net, 1, 2)
    mac = mac_of(PortId(2, EDGE), 10)
    aged(net, 2, Table.LEARN, mac)
    assert net.central.network.knows(Host(10, mac))
    assert net.audit(2) == 0
    aged(net, 1, Table.RATE_CONTROL, mac)
    assert net.central.network.knows(Host(10, mac))
    aged(net, 2, Table.LEARN, mac)
    assert not net.central.network.knows(Host(10, mac))
    assert not any(mac in (k.match.eth_src, k.match.eth_dst) for s in net.switches.values() for k in s.flows)
    net.learn(mac, PortId(2, EDGE), 10)
    assert unicast(net, 1, 2) == [2]


def test_an_edge_port_that_goes_down_takes_its_hosts_along():
    net = ring()
    unicast(net, 1, 2)
    net.central.port_down(2, EDGE, net.now_s)
    net.push()
    assert mac_of(PortId(2, EDGE), 10) not in hosts(net)
    assert len(net.central.state.entries) == 0
    net.learn(mac_of(PortId(2, EDGE), 10), PortId(2, EDGE), 10)
    assert unicast(net, 1, 2) == [2]


def test_ports_without_links_that_are_reported_down_make_nobody_find_paths_again(monkeypatch):
    """A switch may report thousands a second, of ports that lead to hosts or to nothing."""
    net = ring()
    network, found = net.central.network, []
    net.push()
    monkeypatch.setattr(network.topology, "paths", lambda: found.append(1))
    for port_no in (EDGE, 99, 2**31):
        net.central.port_down(2, port_no, net.now_s)
        net.push()
    assert found == []


def test_a_vn_has_so_many_hosts_and_no_more():
    net = Fabric(replace(star(3), max_macs_per_vn=2))
    net.start()
    first, second, third = (0x02_0000_0000_00 + number for number in (1, 2, 3))
    assert net.learn(first, PortId(1, 1), 10).reports == 1
    assert net.learn(second, PortId(1, 1), 10).reports == 1
    for _ in range(5):
        delivery = net.learn(third, PortId(1, 1), 10)  # it might be one that has moved,
        assert [port for port, _, _ in delivery.at] == [PortId(1, 2), PortId(1, 3)]  # and is served
    assert set(hosts(net)) == {first, second}
    assert told(net, EventKind.HOST_LIMIT_REACHED) == [
        "VLAN 10 at s1:1 has 2 hosts, the most it may have; the last is 02:00:00:00:00:02",
        "VLAN 10 at s1:1 may have 2 hosts; 02:00:00:00:00:03 is one too many: frames to it are flooded",
    ]
    # Its other VLAN and other ports have their own count.
    assert net.learn(third, PortId(1, 1), 20).reports == 1
    assert net.learn(third, PortId(1, 2), 10).reports == 1
    aged(net, 1, Table.LEARN, first)
    assert net.learn(0x02_0000_0000_09, PortId(1, 1), 10).reports == 1


def test_a_hello_that_is_late_at_another_node_is_late_here_and_then_gone():
    net = ring()
    network, ends = net.central.network, (PortId(1, 12), PortId(2, 11))
    begun_s = net.now_s
    for step in range(1, 4):
        network.paths.merge_peer_probes({2}, {ends: step > 1}, begun_s + step)
    assert PortId(1, 12) in network.topology.overdue_probes(begun_s + 3)  # it was heard a second after the start
    network.paths.merge_peer_probes({2}, {}, begun_s + 4)
    assert ends not in network.topology.probes_received_at({2})
