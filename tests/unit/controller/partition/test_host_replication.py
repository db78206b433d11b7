"""Hosts behind switches of several nodes: whatever happens, and whatever is lost, all know the same in the end."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import fabric

from controller.cluster.ownership import Owner
from controller.fabric.topology import PortId
from controller.fabric.vn_table import VnTable
from controller.forwarding.forwarding_state import ForwardingState
from controller.forwarding.host_entries import ForwardingSettings
from controller.forwarding.pairs import Host
from controller.node_protocol.host_update import decode_host_update
from controller.node_protocol.rejection import MessageRejectedError, RejectCause
from controller.partition import host_publisher
from controller.partition.host_publisher import HostPublisher
from controller.partition.host_replication import RETRANSMIT_S, HostReplication
from controller.partition.remote_hosts import RemoteHosts

NAMES, VLANS, PORTS, SWITCHES = "abc", (10, 20), (1, 2), (1, 2, 3, 4)
CONFIG = fabric({dpid: {port: list(VLANS) for port in PORTS} for dpid in SWITCHES})
VNS = VnTable.from_config(CONFIG)
DIGEST, MAX_MACS = b"12345678", 2
HOSTS = [Host(vid, mac) for vid in VLANS for mac in (2, 4, 6, 8)]
INTERVAL_S = 0.055


class Node:
    """One node's knowledge of hosts."""

    def __init__(self, name, token, vns, config, most):
        self.name, self.token = name, token
        self.network = ForwardingState(config.switches.values(), vns, ForwardingSettings(max_macs_per_vn=most))
        self.network.enable_sharding()
        self.hosts = HostReplication(self.network, vns, DIGEST)


class Nodes:
    """Nodes that share switches; ``owner`` is whose each is, ``up`` are those under control."""

    def __init__(self, owners="abca", vns=VNS, config=CONFIG, most=MAX_MACS):
        self.fabric, self.vns, self.octets = (vns, config, most), vns, 0
        self.owner = {dpid: Owner(name, 1, 1) for dpid, name in enumerate(owners, 1)}
        self.nodes = {name: Node(name, 1, *self.fabric) for name in sorted(set(owners))}
        self.up = set(self.owner)
        self.now_s, self.generation, self.mail = 10.0, 1, []
        for node in self.nodes.values():
            self.tell_owners(node)

    def tell_owners(self, node):
        owners = {dpid: owner.node for dpid, owner in self.owner.items()}
        node.hosts.update_owners(owners, node.name, node.token)

    def network(self, name):
        return self.nodes[name].network

    def rows_of(self, host):
        """Return where the nodes know a host to be, all of them."""
        return {node.network.vn_of(host) for node in self.nodes.values()}

    def do(self, what, *about):
        getattr(self, what.replace(" ", "_"))(*about)

    def learn(self, host, place):
        owner = self.nodes[self.owner[place.dpid].node]
        if place.dpid in self.up:
            owner.network.learn_host(host, place)

    def forget(self, host, name):
        row = self.nodes[name].network.vn_of(host)
        if (
            row is not None and self.owner[self.vns.key(row).dpid].node == name
        ):  # as when it ages, or its port goes down
            self.nodes[name].network.forget_host(host)

    def move(self, dpid, name, told):
        """A switch gets another owner, which brings it up later; some nodes hear of that now, all in the end."""
        self.generation += 1
        self.owner[dpid] = Owner(name, 1, self.generation)
        self.up.discard(dpid)
        for node in self.nodes.values():
            if node.name in told:
                self.tell_owners(node)

    def bring_up(self, dpid):
        self.tell_owners(self.nodes[self.owner[dpid].node])
        self.up.add(dpid)

    def go_down(self, dpid):
        self.up.discard(dpid)

    def begin_again(self, name, holds):
        """A node has started again: of what it knew there is what its switches hold."""
        before = self.nodes[name]
        node = self.nodes[name] = Node(name, before.token + 1, *self.fabric)
        self.tell_owners(node)
        for host, row in before.network.hosts().items():
            key = self.vns.key(row)
            if holds and self.owner[key.dpid].node == name:
                node.network.learn_host(host, PortId(*key[1:]))

    def lease(self, name):
        """A node has lost its lease and got another one."""
        self.nodes[name].token += 1
        self.tell_owners(self.nodes[name])

    def deliver(self):
        """Let nodes hear what was said, and take none of it yet."""
        mail, self.mail = self.mail, []
        for speaker, hearer, data in mail:
            self.nodes[hearer].hosts.receive(speaker, data, self.now_s)

    def interval(self, lost=frozenset(), pieces=None, look=lambda: None, took_s=INTERVAL_S):
        """Let nodes hear what was said in the last interval, but for what is lost, and take so many pieces of it."""
        self.now_s += took_s
        mail, self.mail = self.mail, []
        for speaker, hearer, data in mail:
            if (speaker, hearer) not in lost:
                with suppress(MessageRejectedError):  # who has not heard of a new owner refuses what that says
                    self.nodes[hearer].hosts.receive(speaker, data, self.now_s)
        for node in self.nodes.values():
            for taken, _ in enumerate(node.hosts.apply_received(), 1):
                look()
                if taken == pieces:
                    break
            mine = {dpid: owner for dpid, owner in self.owner.items() if owner.node == node.name and dpid in self.up}
            others = [name for name in self.nodes if name != node.name]
            due = node.hosts.due(others, mine, self.now_s, RETRANSMIT_S)
            self.mail += [(node.name, hearer, data) for hearer, data in due.items()]
            self.octets += sum(map(len, due.values()))

    def settle(self, look=lambda: None):
        for node in self.nodes.values():
            self.tell_owners(node)
        self.up = set(self.owner)
        for _ in range(28):
            self.interval(look=look, took_s=RETRANSMIT_S / 4)


