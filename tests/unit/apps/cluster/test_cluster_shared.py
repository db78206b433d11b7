"""What nodes that share switches keep in etcd, and how a node's loop passes on what others say."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from support.configs import fabric

from apps.cluster.etcd import EtcdError, KeyValue
from apps.cluster.exchange import Exchange
from apps.cluster.node import ClusterNode
from apps.cluster.shared import Node, Shared
from controller.central.controller import CentralController
from controller.cluster.leadership import Answer, generation_id
from controller.cluster.ownership import START_S, Owner, order
from controller.fabric.description import Cluster, Endpoint

LISTEN = Endpoint("127.0.0.1", 6654)
DPIDS = {1, 2, 3}


class MemoryEtcd:
    """An etcd in memory: what ``Shared`` asks of one. When it is ``full`` it refuses what would be written."""

    def __init__(self) -> None:
        self.kept: dict[str, KeyValue] = {}
        self.revision, self.full = 1, False

    def transact(self, compare: list[Any], success: list[Any], failure: list[Any]) -> tuple[bool, list[Any]]:
        done = all(self.created(_text(one["key"])) == one["create_revision"] for one in compare)
        operations = success if done else failure
        if self.full and any("request_put" in one for one in operations):
            raise EtcdError("space exceeded")
        self.revision += 1
        for one in operations:
            if "request_put" in one:
                key, lease_id = _text(one["request_put"]["key"]), int(one["request_put"]["lease"])
                created, value = self.created(key) or self.revision, base64.b64decode(one["request_put"]["value"])
                self.kept[key] = KeyValue(key, value, created, self.revision, lease_id)
        return done, self.read(*(one for one in operations if "request_range" in one))

    def read(self, *ranges: Any) -> list[list[KeyValue]]:
        found = []
        for one in ranges:
            first = _text(one["request_range"]["key"])
            whole = "range_end" in one["request_range"]
            kept = self.kept.items()
            found.append([kv for key, kv in sorted(kept) if (key.startswith(first) if whole else key == first)])
        return found

    def created(self, key: str) -> int:
        return self.kept[key].create_revision if key in self.kept else 0

    def end_lease(self, lease_id: int) -> None:
        self.kept = {key: one for key, one in self.kept.items() if one.lease_id != lease_id}


def _text(data: str) -> str:
    return base64.b64decode(data).decode()


class Desk:
    """A node's part in etcd, asked by the hand of a clock."""

    def __init__(self, etcd: MemoryEtcd, name: str, lease_id: int) -> None:
        self.etcd, self.lease_id, self.reached = etcd, lease_id, set(DPIDS)
        self.shared = Shared(cluster(name), "/dets/x/")
        self.shared.dpids, self.shared.reached, self.shared.public_key = DPIDS, lambda: self.reached, f"key of {name}"

    def ask(self, now_s: float) -> None:
        found = self.etcd.read(*self.shared.reading)
        self.shared.ask(self.etcd, found, self.lease_id, 2, now_s)  # type: ignore[arg-type]
        self.shared.put_in_force()


def cluster(name: str) -> Cluster:
    known = {"share": "switches", "listen": LISTEN, "address": LISTEN}
    return Cluster(name, "x", ("http://127.0.0.1:1",), 3, f"http://{name}:1", **known)  # type: ignore[arg-type]


@pytest.fixture
def desks() -> tuple[Desk, Desk]:
    etcd = MemoryEtcd()
    made = Desk(etcd, "n1", 11), Desk(etcd, "n2", 12)
    for now_s in (0.0, 0.5, START_S + 1.0, START_S + 1.5):
        for desk in made:
            desk.ask(now_s)
    return made


def test_two_nodes_share_the_switches_out_and_know_each_other(desks: tuple[Desk, Desk]) -> None:
    first, second = desks[0].shared, desks[1].shared
    assert first.owners == second.owners
    assert {dpid: owner.node for dpid, owner in first.owners.items()} == {
        dpid: order(dpid, ["n1", "n2"])[0] for dpid in DPIDS
    }
    for dpid, owner in first.owners.items():
        assert owner.lease_id == {"n1": 11, "n2": 12}[owner.node]
        assert owner.generation == generation_id(2, desks[0].etcd.created(f"/dets/x/own/{dpid:016x}"))
    assert first.nodes == second.nodes
    assert first.nodes["n2"] == Node("127.0.0.1:6654", "key of n2", "http://n2:1")
    assert len(first.secret) == 32
    assert (first.secret, first.token < second.token) == (second.secret, True)


