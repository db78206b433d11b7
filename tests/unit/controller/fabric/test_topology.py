"""Links, the tree and the paths."""

from __future__ import annotations

from itertools import pairwise, permutations

import networkx as nx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.fabric.topology import (
    HOLD_S,
    LATE_S,
    LINK_TIMEOUT_S,
    MAX_LATE,
    MAX_NEIGHBOURS,
    FloodTree,
    Link,
    PortId,
    Topology,
)

A, B, C = PortId(1, 1), PortId(2, 1), PortId(3, 7)


def linked(*links, switches=(1, 2, 3), at_s=0.0):
    topology = Topology()
    for dpid in switches:
        topology.add_switch(dpid)
    for a, b in links:
        topology.record_probe(a, b, at_s)
        topology.record_probe(b, a, at_s)
    return topology


def test_hellos_that_are_missing_are_known_before_a_link_expires():
    topology = linked((A, B), (PortId(1, 2), C))
    topology.record_probe(PortId(2, 5), PortId(3, 5), 0.0)  # one direction alone is no link, and is never late
    topology.record_probe(A, B, 1.0)
    assert topology.overdue_probes(LATE_S) == []
    assert set(topology.overdue_probes(LATE_S + 0.01)) == {B, PortId(1, 2), C}
    assert set(topology.overdue_probes(1.0 + LATE_S)) == {B, PortId(1, 2), C}
    topology.remove_switch(3)
    assert set(topology.overdue_probes(LINK_TIMEOUT_S)) == {A, B}


def test_of_many_missing_hellos_all_have_their_turn():
    """Links that are gone for good do not keep one that is full from being asked."""
    links = [(PortId(dpid, 1), PortId(dpid + 1, 1)) for dpid in range(1, 3 * MAX_LATE, 2)]
    topology = linked(*links, switches=range(1, 3 * MAX_LATE + 1))
    asked = [topology.overdue_probes(LATE_S + 0.1) for _ in range(3)]
    assert [len(ports) for ports in asked] == [MAX_LATE] * 3
    assert {port for ports in asked for port in ports} == {end for link in links for end in link}


def test_what_a_switch_says_that_its_ports_hear_is_bounded():
    topology = linked()
    for port_no in range(1, 1_000):
        topology.record_probe(A, PortId(2, port_no), 0.0)
        topology.record_probe(PortId(2, port_no), A, 0.0)
        topology.record_probe(PortId(2, port_no), PortId(2, port_no + 1), 0.0)
    assert len(topology.links()) == MAX_NEIGHBOURS
    assert len(topology._probed_s) == 2 * MAX_NEIGHBOURS
    assert topology.expire(LINK_TIMEOUT_S + 1)
    assert topology.links() == frozenset()
    assert topology._directions_at == {}


def test_of_parallel_links_the_one_with_the_lowest_ports_is_used():
    topology = linked((PortId(1, 5), PortId(2, 5)), (PortId(1, 3), PortId(2, 9)), (PortId(1, 4), PortId(2, 2)))
    paths = topology.paths()
    assert paths.tree == {Link(PortId(1, 3), PortId(2, 9))}
    assert paths.next_port == {(1, 2): 3, (2, 1): 9}
    assert topology.fabric_ports(1) == {3, 4, 5}


PORTS = st.builds(PortId, st.integers(1, 3), st.integers(1, 2))
ENDS = PortId(1, 1), PortId(2, 1), PortId(2, 2)  # of links that come and go often
PAUSES_S = [0.5, HOLD_S, LINK_TIMEOUT_S / 2, LINK_TIMEOUT_S, LINK_TIMEOUT_S + 1]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hear"), PORTS, PORTS),
        *[st.sampled_from([("link", *ends) for ends in permutations(ENDS, 2)])] * 2,
        st.tuples(st.sampled_from(["add_switch", "remove_switch"]), st.integers(1, 3)),
        st.tuples(st.just("remove_port"), PORTS),
        st.tuples(st.just("expire"), st.sampled_from(PAUSES_S)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=150)