names, hosts = st.sampled_from(NAMES), st.sampled_from(HOSTS)
places = st.builds(PortId, st.sampled_from(SWITCHES), st.sampled_from(PORTS))
dpids = st.sampled_from(SWITCHES)
ways = st.frozensets(st.tuples(names, names), max_size=6)
steps = st.one_of(
    *[st.tuples(st.just("learn"), hosts, places)] * 4,
    *[st.tuples(st.just("interval"), ways)] * 3,
    st.tuples(st.just("interval"), ways, st.just(1)),
    st.tuples(st.just("forget"), hosts, names),
    st.tuples(st.just("move"), dpids, names, st.frozensets(names)),
    st.tuples(st.just("bring up"), dpids),
    st.tuples(st.just("go down"), dpids),
    st.tuples(st.just("begin again"), names, st.booleans()),
    st.tuples(st.just("lease"), names),
)


@settings(max_examples=400)
@given(st.lists(steps, max_size=60), st.sampled_from([1, 3, 1000]))
def test_whatever_happens_and_is_lost_all_nodes_know_the_same_in_the_end(done, most_said):
    nodes = Nodes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_publisher, "MAX_BATCH", most_said)
        for one in done:
            nodes.do(*one)
        nodes.settle()
    known = [node.network.hosts() for node in nodes.nodes.values()]
    assert known[0] == known[1] == known[2]
    for node in nodes.nodes.values():
        assert not node.hosts._others._claims
        assert node.hosts._publisher._learned.keys() <= known[0].keys()


def test_a_host_that_moves_away_and_back_before_peers_hear_of_it_is_where_it_spoke_last():
    nodes, (host, here, there) = Nodes(), (HOSTS[0], PortId(1, 1), PortId(2, 1))
    nodes.learn(host, here)
    nodes.settle()
    nodes.learn(host, there)
    nodes.interval()
    for node in nodes.nodes.values():  # who had it hears of that, and it is back before he has said so
        list(node.hosts.apply_received())
    nodes.interval(lost={("a", "b"), ("a", "c")})
    nodes.learn(host, here)
    nodes.settle()
    assert nodes.rows_of(host) == {VNS.row_of(host.vlan_vid, *here)}


def test_what_was_heard_before_a_host_came_here_does_not_count_when_it_is_taken_later():
    nodes, host = Nodes(), HOSTS[0]
    nodes.settle()
    nodes.learn(host, PortId(2, 1))
    nodes.interval()
    nodes.deliver()
    nodes.learn(host, PortId(1, 1))
    nodes.nodes["a"].hosts.due(["b", "c"], {1: nodes.owner[1], 4: nodes.owner[4]}, nodes.now_s, RETRANSMIT_S)
    list(nodes.nodes["a"].hosts.apply_received())
    assert nodes.network("a").vn_of(host) == VNS.row_of(host.vlan_vid, 1, 1)
    nodes.settle()
    assert nodes.rows_of(host) == {VNS.row_of(host.vlan_vid, 1, 1)}


