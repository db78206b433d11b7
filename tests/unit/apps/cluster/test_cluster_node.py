"""A node and etcd: who asks, when an answer counts, and what a silent etcd or a stuck loop leads to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from apps.cluster.cluster_node import ASK_INTERVAL_S, ClusterNode
from apps.cluster.etcd_client import EtcdError, KeyValue
from controller.cluster.leadership import LEASE_MARGIN_S
from controller.fabric.config_model import Cluster

TTL_S = 3


class FakeEtcd:
    """Answers as etcd does as long as ``down`` is False; ``owner`` is whose the active key is: (node, lease id).

    When it is ``full`` it refuses what would be written.
    """

    def __init__(self) -> None:
        self.full = False
        self.left = TTL_S  # of every lease, seconds
        self.down, self.owner, self.leases = False, ("", 0), [0]
        self.head: list[KeyValue] = []
        self.revision = 40
        self.revoked: list[int] = []

    def grant(self, ttl_s: int) -> int:
        assert ttl_s == TTL_S
        self._check(writes=True)
        self.leases.append(len(self.leases))
        return self.leases[-1]

    def keep_alive(self, lease_id: int) -> bool:
        self._check()
        return lease_id in self.leases

    def remaining_ttl_s(self, lease_id: int) -> int:
        self._check()
        return self.left

    def revoke(self, lease_id: int) -> None:
        self._check()
        self.revoked.append(lease_id)
        if lease_id == self.owner[1]:
            self.owner = "", 0

    def read(self, *ranges: Any) -> list[list[KeyValue]]:
        self._check()
        about = json.dumps({"node": self.owner[0], "url": "http://there:1"}).encode()
        active = [KeyValue("active", about, self.revision, 40, self.owner[1])] if self.owner[1] else []
        return [active, [], self.head, []]

    def transact(self, compare: Any, success: list[Any], failure: Any) -> tuple[bool, list[list[KeyValue]]]:
        self._check(writes=True)
        if not self.owner[1]:
            self.owner = "n1", int(success[0]["request_put"]["lease"])
        return True, self.read()

    def _check(self, *, writes: bool = False) -> None:
        if self.down or (self.full and writes):
            raise EtcdError("space exceeded" if self.full else "nobody is there")


class Run:
    """A node with a clock and a helper that are moved by hand."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.waiting: list[Callable[[], None]] = []
        cluster = Cluster("n1", "dets", ("http://127.0.0.1:1",), TTL_S, "http://here:1")
        self.node = ClusterNode(cluster, lambda: self.now_s, self.spawn)
        self.etcd = FakeEtcd()
        self.node.etcd = self.etcd  # type: ignore[assignment]
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
    assert run.node.active_generation() == 40
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
    while run.node.active_generation() is not None:
        run.interval()
    assert run.now_s - began_s <= TTL_S - LEASE_MARGIN_S + ASK_INTERVAL_S
    assert run.node.describe()["etcd"] == "nobody is there"
    run.etcd.down = False
    run.interval(2)
    assert run.node.active_generation() == 40
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
    run.etcd.full = True
    run.interval(40)
    assert run.node.active_generation() == 40
    run.etcd.owner = "", 0
    run.interval()
    run.node.poll_etcd()
    assert "space exceeded" in run.node.problem
    run.etcd.full = False
    run.interval()
    run.node.poll_etcd()
    assert run.node.problem == ""


def test_a_node_that_is_active_again_after_another_forgets_what_it_knew(run: Run) -> None:
    run.etcd.owner, run.etcd.revision = ("n2", 99), 41
    run.interval(2)
    assert (run.node.active_generation(), run.started_over) == (None, 0)
    run.etcd.owner, run.etcd.revision = ("n1", 1), 42
    run.interval(2)
    assert (run.node.active_generation(), run.started_over, run.node.takeovers) == (42, 1, 2)


def test_a_lease_that_is_gone_is_replaced_and_the_key_was_another_nodes_meanwhile(run: Run) -> None:
    run.etcd.leases.remove(1)
    run.etcd.owner = "n2", 99
    run.interval(2)
    assert run.node.active_generation() is None
    run.interval(3)
    described = run.node.describe()
    assert (described["role"], described["active"], described["active_url"]) == ("standby", "n2", "http://there:1")
    assert run.node.leadership.lease_id in run.etcd.leases


def test_a_node_that_leaves_gives_its_lease_up_and_never_asks_again(run: Run) -> None:
    run.node.release_lease()
    assert (run.etcd.revoked, run.node.active_generation()) == ([1], None)
    run.interval()
    assert (run.waiting, run.node.active_generation()) == ([], None)


def test_settings_of_the_other_node_come_before_the_lease_counts(run: Run) -> None:
    followed: list[bool] = []

    def refuse() -> bool:
        followed.append(False)
        raise EtcdError("the settings cannot be read")

    run.node.follow = refuse
    run.etcd.head = [KeyValue("head", b"", 7, 7, 0)]
    while run.node.active_generation() is not None:
        run.interval()
    assert followed
    run.node.follow = lambda: True
    run.interval(2)
    assert run.node.active_generation() == 40


def test_a_lease_that_has_run_out_is_ended_before_etcd_looks(run: Run) -> None:
    run.etcd.owner, run.etcd.revision = ("n2", 99), 41
    run.etcd.left = TTL_S - 1
    run.interval(10)
    assert (run.etcd.revoked, run.node.active_generation()) == ([], None)
    run.etcd.left, run.etcd.revision = 0, 42
    run.interval()
    began_s = run.now_s
    while not run.etcd.revoked:
        assert run.now_s < began_s + 1.5
        run.now_s += 0.05
        run.node.poll_etcd()
        run.help()
    assert began_s + 1.0 <= run.now_s <= began_s + 1.1
    run.node.poll_etcd()
    run.help()
    assert (run.etcd.revoked, run.node.active_generation()) == ([99], 42)
    run.interval()
    run.now_s += ASK_INTERVAL_S / 2
    run.node.poll_etcd()
    assert run.waiting == []  # it asks as often as before


def test_a_lease_that_is_refreshed_at_the_last_moment_is_not_ended(run: Run) -> None:
    run.etcd.owner, run.etcd.revision = ("n2", 99), 41
    for left in (0, 0, 0, 1, 0, 0, 0, 0, 2, 0):
        run.etcd.left = left
        run.interval()
    assert run.etcd.revoked == []


def test_a_lease_that_etcd_has_ended_in_the_same_moment_is_no_problem(run: Run) -> None:
    run.etcd.owner, run.etcd.revision, run.etcd.left = ("n2", 99), 41, 0

    def refuse(lease_id: int) -> None:
        run.etcd.owner, run.etcd.revision = ("", 0), 42
        raise EtcdError("requested lease not found")

    run.etcd.revoke = refuse  # type: ignore[method-assign]
    run.interval(6)
    run.node.poll_etcd()
    assert (run.node.active_generation(), run.node.problem) == (42, "")
