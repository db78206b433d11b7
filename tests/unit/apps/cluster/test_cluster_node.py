"""A node and etcd: who asks, when an answer counts, and what a silent etcd or a stuck loop leads to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.memory_etcd import MemoryEtcd

from apps.cluster.cluster_node import ASK_INTERVAL_S, ClusterNode
from apps.cluster.etcd_client import EtcdError, delete, put
from controller.cluster.leadership import LEASE_MARGIN_S
from controller.fabric.config_model import Cluster

TTL_S = 3
ACTIVE = "/dets/dets/active"


class Etcd:
    """An etcd in memory, which does not answer while it is ``down``."""

    def __init__(self, memory: MemoryEtcd) -> None:
        self.memory, self.down = memory, False

    def __getattr__(self, name: str) -> Any:
        if self.down:
            raise EtcdError("nobody is there")
        return getattr(self.memory, name)


class Run:
    """A node with a clock and a helper that are moved by hand."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.waiting: list[Callable[[], None]] = []
        cluster = Cluster("n1", "dets", ("http://127.0.0.1:1",), TTL_S, "http://here:1")
        self.node = ClusterNode(cluster, lambda: self.now_s, self.spawn)
        self.memory = MemoryEtcd()
        self.etcd = self.node.etcd = Etcd(self.memory)  # type: ignore[assignment]
        self.started_over = 0
        self.node.start_over = self.start_over

    def start_over(self) -> None:
        self.started_over += 1

    def spawn(self, function: Callable[..., None], *arguments: object) -> None:
        self.waiting.append(lambda: function(*arguments))

    def help(self) -> None:
        """Do what was handed to the helper."""
        waiting, self.waiting = self.waiting, []
        for work in waiting:
            work()

    def give(self, node: str, lease_id: int) -> None:
        """Let the active key be a new one, of a node and a lease."""
        about = json.dumps({"node": node, "url": "http://there:1"}).encode()
        self.memory.leases.add(lease_id)
        self.memory.transact([], [delete(ACTIVE), put(ACTIVE, about, lease_id)], [])

    @property
    def lease_id(self) -> int:
        """The node's own lease."""
        assert self.node.leadership.lease_id is not None
        return self.node.leadership.lease_id

    def is_active(self) -> bool:
        """Return whether the node may change switches, under the generation of the key."""
        generation = self.node.active_generation()
        assert generation in (None, self.memory.created(ACTIVE))
        return generation is not None

    def interval(self, count: int = 1) -> None:
        for _ in range(count):
            self.now_s += ASK_INTERVAL_S
            self.node.poll_etcd()
            self.help()


@pytest.fixture
def run() -> Run:
    run = Run()
    run.interval()
    run.node.poll_etcd()
    run.help()
    return run


def test_the_first_node_becomes_active_at_the_round_after_the_answer() -> None:
    run = Run()
    run.interval()
    assert run.node.active_generation() is None  # etcd has answered, and the loop has not seen it
    run.node.poll_etcd()
    assert run.is_active()
    assert run.node.describe()["role"] == "active"


def test_a_loop_that_is_stuck_or_a_slow_etcd_loses_the_lease_and_is_asked_one_question_at_a_time(run: Run) -> None:
    for _ in range(100):
        run.help()  # whatever else of the process still runs
    run.now_s += TTL_S - LEASE_MARGIN_S
    assert (run.node.active_generation(), run.waiting) == (None, [])
    for _ in range(100):
        run.now_s += ASK_INTERVAL_S
        run.node.poll_etcd()
    assert len(run.waiting) == 1


def test_an_answer_counts_from_when_it_was_asked_for(run: Run) -> None:
    run.now_s += ASK_INTERVAL_S
    run.node.poll_etcd()
    run.now_s += TTL_S - LEASE_MARGIN_S  # so long etcd took
    run.help()
    run.node.poll_etcd()
    assert run.node.active_generation() is None


def test_a_silent_etcd_is_outlived_for_less_than_the_lease_and_its_return_is_noticed(run: Run) -> None:
    run.etcd.down = True
    began_s = run.now_s
    while run.is_active():
        run.interval()
    assert run.now_s - began_s <= TTL_S - LEASE_MARGIN_S + ASK_INTERVAL_S
    assert run.node.describe()["etcd"] == "nobody is there"
    run.etcd.down = False
    run.interval(2)
    assert run.is_active()
    assert (run.started_over, run.node.takeovers) == (0, 1)  # nobody else was active: what it knows still counts