def test_a_claim_counts_again_when_the_newer_one_is_gone_before_its_owner_heard_of_it():
    nodes, host, deaf = Nodes(), HOSTS[0], {("b", "a")}
    nodes.learn(host, PortId(1, 1))
    nodes.settle()
    nodes.learn(host, PortId(2, 1))
    for _ in range(3):
        nodes.interval(lost=deaf)
    assert nodes.network("c").vn_of(host) == VNS.row_of(host.vlan_vid, 2, 1)
    nodes.forget(host, "b")
    for _ in range(3):
        nodes.interval(lost=deaf)
    nodes.settle()
    assert nodes.rows_of(host) == {VNS.row_of(host.vlan_vid, 1, 1)}


def test_a_host_that_moves_to_a_full_vn_of_another_node_is_there_for_all_and_makes_room_if_that_has_no_more():
    nodes, (moving, more), full = Nodes(), HOSTS[:2], PortId(2, 1)
    own = [Host(10, mac) for mac in (16, 18, 20, 22)]  # of which the first two are learned
    for host in own:
        nodes.learn(host, full)
    nodes.learn(moving, PortId(1, 1))
    nodes.learn(more, PortId(3, 1))
    nodes.settle()
    row, b = VNS.row_of(10, *full), nodes.network("b")
    assert b.hosts_of_vn(row) == own[:MAX_MACS]
    for host in (moving, more, moving):
        b.learn_host(host, full, nodes.now_s)
    nodes.settle()
    for node in nodes.nodes.values():
        assert set(node.network.hosts_of_vn(row)) == {*own[:MAX_MACS], moving, more}
    nodes.learn(HOSTS[2], PortId(1, 1))
    nodes.settle()
    b.learn_host(HOSTS[2], full, nodes.now_s)
    nodes.settle()
    for node in nodes.nodes.values():
        assert set(node.network.hosts_of_vn(row)) == {*own[:MAX_MACS], moving, HOSTS[2]}
        assert not node.network.knows(more)


def test_a_host_whose_port_goes_down_at_one_node_has_moved_when_it_comes_to_a_full_vn_of_another():
    nodes, moving, left, full = Nodes(), HOSTS[0], PortId(1, 1), PortId(2, 1)
    for mac in (16, 18):
        nodes.learn(Host(10, mac), full)
    nodes.learn(moving, left)
    nodes.settle()
    nodes.network("a").port_down(left, nodes.now_s)
    for _ in range(2):
        nodes.interval()
    b = nodes.network("b")
    assert not b.knows(moving)
    b.learn_host(moving, full, nodes.now_s)
    nodes.settle()
    for node in nodes.nodes.values():
        assert node.network.vn_of(moving) == VNS.row_of(10, *full)
        assert node.network.known.moved_from(moving) == VNS.row_of(10, *left)


MANY_PORTS, EACH = 25, 20
CROWD = fabric({dpid: {port: list(VLANS) for port in range(1, MANY_PORTS + 1)} for dpid in (1, 2)})


@pytest.fixture
def two():
    """Two nodes; the first one has many hosts, which the second one knows."""
    both = Nodes("ab", VnTable.from_config(CROWD), CROWD, most=64)
    for row, key in enumerate(map(both.vns.key, range(len(both.vns)))):
        for number in range(EACH if key.dpid == 1 else 0):
            both.learn(Host(key.vlan_vid, row << 16 | number << 1), PortId(*key[1:]))
    both.settle()
    assert both.network("a").hosts() == both.network("b").hosts()
    assert len(both.network("a").hosts()) == MANY_PORTS * len(VLANS) * EACH
    both.octets = 0
    return both


def count(monkeypatch, of, name, calls):
    whole = getattr(of, name)

    def counted(*arguments):
        calls[name] += 1
        return whole(*arguments)

    monkeypatch.setattr(of, name, counted)


def test_one_change_among_many_hosts_goes_through_its_own_vns_only(two, monkeypatch):
    calls = Counter()
    for of, name in (
        *((ForwardingState, name) for name in ("place_remote_host", "forget_host", "vn_of", "hosts_of_vn")),
        (RemoteHosts, "apply"),
        (HostPublisher, "note"),
    ):
        count(monkeypatch, of, name, calls)
    monkeypatch.setattr(ForwardingState, "hosts", None)  # all hosts are looked through by nobody
    two.nodes["a"].hosts._publisher._hosts_of_vn = two.network("a").hosts_of_vn
    host = Host(VLANS[0], 2 << 24)
    two.learn(host, PortId(1, 1))
    two.learn(host, PortId(1, 2))
    for _ in range(4):
        two.interval()
    assert two.network("b").vn_of(host) == two.vns.row_of(VLANS[0], 1, 2)
    assert calls["apply"] == 2  # both VNs, as they were said
    assert calls["place_remote_host"] == 3
    assert calls["note"] == 4
    assert calls["vn_of"] <= 2 * (EACH + 1) + 1
    assert max(calls["hosts_of_vn"], calls["forget_host"]) <= 12
    assert two.octets < 2 * (EACH + 2) * 16 + 6 * 80


