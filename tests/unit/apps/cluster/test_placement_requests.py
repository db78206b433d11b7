"""What operators ask of nodes that share switches: what is written, what is waited for, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from support.cluster import dets
from support.memory_etcd import MemoryEtcd

from apps.cluster.etcd_client import delete, put
from apps.cluster.placement_requests import MOVE_TIMEOUT_S, PlacementRequests
from controller.cluster.placement import move_target, rendezvous_order
from controller.errors import DetsError, InvalidValueError

PREFIX = "/dets/x/"
SWITCHES = {"s1": 1, "s2": 2, "s3": 3}
FIRST = rendezvous_order(1, ["n1", "n2"])[0]


class Cluster:
    """Two nodes that follow what is asked whenever time passes, unless they are ``deaf``."""

    def __init__(self) -> None:
        self.etcd, self.now_s, self.deaf = MemoryEtcd(), 0.0, False
        reached = {"n1": b"[1, 2, 3]", "n2": b"[1, 2]"}
        writing = [put(f"{PREFIX}{kind}", b"{}", 5) for kind in ("nodes/n1", "nodes/n2")]
        writing += [put(f"{PREFIX}reached/{name}", value, 5) for name, value in reached.items()]
        writing += [put(self.place("own", dpid), b"n1", 6) for dpid in SWITCHES.values()]
        self.etcd.transact([], writing, [])
        self.requests = PlacementRequests(self.etcd, PREFIX, SWITCHES, lambda: self.now_s, self.sleep)  # type: ignore[arg-type]

    def place(self, kind: str, dpid: int) -> str:
        return f"{PREFIX}{kind}/{dpid:016x}"

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        known = self.requests.read_state()
        for dpid in known.owners:
            to = move_target(dpid, known)
            if to is not None and not self.deaf:
                self.etcd.transact([], [put(self.place("own", dpid), to.encode(), 6)], [])

    def owners(self) -> dict[int, str]:
        return dict(self.requests.read_state().owners)

    def wishes(self) -> tuple[object, object]:
        """Return where switches are wanted, and the leases of those wishes."""
        return self.requests.read_state().requested_nodes, self.etcd.leases


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_drained_node_keeps_what_no_other_reaches_and_says_so(cluster: Cluster) -> None:
    cluster.requests.drain("n1")
    assert cluster.requests.wait_drained("n1") == ["s3"]
    assert cluster.owners() == {1: "n2", 2: "n2", 3: "n1"}
    cluster.requests.undrain("n1")
    assert cluster.requests.read_state().drained == []


def test_a_drain_that_nobody_follows_ends(cluster: Cluster) -> None:
    cluster.deaf = True
    cluster.requests.drain("n1")
    assert cluster.requests.wait_drained("n1") == ["s1", "s2", "s3"]
    assert cluster.now_s == pytest.approx(MOVE_TIMEOUT_S, abs=1.0)


def test_a_move_is_a_wish_that_ends_with_it(cluster: Cluster) -> None:
    assert cluster.requests.move("s1", "n2")
    assert (cluster.owners()[1], *cluster.wishes()) == ("n2", {}, set())
    assert cluster.requests.move("s1", "n2")  # it is there
    cluster.deaf = True
    assert not cluster.requests.move("s2", "n2")
    assert (cluster.owners()[2], *cluster.wishes()) == ("n1", {}, set())


def test_a_pin_stays_and_is_not_moved_by_hand_or_balance(cluster: Cluster) -> None:
    assert cluster.requests.pin("s2", "n2")
    assert cluster.requests.pinned(cluster.requests.read_state()) == {"s2": "n2"}
    with pytest.raises(InvalidValueError, match="'s2' is pinned to n2: unpin it first"):
        cluster.requests.move("s2", "n1")
    assert cluster.requests.move("s2", "n2")
    assert cluster.requests.pinned(cluster.requests.read_state()) == {"s2": "n2"}
    cluster.requests.move_to_first_candidates()
    assert cluster.owners()[2] == "n2"
    assert cluster.requests.unpin("s2") == "n2"
    assert (cluster.requests.pinned(cluster.requests.read_state()), cluster.owners()[2]) == ({}, "n2")


def test_balance_gives_each_switch_to_the_first_that_reaches_it(cluster: Cluster) -> None:
    moved, wanted = cluster.requests.move_to_first_candidates()
    first = {dpid: rendezvous_order(dpid, ["n1", "n2"])[0] for dpid in (1, 2)}
    assert cluster.owners() == {**first, 3: "n1"}
    assert moved == wanted == list(first.values()).count("n2")
    assert cluster.requests.move_to_first_candidates() == (0, 0)


def test_balance_says_who_cannot_take_all_switches(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.cluster.command._placement_requests", lambda _config: nullcontext(cluster.requests))
    cluster.requests.move_to_first_candidates()
    said = "0 switches have changed hands\n"
    assert dets("cluster", "balance") == (0, f"{said}n2 is connected to 2 of 3 switches, and takes only these\n")
    cluster.requests.drain("n2")
    cluster.requests.wait_drained("n2")
    assert dets("cluster", "balance") == (0, said)


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (lambda wishes: wishes.drain("n9"), "NODE: 'n9' is not a live node: n1, n2"),
        (lambda wishes: wishes.drain("n2"), "NODE: 'n2' is drained already"),
        (lambda wishes: wishes.drain("n1"), "NODE: 'n1' is the only live node that is not drained"),
        (lambda wishes: wishes.undrain("n1"), "NODE: 'n1' is not drained; drained: n2"),
        (lambda wishes: wishes.move("s9", "n1"), "SWITCH: 's9' is not in the configuration: s1, s2, s3"),
        (lambda wishes: wishes.move("s1", "n9"), "NODE: 'n9' is not a live node: n1, n2"),
        (lambda wishes: wishes.move("s1", "n2"), "NODE: 'n2' is drained; allowed: n1"),
        (lambda wishes: wishes.pin("s1", "n2"), "NODE: 'n2' is drained; allowed: n1"),
        (lambda wishes: wishes.unpin("s1"), "SWITCH: 's1' is not pinned; pinned: none"),
    ],
)
def test_what_cannot_be_is_refused_with_what_is_allowed_and_changes_nothing(
    cluster: Cluster, ask: Callable[[PlacementRequests], object], why: str
) -> None:
    cluster.requests.drain("n2")
    before = dict(cluster.etcd.kept)
    with pytest.raises(InvalidValueError) as refused:
        ask(cluster.requests)
    assert str(refused.value) == why
    assert cluster.etcd.kept == before


def test_a_node_without_a_connection_is_refused(cluster: Cluster) -> None:
    with pytest.raises(InvalidValueError, match="'n2' is not connected to s3; allowed: n1"):
        cluster.requests.pin("s3", "n2")


def test_two_who_drain_at_once_do_not_drain_all(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    transact = cluster.etcd.transact

    def later(compare: list[object], *rest: list[object]) -> object:
        transact([], [put(f"{PREFIX}drained/n2", b""), delete("nothing")], [])
        return transact(compare, *rest)

    monkeypatch.setattr(cluster.etcd, "transact", later)
    with pytest.raises(DetsError, match="the cluster has changed in the meantime"):
        cluster.requests.drain("n1")
    assert cluster.requests.read_state().drained == ["n2"]
