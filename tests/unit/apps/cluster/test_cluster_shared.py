"""What nodes that share switches keep in etcd, and how a node's loop passes on what others say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.configs import fabric
from support.memory_etcd import MemoryEtcd

from apps.cluster.cluster_node import URGENT_INTERVAL_S, ClusterNode
from apps.cluster.etcd_client import put
from apps.cluster.etcd_membership import MAX_WATCHED, EtcdMembership, NodeRecord
from apps.cluster.peer_exchange import PeerExchange
from controller.central.controller import CentralController
from controller.cluster.leadership import LeaseSnapshot, generation_id
from controller.cluster.ownership import Owner
from controller.cluster.placement import JOIN_DELAY_S, rendezvous_order
from controller.fabric.config_model import Cluster, Endpoint

LISTEN = Endpoint("127.0.0.1", 6654)
DPIDS = {1, 2, 3}


class Desk:
    """A node's part in etcd, asked by the hand of a clock."""

    def __init__(self, etcd: MemoryEtcd, name: str, lease_id: int) -> None:
        self.etcd, self.lease_id, self.reached, self.tests = etcd, lease_id, set(DPIDS), dict[int, bytes]()
        self.shared = EtcdMembership(cluster(name), "/dets/x/")
        self.shared.dpids, self.shared.reached, self.shared.public_key = DPIDS, lambda: self.reached, f"key of {name}"
        self.shared.controlled = lambda: DPIDS
        self.shared.handover_state, self.shared.import_handover_state = self.tests.get, self.tests.__setitem__

    def ask(self, now_s: float) -> None:
        found = self.etcd.read(*self.shared.reading)
        self.shared.synchronize(self.etcd, found, self.lease_id, 2, now_s)  # type: ignore[arg-type]
        self.shared.apply_snapshot()


def cluster(name: str) -> Cluster:
    known = {"mode": "sharded", "peer_listen": LISTEN, "peer_advertise": LISTEN}
    return Cluster(name, "x", ("http://127.0.0.1:1",), 3, f"http://{name}:1", **known)  # type: ignore[arg-type]


@pytest.fixture
def desks() -> tuple[Desk, Desk]:
    etcd = MemoryEtcd()
    made = Desk(etcd, "n1", 11), Desk(etcd, "n2", 12)
    for now_s in (0.0, 0.5, JOIN_DELAY_S + 1.0, JOIN_DELAY_S + 1.5):
        for desk in made:
            desk.ask(now_s)
    return made


def test_two_nodes_share_the_switches_out_and_know_each_other(desks: tuple[Desk, Desk]) -> None:
    first, second = desks[0].shared, desks[1].shared
    assert first.owners == second.owners
    assert {dpid: owner.node for dpid, owner in first.owners.items()} == {
        dpid: rendezvous_order(dpid, ["n1", "n2"])[0] for dpid in DPIDS
    }
    for dpid, owner in first.owners.items():
        assert owner.lease_id == {"n1": 11, "n2": 12}[owner.node]
        assert owner.generation == generation_id(2, desks[0].etcd.modified(f"/dets/x/own/{dpid:016x}"))
    assert first.nodes == second.nodes
    assert first.nodes["n2"] == NodeRecord("127.0.0.1:6654", "key of n2", "http://n2:1")
    assert len(first.secret) == 32
    assert (first.secret, first.token < second.token) == (second.secret, True)


def test_a_dead_nodes_switches_have_a_newer_generation_at_their_new_owner(desks: tuple[Desk, Desk]) -> None:
    before = dict(desks[0].shared.owners)
    desks[0].etcd.revoke(12)
    desks[0].ask(JOIN_DELAY_S + 2.0)
    after = desks[0].shared.owners
    assert {owner.node for owner in after.values()} == {"n1"}
    for dpid, owner in before.items():
        assert (after[dpid].generation > owner.generation) == (owner.node == "n2")
    assert set(desks[0].shared.nodes) == {"n1"}


def test_a_node_with_a_new_lease_speaks_with_a_higher_token(desks: tuple[Desk, Desk]) -> None:
    token = desks[0].shared.token
    desks[0].lease_id = 13
    desks[0].ask(JOIN_DELAY_S + 2.0)
    assert desks[0].shared.token > token
    desks[0].etcd.revoke(11)  # the old one's key of the node is the new one's by now
    desks[0].ask(JOIN_DELAY_S + 2.5)
    assert set(desks[0].shared.nodes) == {"n1", "n2"}


