"""Faults that active-standby and sharded nodes have in common, and the checks after each."""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial

from apps.cluster.etcd_client import EtcdClient, EtcdError, put
from experiments.bench.cluster.testbed.fault_environment import FaultEnvironment, full
from experiments.bench.cluster.testbed.loaded_cluster import CHANGED_VN, LoadedCluster
from experiments.machine.cluster_process import name_of

LEASE_S = 3  # the default
HOLD_S, POLL_INTERVAL_S = LEASE_S + 1.0, 0.2  # every reaction has begun by then
STEP_S = 5 * 3600
PAGE_BYTES = 4096  # tmpfs allocates whole pages
_VALUE_BYTES = 200_000


class FaultScenarios(ABC):
    """Faults by name (``faults``), each of which is repaired before it returns. A failed check is a problem.

    ``ready`` names a node, the victim: the node whose loss has an effect.
    """

    def __init__(self, loaded: LoadedCluster, environment: FaultEnvironment) -> None:
        self.loaded, self.nodes, self.environment = loaded, loaded.cluster, environment

    @abstractmethod
    def faults(self) -> dict[str, Callable[[], None]]:
        """Return the faults by name, in the order in which to cause them."""

    @abstractmethod
    def ready(self) -> int:
        """Wait until all nodes are as at the beginning, and record their state; return the victim."""

    @abstractmethod
    def others_control(self, victim: int) -> bool:
        """Whether the other nodes have every switch under control."""

    @abstractmethod
    def is_unchanged(self, victim: int) -> bool:
        """Whether every node has the role that it had when ``ready`` returned."""

    def without_etcd(self) -> dict[str, Callable[[], None]]:
        """Return the ways to cut a node off from etcd."""
        ports = ", ".join(str(member.port) for member in self.nodes.etcd.members)
        to_etcd, from_etcd = f"tcp dport {{ {ports} }}", f"tcp sport {{ {ports} }}"
        return {
            "cut off from etcd": partial(self._without_etcd, from_etcd, to_etcd),
            "no requests to etcd": partial(self._without_etcd, "", to_etcd),
            "no replies from etcd": partial(self._without_etcd, from_etcd, ""),
        }

    def disks_and_clocks(self) -> dict[str, Callable[[], None]]:
        """Return the faults of full disks and clock steps."""
        return {
            "disk of a member full": self._member_full,
            "disks of etcd full": self._etcd_full,
            "disks of the nodes full": self._nodes_full,
            "clocks step": self._clocks_step,
        }

    # -- partitions

    @contextmanager
    def cut(self, number: int, incoming: str = "", outgoing: str = "") -> Iterator[None]:
        """Drop packets that match at a node, as ``Namespaces.cut`` does."""
        self.environment.network.cut(number, incoming, outgoing)
        try:
            yield
        finally:
            self.environment.network.heal(number)

    @contextmanager
    def unplugged(self, number: int) -> Iterator[None]:
        """Pull a node's cable."""
        self.environment.network.link(number, up=False)
        try:
            yield
        finally:
            self.environment.network.link(number, up=True)

    def without_link(self) -> None:
        """Pull the victim's cable: the other nodes take over its switches."""
        victim = self.ready()
        with self.unplugged(victim):
            self.taken_over(victim)

    def _without_etcd(self, incoming: str, outgoing: str) -> None:
        """Cut the victim off from etcd, as the filters say, and check the takeover."""
        victim = self.ready()
        with self.cut(victim, incoming, outgoing):
            self.taken_over(victim)
            self.expect(self._is_cut_off(victim), f"{name_of(victim)} reports that it is cut off")

    # -- etcd

    def _member_full(self) -> None:
        """Fill the disk of one member of etcd until it ends; the active node must stay active."""
        victim = self.ready()
        member = self.nodes.etcd.members[0]
        with full(self.environment.disks["etcd1"]), closing(EtcdClient(self.nodes.etcd.urls)) as client:

            def has_ended() -> bool:
                self._write(client)
                return not member.running

            self.nodes.wait(has_ended, "a member whose disk is full has ended")
            self.assert_stable(victim)
        member.launch()
        member.wait_answers()
        self.assert_stable(victim)

    def _etcd_full(self) -> None:
        """Fill the disks of all members of etcd until most have ended; no setting may then change."""
        self.ready()
        members = self.nodes.etcd.members
        with ExitStack() as stack:
            for number in range(len(members)):
                stack.enter_context(full(self.environment.disks[f"etcd{number + 1}"]))
            client = stack.enter_context(closing(EtcdClient(self.nodes.etcd.urls)))

            def most_have_ended() -> bool:
                self._write(client)
                return sum(not member.running for member in members) * 2 > len(members)

            self.nodes.wait(most_have_ended, "most members have ended")
            self.nobody_changes()
        for member in members:
            if not member.running:
                member.launch()
        self.etcd_is_back()

    def nobody_changes(self) -> None:
        """Check that all nodes report that they are cut off from etcd, store no change, and can still be read."""
        numbers = range(len(self.nodes.nodes))
        self.nodes.wait(lambda: all(map(self._is_cut_off, numbers)), "all nodes are cut off from etcd")
        self.expect(not self.loaded.change_once(), "no change is stored without etcd")
        for node in self.nodes.nodes:
            node.get(CHANGED_VN)

    def etcd_is_back(self) -> None:
        """Check that all members answer, and that the nodes continue automatically."""
        for member in self.nodes.etcd.members:
            member.wait_answers()
        self.nodes.wait_controls()
        self.assert_change_stored()

    # -- nodes' disks and clocks

    def _nodes_full(self) -> None:
        """Fill the nodes' disks: their logs exist, and not a byte can be written."""
        victim = self.ready()
        logs = [node.log_path for node in self.nodes.nodes]
        for log in logs:
            with log.open("ab") as file:
                file.write(b"\n" * (-log.stat().st_size % PAGE_BYTES))  # fills the last page of the log
        with ExitStack() as stack:
            for number in range(len(logs)):
                stack.enter_context(full(self.environment.disks[name_of(number)]))
            sizes = [log.stat().st_size for log in logs]
            self.assert_stable(victim)
            self._replaced(victim, signal.SIGKILL)
            self.expect([log.stat().st_size for log in logs] == sizes, "no log could be written")

    def _clocks_step(self) -> None:
        """Step clocks both ways at the victim, then at all nodes; also start a node on a wrong clock."""
        victim = self.ready()
        for victim_step_s, other_step_s in ((STEP_S, 0), (-STEP_S, 0), (-STEP_S, STEP_S)):
            for number, clock in enumerate(self.environment.clocks):
                clock.step(victim_step_s if number == victim else other_step_s)
            self.assert_change_stored()
        self.assert_stable(victim)
        self._replaced(victim, signal.SIGTERM)
        for clock in self.environment.clocks:
            clock.step(0)
        self.assert_change_stored()

    def _replaced(self, victim: int, by: signal.Signals) -> None:
        """End the victim by a signal, let the other nodes take over, and start the victim again."""
        self.nodes.nodes[victim].end(by)
        self.nodes.wait(lambda: self.others_control(victim), "the other nodes control the switches")
        self.assert_change_stored()
        self.nodes.nodes[victim].start()
        self.nodes.wait_ready()

    # -- checks

    def taken_over(self, victim: int) -> None:
        """Check that the other nodes take over, and that the victim changes nothing afterwards."""
        self.nodes.wait(lambda: self.others_control(victim), "the other nodes control the switches")
        self.expect(self.nodes.role(victim) not in ("active", "sharded"), f"{name_of(victim)} no longer decides")
        self.assert_change_stored()

    def assert_stable(self, victim: int, hold_s: float = HOLD_S) -> None:
        """Check that no role changes for ``hold_s``, and that a change is stored."""
        self.assert_change_stored()
        until_s = time.monotonic() + hold_s
        while time.monotonic() < until_s and self.is_unchanged(victim):
            time.sleep(POLL_INTERVAL_S)
        self.expect(self.is_unchanged(victim), "every node keeps its role, without an interruption")

    def assert_change_stored(self) -> None:
        """Check that a change is stored, now or soon."""
        self.nodes.wait(self.loaded.change_once, "a change is stored")

    def expect(self, true: bool, what: str) -> None:
        """Record a problem unless a condition is true."""
        if not true:
            self.loaded.judgement.problems.append(f"check failed: {what}")

    def _is_cut_off(self, number: int) -> bool:
        """Return whether a node reports that it cannot reach etcd."""
        return self.nodes.role(number) == "no-etcd"

    def _write(self, client: EtcdClient) -> None:
        """Write to etcd's database so that it grows; nothing while etcd is down."""
        with suppress(EtcdError):
            client.transact([], [put("/others/growing", os.urandom(_VALUE_BYTES))], [])