@example([("link", *ENDS[:2]), ("remove_port", ENDS[0]), ("expire", HOLD_S), ("link", *ENDS[:2])])
def test_links_are_up_that_both_ends_have_heard_lately_whatever_comes_and_goes(steps):
    topology, now_s = Topology(), 0.0
    switches, heard_s, held_s = {1, 2}, {}, {}
    for dpid in switches:
        topology.add_switch(dpid)

    def links():
        return {
            Link(min(ends), max(ends))
            for ends in heard_s
            if ends[::-1] in heard_s and {end.dpid for end in ends} <= switches and ends[0].dpid != ends[1].dpid
        }

    for name, *given_ in steps:
        before, news = links(), None
        if name in ("hear", "link"):
            heard = [tuple(given_), tuple(given_[::-1])][: 1 + (name == "link")]  # a link is heard at both ends
            if not any(now_s < held_s.get(end, now_s) for end in given_):
                heard_s |= dict.fromkeys(heard, now_s)
            brought_up = [topology.record_probe(*ends, now_s) for ends in heard]
            news = any(brought_up)
        elif name == "expire":
            now_s += given_[0]
            heard_s = {ends: at_s for ends, at_s in heard_s.items() if now_s - at_s <= LINK_TIMEOUT_S}
            news = topology.expire(now_s)
        else:
            news = getattr(topology, name)(*given_, *([now_s] if name == "remove_port" else []))
            if name == "add_switch":
                switches.add(*given_)
            elif name == "remove_switch":
                switches.discard(*given_)
                heard_s = {ends: at_s for ends, at_s in heard_s.items() if given_[0] not in {end.dpid for end in ends}}
            else:
                gone = [ends for ends in heard_s if given_[0] in ends and ends[0].dpid != ends[1].dpid]
                heard_s = {ends: at_s for ends, at_s in heard_s.items() if given_[0] not in ends}
                if links() != before:
                    held_s |= dict.fromkeys({end for ends in gone for end in ends}, now_s + HOLD_S)
        up = links()
        assert topology.links() == up
        assert news in (None, up != before)
        assert topology.limited_to(switches, lambda port: port == A).links() == {link for link in up if A not in link}
        for dpid in (1, 2, 3):
            assert topology.fabric_ports(dpid) == {end.port_no for link in up for end in link if end.dpid == dpid}
            for port_no in (1, 2):
                assert topology.is_linked(PortId(dpid, port_no)) == any(PortId(dpid, port_no) in link for link in up)


graphs = st.sets(st.tuples(st.integers(1, 8), st.integers(1, 8)).filter(lambda ends: ends[0] < ends[1]), max_size=20)


def links_of(edges):
    """One link per edge; the port's number is the other end's dpid."""
    return [(PortId(a, b), PortId(b, a)) for a, b in edges]


def components(graph):
    return sorted(sorted(component) for component in nx.connected_components(graph))


@given(graphs)
@settings(max_examples=60)
def test_tree_and_paths_of_any_graph(edges):
    topology = linked(*links_of(edges), switches=range(1, 9))
    graph = nx.Graph(edges)
    graph.add_nodes_from(range(1, 9))
    paths = topology.paths()

    tree = nx.Graph([(link.a.dpid, link.b.dpid) for link in paths.tree])
    tree.add_nodes_from(graph)
    assert nx.is_forest(tree)
    assert components(tree) == components(graph)
    assert {Link(*ends) for ends in links_of(edges)} >= paths.tree

    lengths = dict(nx.all_pairs_shortest_path_length(graph))
    for source in graph:
        for target in graph:
            if source == target or target not in lengths[source]:
                assert (source, target) not in paths.next_port
                continue
            at, hops = source, 0
            while at != target:
                port_no = paths.next_port[at, target]
                assert graph.has_edge(at, port_no)
                at, hops = port_no, hops + 1
                assert hops <= 8
            assert hops == lengths[source][target]


@given(graphs, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_same_links_give_the_same_paths_however_they_were_found(edges, random):
    shuffled = links_of(edges)
    random.shuffle(shuffled)
    one = linked(*links_of(sorted(edges)), switches=range(1, 9)).paths()
    other = linked(*[(b, a) for a, b in shuffled], switches=range(8, 0, -1)).paths()
    assert one == other


def test_nobody_is_blamed_for_a_silence_in_which_nobody_listened():
    topology = linked((A, B), at_s=10.0)
    topology.extend_timeouts(60.0)
    assert not topology.expire(70.0 + LINK_TIMEOUT_S)
    assert topology.expire(70.0 + LINK_TIMEOUT_S + 0.01)


@given(graphs)
@settings(max_examples=40)
def test_a_flood_reaches_whoever_can_be_reached_and_takes_no_link_in_vain(edges):
    links = linked(*links_of(edges), switches=range(1, 9)).paths().tree
    tree, peer = FloodTree(links), {end: other for link in links for end, other in (link, link[::-1])}
    graph = nx.Graph((a.dpid, b.dpid) for a, b in links)
    members = [dpid for dpid in (1, 3, 5, 8) if dpid in graph]
    for source in graph:
        reached, used, waiting = {source}, set(), [(source, None)]
        while waiting:
            dpid, came_by = waiting.pop()
            for port_no in tree.ports_towards(dpid, tree.switches(members)):
                if port_no != came_by:
                    there = peer[PortId(dpid, port_no)]
                    reached.add(there.dpid)
                    used.add(frozenset((dpid, there.dpid)))
                    waiting.append((there.dpid, there.port_no))
        wanted = [target for target in members if nx.has_path(graph, source, target)]
        ways = [nx.shortest_path(graph, source, target) for target in wanted]
        assert used == {frozenset(pair) for way in ways for pair in pairwise(way)}
        assert reached >= set(wanted)