def test_who_was_second_takes_nothing_and_knows_the_owner(desks: tuple[Desk, Desk]) -> None:
    first, second = desks
    first.etcd.revoke(12)
    stale = first.etcd.read(*second.shared.reading)
    first.ask(JOIN_DELAY_S + 2.0)
    second.lease_id = 14
    second.shared.synchronize(first.etcd, stale, 14, 2, JOIN_DELAY_S + 9.0)  # type: ignore[arg-type]
    second.shared.apply_snapshot()
    assert {owner.lease_id for owner in second.shared.owners.values()} == {11}


def test_a_full_etcd_leaves_switches_with_their_owners(
    desks: tuple[Desk, Desk], caplog: pytest.LogCaptureFixture
) -> None:
    etcd = desks[0].etcd
    etcd.full = True
    etcd.revoke(12)
    for step in range(10):
        desks[0].ask(JOIN_DELAY_S + 2.0 + step / 4)
    assert {owner.node for owner in desks[0].shared.owners.values()} <= {"n1"}
    assert [record.getMessage() for record in caplog.records] == ["switches keep their owners: space exceeded"]
    etcd.full = False
    desks[0].ask(JOIN_DELAY_S + 5.0)
    assert set(desks[0].shared.owners) == DPIDS


def owned(desk: Desk) -> dict[int, str]:
    return {dpid: one.node for dpid, one in desk.shared.owners.items()}


def test_a_drained_nodes_switches_are_taken_in_place_under_newer_generations(desks: tuple[Desk, Desk]) -> None:
    etcd, before = desks[0].etcd, dict(desks[0].shared.owners)
    assert set(owned(desks[0]).values()) == {"n1", "n2"}
    etcd.transact([], [put("/dets/x/drained/n2", b"")], [])
    for step in range(20):
        for desk in desks:
            desk.ask(JOIN_DELAY_S + 2.0 + step / 4)
    after = desks[1].shared.owners
    assert owned(desks[0]) == owned(desks[1]) == dict.fromkeys(DPIDS, "n1")
    for dpid, owner in before.items():
        assert (after[dpid].generation > owner.generation) == (owner.node == "n2")
        assert after[dpid].lease_id == 11
    desks[1].lease_id = 13  # it starts again, and is still drained
    etcd.revoke(11)
    for step in range(40):
        desks[1].ask(JOIN_DELAY_S + 10.0 + step / 4)
    assert owned(desks[1]) == {}


def test_who_takes_a_switch_need_not_test_it_again(desks: tuple[Desk, Desk]) -> None:
    dpid, taker, owner = next((dpid, *desks) for dpid, node in owned(desks[0]).items() if node == "n2")
    owner.tests[dpid] = b"meters work"
    owner.ask(JOIN_DELAY_S + 2.0)
    assert taker.tests == {}
    taker.etcd.revoke(12)
    taker.ask(JOIN_DELAY_S + 2.5)
    assert taker.tests == {dpid: b"meters work"}


def test_a_switch_that_its_owner_does_not_reach_is_taken_and_all_know_before(desks: tuple[Desk, Desk]) -> None:
    first, second = desks
    dpid = next(dpid for dpid, node in owned(first).items() if node == "n2")
    second.reached -= {dpid}
    second.ask(20.0)
    for at_s in (20.0, 21.0):
        first.ask(at_s)
        assert (first.shared.moving, owned(first)[dpid]) == (False, "n2")
    for desk in desks:
        desk.ask(21.6)
        assert (desk.shared.moving, desk.shared.needs_fast_polling(21.6)) == (True, True)
    first.ask(22.1)
    assert owned(first)[dpid] == "n1"
    second.ask(22.2)
    assert (owned(second)[dpid], second.shared.moving, second.shared.needs_fast_polling(22.3)) == ("n1", False, True)
    assert not second.shared.needs_fast_polling(30.0)


def test_each_owners_lease_is_looked_after_by_others(desks: tuple[Desk, Desk]) -> None:
    shared = desks[0].shared
    found = desks[0].etcd.read(*shared.reading)
    assert (shared.monitored_leases(found, 11), shared.monitored_leases(found, 12)) == ({12}, {11})
    for lease_id in range(20, 30):
        desks[0].etcd.transact([], [put(f"/dets/x/own/{lease_id:016x}", b"n9", lease_id)], [])
    found = desks[0].etcd.read(*shared.reading)
    leases = [11, 12, *range(20, 30)]
    watched = [shared.monitored_leases(found, one) for one in leases]
    assert {len(some) for some in watched} == {MAX_WATCHED}
    assert all(sum(one in some for some in watched) == MAX_WATCHED for one in leases)


