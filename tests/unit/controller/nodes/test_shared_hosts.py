"""Hosts behind switches of several nodes: whatever happens, and whatever is lost, all know the same in the end."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import fabric

from controller.cluster.ownership import Owner
from controller.fabric.topology import PortId
from controller.fabric.vns import VnTable
from controller.forwarding.hosts_and_paths import ForwardingSettings, Network
from controller.forwarding.pairs import Host
from controller.frames.hosts import decode_hosts
from controller.frames.refusal import Cause, FrameError
from controller.nodes import hosts_said
from controller.nodes.hosts_heard import OthersHosts
from controller.nodes.hosts_said import HostsSaid
from controller.nodes.shared_hosts import AGAIN_S, SharedHosts

NAMES, VLANS, PORTS, SWITCHES = "abc", (10, 20), (1, 2), (1, 2, 3, 4)
CONFIG = fabric({dpid: {port: list(VLANS) for port in PORTS} for dpid in SWITCHES})
VNS = VnTable.of_config(CONFIG)
DIGEST, MOST = b"12345678", 2
HOSTS = [Host(vid, mac) for vid in VLANS for mac in (2, 4, 6, 8)]
INTERVAL_S = 0.055


class Node:
    """One node's knowledge of hosts."""

    def __init__(self, name, token, vns=VNS, config=CONFIG, most=MOST):
        self.name, self.token = name, token
        self.network = Network(config.switches.values(), vns, ForwardingSettings(max_macs_per_vn=most))
        self.network.share_out()
        self.hosts = SharedHosts(self.network, vns, DIGEST)


class Nodes:
    """Nodes that share switches; ``owner`` is whose each is, ``up`` are those under control."""

    def __init__(self):
        self.nodes = {name: Node(name, 1) for name in NAMES}
        self.owner = {1: Owner("a", 1, 1), 2: Owner("b", 1, 1), 3: Owner("c", 1, 1), 4: Owner("a", 1, 1)}
        self.up = set(SWITCHES)
        self.now_s, self.generation, self.mail = 10.0, 1, []
        for node in self.nodes.values():
            self.tell_owners(node)

    def tell_owners(self, node):
        owners = {dpid: owner.node for dpid, owner in self.owner.items()}
        node.hosts.hear_owners(owners, node.name, node.token)

    def do(self, what, *about):
        getattr(self, what.replace(" ", "_"))(*about)

    def learn(self, host, place):
        owner = self.nodes[self.owner[place.dpid].node]
        if place.dpid in self.up:
            owner.network.learn(host, place)

    def forget(self, host, name):
        row = self.nodes[name].network.vn_of(host)
        if row is not None and self.owner[VNS.key(row).dpid].node == name:  # as when it ages, or its port goes down
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
        node = self.nodes[name] = Node(name, before.token + 1)
        self.tell_owners(node)
        for host, row in before.network.hosts().items():
            key = VNS.key(row)
            if holds and self.owner[key.dpid].node == name:
                node.network.learn(host, PortId(*key[1:]))

    def lease(self, name):
        """A node has lost its lease and got another one."""
        self.nodes[name].token += 1
        self.tell_owners(self.nodes[name])

    def interval(self, lost=frozenset(), pieces=None):
        """Let nodes hear what was said in the last interval, but for what is lost, and take so many pieces of it."""
        self.now_s += INTERVAL_S
        mail, self.mail = self.mail, []
        for speaker, hearer, data in mail:
            if (speaker, hearer) not in lost:
                try:
                    self.nodes[hearer].hosts.hear(speaker, data, self.now_s)
                except FrameError as error:
                    assert error.cause in (Cause.NOT_OWNED, Cause.ORDER)
        for node in self.nodes.values():
            for taken, _ in enumerate(node.hosts.take(), 1):
                if taken == pieces:
                    break
            mine = {dpid: owner for dpid, owner in self.owner.items() if owner.node == node.name and dpid in self.up}
            others = [name for name in NAMES if name != node.name]
            due = node.hosts.due(others, mine, self.now_s, AGAIN_S)
            self.mail += [(node.name, hearer, data) for hearer, data in due.items()]

    def settle(self):
        for node in self.nodes.values():
            self.tell_owners(node)
        self.up = set(SWITCHES)
        for _ in range(round(6 * AGAIN_S / INTERVAL_S)):
            self.interval()


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


@settings(derandomize=True, max_examples=400, deadline=None)
@given(st.lists(steps, max_size=60), st.sampled_from([1, 3, 1000]))
def test_whatever_happens_and_is_lost_all_nodes_know_the_same_in_the_end(done, most_said):
    nodes = Nodes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosts_said, "MOST_SAID", most_said)
        for one in done:
            nodes.do(*one)
        nodes.settle()
    known = [node.network.hosts() for node in nodes.nodes.values()]
    assert known[0] == known[1] == known[2]
    for node in nodes.nodes.values():
        assert not node.hosts._others._claims
        assert node.hosts._said._learned.keys() <= known[0].keys()