def test_a_dead_nodes_switches_have_a_newer_generation_at_their_new_owner(desks: tuple[Desk, Desk]) -> None:
    before = dict(desks[0].shared.owners)
    desks[0].etcd.end_lease(12)
    desks[0].ask(START_S + 2.0)
    after = desks[0].shared.owners
    assert {owner.node for owner in after.values()} == {"n1"}
    for dpid, owner in before.items():
        assert (after[dpid].generation > owner.generation) == (owner.node == "n2")
    assert set(desks[0].shared.nodes) == {"n1"}


def test_a_node_with_a_new_lease_speaks_with_a_higher_token(desks: tuple[Desk, Desk]) -> None:
    token = desks[0].shared.token
    desks[0].lease_id = 13
    desks[0].ask(START_S + 2.0)
    assert desks[0].shared.token > token
    desks[0].etcd.end_lease(11)  # the old one's key of the node is the new one's by now
    desks[0].ask(START_S + 2.5)
    assert set(desks[0].shared.nodes) == {"n1", "n2"}


def test_who_was_second_takes_nothing_and_knows_the_owner(desks: tuple[Desk, Desk]) -> None:
    first, second = desks
    first.etcd.end_lease(12)
    stale = first.etcd.read(*second.shared.reading)
    first.ask(START_S + 2.0)
    second.lease_id = 14
    second.shared.ask(first.etcd, stale, 14, 2, START_S + 9.0)  # type: ignore[arg-type]
    second.shared.put_in_force()
    assert {owner.lease_id for owner in second.shared.owners.values()} == {11}


def test_a_full_etcd_leaves_switches_with_their_owners(desks: tuple[Desk, Desk]) -> None:
    etcd = desks[0].etcd
    etcd.full = True
    etcd.end_lease(12)
    desks[0].ask(START_S + 2.0)
    assert {owner.node for owner in desks[0].shared.owners.values()} <= {"n1"}
    etcd.full = False
    desks[0].ask(START_S + 2.5)
    assert set(desks[0].shared.owners) == DPIDS


class FakeLinks:
    """Links that keep what is sent, and hand out what a test puts there."""

    public_key = "mine"

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.came: list[tuple[str, bytes]] = []
        self.peers: dict[str, tuple[str, str]] = {}

    def set_peers(self, peers: dict[str, tuple[str, str]]) -> None:
        self.peers = peers

    def send(self, peer: str, data: bytes) -> bool:
        self.sent.append((peer, data))
        return False  # nobody takes it: that must not matter

    def receive(self) -> list[tuple[str, bytes]]:
        came, self.came = self.came, []
        return came


def test_a_node_speaks_only_while_it_may_rely_on_its_lease() -> None:
    node = ClusterNode(cluster("n1"), lambda: 10.0, lambda *call: None)
    assert node.shared is not None
    config = fabric({1: {1: [10]}, 2: {2: [10]}})
    central, links, keys = CentralController(config), FakeLinks(), list[bytes]()
    exchange = Exchange(node, node.shared, links, central, lambda: 50.0, lambda: [1], keys.append)  # type: ignore[arg-type]
    node.shared.nodes = {name: Node(f"10.0.0.{name[1]}:1", name, f"http://{name}:1") for name in ("n1", "n2")}
    node.shared.owners = {1: Owner("n1", 11, 5), 2: Owner("n2", 12, 6)}
    node.shared.secret, node.shared.token = b"secret", 4
    node.leadership.hear(Answer(9.0, 11, "n1", 11, 3))
    for _ in range(2):
        exchange.before_interval()
        central.interval({}, {}, 50.0)
        exchange.after_interval()
    assert links.peers == {"n2": ("10.0.0.2:1", "n2")}
    assert [name for name, _ in links.sent] == ["n2"]
    assert keys[-1] == b"secret"
    assert exchange.describe() == {
        "owners": {"s1": "n1", "s2": "n2"},
        "nodes": {"n1": "http://n1:1", "n2": "http://n2:1"},
    }
    node.leadership.lose()
    central.interval({}, {}, 50.1)
    exchange.after_interval()
    assert len(links.sent) == 1