def test_nothing_is_said_of_hosts_that_stay(two):
    two.settle()
    assert two.octets <= 8 * 2 * 72  # that both are still there


def test_a_peer_that_has_begun_again_forgets_and_moves_no_host_of_others_and_is_told_all_in_pieces(two):
    at_first, known = two.network("a").hosts(), list[int]()
    two.begin_again("b", holds=False)

    def look():
        now = two.network("b").hosts()
        assert now.items() <= at_first.items()
        assert len(now) - sum(known[-1:]) <= 2 * EACH + 25
        known.append(len(now))

    two.settle(look)
    assert two.network("b").hosts() == at_first
    assert known == sorted(known)
    assert len(known) > len(at_first) / 50


def test_hosts_of_a_peer_that_has_begun_again_stay_while_it_says_them(two):
    at_first = two.network("b").hosts()
    two.begin_again("a", holds=True)
    gone = next(iter(at_first))
    two.forget(gone, "a")
    stay = at_first.keys() - {gone}
    two.settle(lambda: None if two.network("b").hosts().keys() >= stay else pytest.fail("forgotten"))
    assert two.network("b").hosts() == two.network("a").hosts()
    assert not two.network("b").knows(gone)


def test_who_speaks_of_others_switches_or_says_less_than_before_is_refused():
    nodes = Nodes()
    nodes.interval()
    b = nodes.nodes["b"].hosts
    (frame,) = [data for speaker, hearer, data in nodes.mail if (speaker, hearer) == ("a", "b")]
    with pytest.raises(MessageRejectedError) as refused:
        b.receive("c", frame, 1.0)
    assert refused.value.cause is RejectCause.NOT_OWNED
    b.receive("a", frame, 1.0)
    with pytest.raises(MessageRejectedError) as refused:
        b.receive("a", frame, 1.0)
    assert refused.value.cause is RejectCause.ORDER
    assert decode_host_update(frame, DIGEST, len(VNS))[0].until == 8


def test_what_is_said_of_a_vn_is_kept_once_however_often_it_changes():
    said = HostPublisher(VNS, lambda row: ())
    said.set_owned_switches({1: Owner("a", 1, 1)})
    for _ in range(5000):
        said._add(VNS.dpid.argsort()[:1])
    assert said._log.shape[1] <= 2 * host_publisher._MIN_LOG
    until, hosts_of = said._put_together(0)
    assert until == said.number == 5004
    assert sorted(hosts_of.vn.tolist()) == sorted(VNS.dpid.argsort()[:4].tolist())


def test_what_others_said_of_a_switch_counts_no_more_once_it_is_here():
    nodes, host, deaf = Nodes(), HOSTS[0], {("c", "b")}
    nodes.learn(host, PortId(2, 1))
    nodes.settle()
    nodes.learn(host, PortId(3, 1))
    for _ in range(3):
        nodes.interval(lost=deaf)
    nodes.move(2, "a", ["a"])
    nodes.forget(host, "c")
    for _ in range(3):
        nodes.interval(lost=deaf)
    assert not nodes.network("a").knows(host)


def test_words_of_who_has_lost_a_switch_meanwhile_are_not_taken():
    nodes, host = Nodes(), HOSTS[0]
    nodes.settle()
    nodes.learn(host, PortId(2, 1))
    nodes.interval()
    nodes.deliver()
    nodes.move(2, "a", ["a", "b", "c"])
    nodes.learn(HOSTS[1], PortId(2, 1))
    nodes.bring_up(2)
    nodes.learn(HOSTS[1], PortId(2, 1))
    nodes.interval()
    assert [host for host in HOSTS if nodes.network("a").knows(host)] == [HOSTS[1]]


def test_all_hosts_of_a_switch_are_said_again_by_whoever_gets_it_again():
    said = HostPublisher(VNS, lambda row: ())
    for generation in (1, 2):
        before = said.number
        for _ in range(2):
            said.set_owned_switches({1: Owner("a", 1, generation)})
        assert said.number == before + 4
        assert len(said._put_together(before)[1].vn) == 4