@pytest.mark.parametrize("error", [IndexError("no key"), AttributeError("a list"), KeyError("ID"), ValueError("int")])
def test_an_answer_that_is_not_etcds_is_a_problem_and_no_failure(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def odd(_lease_id: int) -> bool:
        raise error

    monkeypatch.setattr(run.etcd, "keep_alive", odd)
    run.interval()
    assert run.node.describe()["etcd"] == f"an answer that is not etcd's: {error!r}"


def test_a_full_etcd_costs_no_lease_and_nobody_takes_over_on_it(run: Run) -> None:
    run.memory.full = True
    run.interval(40)
    assert run.is_active()
    del run.memory.kept[ACTIVE]
    run.interval()
    run.node.poll_etcd()
    assert "space exceeded" in run.node.problem
    run.memory.full = False
    run.interval()
    run.node.poll_etcd()
    assert run.node.problem == ""


def test_a_node_that_is_active_again_after_another_forgets_what_it_knew(run: Run) -> None:
    run.give("n2", 99)
    run.interval(2)
    assert (run.is_active(), run.started_over) == (False, 0)
    run.give("n1", run.lease_id)
    run.interval(2)
    assert (run.is_active(), run.started_over, run.node.takeovers) == (True, 1, 2)


def test_a_lease_that_is_gone_is_replaced_and_the_key_was_another_nodes_meanwhile(run: Run) -> None:
    gone = run.lease_id
    run.memory.revoke(gone)
    run.give("n2", 99)
    run.interval(2)
    assert not run.is_active()
    run.interval(3)
    described = run.node.describe()
    assert (described["role"], described["active"], described["active_url"]) == ("standby", "n2", "http://there:1")
    assert run.lease_id in run.memory.leases - {gone}


def test_a_node_that_leaves_gives_its_lease_up_and_never_asks_again(run: Run) -> None:
    run.node.release_lease()
    assert (run.memory.leases, run.is_active()) == (set(), False)
    run.now_s += ASK_INTERVAL_S
    run.node.poll_etcd()
    assert (run.waiting, run.is_active()) == ([], False)


def test_settings_of_the_other_node_come_before_the_lease_counts(run: Run) -> None:
    followed: list[bool] = []

    def refuse() -> bool:
        followed.append(False)
        raise EtcdError("the settings cannot be read")

    run.node.follow = refuse
    run.memory.transact([], [put("/dets/dets/head", b"")], [])
    while run.is_active():
        run.interval()
    assert followed
    run.node.follow = lambda: True
    run.interval(2)
    assert run.is_active()


def test_a_lease_that_has_run_out_is_ended_before_etcd_looks(run: Run) -> None:
    run.give("n2", 99)
    run.memory.left_of[99] = TTL_S - 1
    run.interval(10)
    assert (99 in run.memory.leases, run.is_active()) == (True, False)
    run.memory.left_of[99] = 0
    run.interval()
    began_s = run.now_s
    while 99 in run.memory.leases:
        assert run.now_s < began_s + 1.5
        run.now_s += 0.05
        run.node.poll_etcd()
        run.help()
    assert began_s + 1.0 <= run.now_s <= began_s + 1.1
    run.node.poll_etcd()
    run.help()
    assert run.is_active()
    run.interval()
    run.now_s += ASK_INTERVAL_S / 2
    run.node.poll_etcd()
    assert run.waiting == []  # it asks as often as before


def test_a_lease_that_is_refreshed_at_the_last_moment_is_not_ended(run: Run) -> None:
    run.give("n2", 99)
    for left in (0, 0, 0, 1, 0, 0, 0, 0, 2, 0):
        run.memory.left_of[99] = left
        run.interval()
    assert 99 in run.memory.leases


def test_a_lease_that_etcd_has_ended_in_the_same_moment_is_no_problem(run: Run) -> None:
    run.give("n2", 99)
    run.memory.left_of[99] = 0

    def refuse(lease_id: int) -> None:
        run.memory.revoke(lease_id)
        raise EtcdError("requested lease not found")

    run.etcd.revoke = refuse  # type: ignore[attr-defined]
    for _ in range(6):
        run.interval()
        assert run.node.problem == ""
    run.node.poll_etcd()
    assert run.is_active()