def test_a_dead_owners_lease_is_ended_early_and_its_switches_are_taken_at_once() -> None:
    etcd, now_s, asked = MemoryEtcd(), 100.0, list[tuple[Callable[..., None], float]]()
    node = ClusterNode(cluster("n1"), lambda: now_s, lambda function, at_s: asked.append((function, at_s)))
    node.etcd, shared = etcd, node.shared  # type: ignore[assignment]
    assert shared is not None
    shared.dpids, shared.reached, shared.controlled = DPIDS, lambda: DPIDS, lambda: DPIDS
    dead = etcd.grant(3)
    keys = {"active": b'{"node": "n1", "url": ""}', "reached/n2": b"[1, 2, 3]"}
    keys["nodes/n2"] = b'{"address": "10.0.0.2:1", "public_key": "b", "url": "c"}'
    etcd.transact([], [put(f"/dets/x/own/{dpid:016x}", b"n2", dead) for dpid in DPIDS], [])
    etcd.transact(
        [], [put(f"/dets/x/{name}", value, 0 if name == "active" else dead) for name, value in keys.items()], []
    )
    ended_s = None
    while now_s < 110.0 and ended_s is None:
        now_s += URGENT_INTERVAL_S
        etcd.left_of[dead] = max(3 - int(now_s - 104.0), 0) if now_s > 104.0 else 3
        node.poll_etcd()
        while asked:
            function, at_s = asked.pop()
            function(at_s)
        ended_s = now_s if dead not in etcd.leases else None
    assert node.problem == ""
    assert ended_s == pytest.approx(108.0, abs=0.2)  # a second after less than a second was left
    node.poll_etcd()
    assert {one.node for one in shared.owners.values()} == {"n1"}
    assert set(shared.owners) == DPIDS


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


def exchange_of(
    node: ClusterNode, links: FakeLinks, central: CentralController, keys: list[bytes], later: list[Any]
) -> PeerExchange:
    """What passes on what is said at 50 s, and keeps what is to be done ``later``."""
    assert node.shared is not None
    clock, ready, spawn = lambda: 50.0, lambda: [1], lambda *call: later.append(call)
    yield_control = lambda: later.append("breath")  # noqa: E731
    return PeerExchange(node, node.shared, links, central, clock, ready, keys.append, spawn, yield_control)  # type: ignore[arg-type]


def test_a_node_speaks_only_while_it_may_rely_on_its_lease() -> None:
    node = ClusterNode(cluster("n1"), lambda: 10.0, lambda *call: None)
    assert node.shared is not None
    config = fabric({1: {1: [10]}, 2: {2: [10]}})
    central, links, keys = CentralController(config), FakeLinks(), list[bytes]()
    exchange = exchange_of(node, links, central, keys, [])
    node.shared.nodes = {name: NodeRecord(f"10.0.0.{name[1]}:1", name, f"http://{name}:1") for name in ("n1", "n2")}
    node.shared.owners = {1: Owner("n1", 11, 5), 2: Owner("n2", 12, 6)}
    node.shared.secret, node.shared.token = b"secret", 4
    node.leadership.update(LeaseSnapshot(9.0, 11, "n1", 11, 3))
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
    node.leadership.invalidate()
    central.interval({}, {}, 50.1)
    exchange.after_interval()
    assert len(links.sent) == 1


def test_what_is_heard_of_hosts_is_taken_in_the_loop_as_far_as_it_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    node = ClusterNode(cluster("n1"), lambda: 10.0, lambda *call: None)
    later, taken = list[Any](), list[int]()
    exchange = exchange_of(node, FakeLinks(), CentralController(fabric({1: {1: [10]}})), [], later)

    def take(pieces: int, fails: bool = False) -> Callable[[float], Iterator[None]]:
        def pieces_of(now_s: float) -> Iterator[None]:
            for number in range(pieces):
                taken.append(number)
                if number + 1 < pieces:
                    yield
            if fails:
                raise ValueError

        return pieces_of

    monkeypatch.setattr(exchange.sharing, "apply_host_updates", take(1))
    exchange.before_interval()
    assert (taken, later) == ([0], [])
    monkeypatch.setattr(exchange.sharing, "apply_host_updates", take(3, fails=True))
    exchange.before_interval()
    monkeypatch.setattr(exchange.sharing, "apply_host_updates", take(1))
    exchange.before_interval()  # one at a time
    assert taken == [0, 0]
    ((function, *arguments),) = later
    function(*arguments)
    assert taken == [0, 0, 1, 2]
    assert later[1:] == ["breath"] * 2
    exchange.before_interval()
    assert taken == [0, 0, 1, 2, 0]
