"""Faults that a pair and nodes that share switches have in common, and what is looked at after each."""

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

LEASE_S = 3  # by default
HOLD_S, POLL_INTERVAL_S = LEASE_S + 1.0, 0.2  # whatever is to happen has begun by then
STEP_S = 5 * 3600
PAGE_BYTES = 4096  # that tmpfs gives a file at once
_VALUE_BYTES = 200_000


class FaultScenarios(ABC):
    """Faults by name (``faults``), each of which heals before it returns. What is not as it should be is a problem.

    ``ready`` names a node, the victim: the one whose loss would be noticed.
    """

    def __init__(self, loaded: LoadedCluster, ground: FaultEnvironment) -> None:
        self.loaded, self.nodes, self.ground = loaded, loaded.cluster, ground

    @abstractmethod
    def faults(self) -> dict[str, Callable[[], None]]:
        """Return what there is, by name, in the order in which to have it."""

    @abstractmethod
    def ready(self) -> int:
        """Wait until all nodes are as at the beginning, and note how that is; return the victim."""

    @abstractmethod
    def others_control(self, victim: int) -> bool:
        """Whether the other nodes have every switch under control."""

    @abstractmethod
    def is_unchanged(self, victim: int) -> bool:
        """Whether everybody is what they were when all was ``ready``."""

    def without_etcd(self) -> dict[str, Callable[[], None]]:
        """Return the ways to be cut off from etcd."""
        ports = ", ".join(str(member.port) for member in self.nodes.etcd.members)
        to_etcd, from_etcd = f"tcp dport {{ {ports} }}", f"tcp sport {{ {ports} }}"
        return {
            "cut off from etcd": partial(self._without_etcd, from_etcd, to_etcd),
            "no questions to etcd": partial(self._without_etcd, "", to_etcd),
            "no answers of etcd": partial(self._without_etcd, from_etcd, ""),
        }

    def disks_and_clocks(self) -> dict[str, Callable[[], None]]:
        """Return the disks that are full, and the clocks that step."""
        return {
            "disk of a member full": self._member_full,
            "disks of etcd full": self._etcd_full,
            "disks of the nodes full": self._nodes_full,
            "clocks step": self._clocks_step,
        }

    # -- partitions

    @contextmanager
    def cut(self, number: int, incoming: str = "", outgoing: str = "") -> Iterator[None]:
        """Drop packets that match at a node, as ``Namespaces.cut`` has it."""
        self.ground.network.cut(number, incoming, outgoing)
        try:
            yield
        finally:
            self.ground.network.heal(number)

    @contextmanager
    def unplugged(self, number: int) -> Iterator[None]:
        """Pull a node's cable."""
        self.ground.network.link(number, up=False)
        try:
            yield
        finally:
            self.ground.network.link(number, up=True)

    def without_link(self) -> None:
        """Pull the victim's cable: the others take its switches."""
        victim = self.ready()
        with self.unplugged(victim):
            self.taken_over(victim)

    def _without_etcd(self, incoming: str, outgoing: str) -> None:
        victim = self.ready()
        with self.cut(victim, incoming, outgoing):
            self.taken_over(victim)
            self.expect(self._is_cut_off(victim), f"{name_of(victim)} knows that it is cut off")

    # -- etcd

    def _member_full(self) -> None:
        victim = self.ready()
        member = self.nodes.etcd.members[0]
        with full(self.ground.disks["etcd1"]), closing(EtcdClient(self.nodes.etcd.urls)) as client:

            def ended() -> bool:
                self._write(client)
                return not member.running

            self.nodes.wait(ended, "a member whose disk is full has ended")
            self.assert_stable(victim)
        member.launch()
        member.wait_answers()
        self.assert_stable(victim)

    def _etcd_full(self) -> None:
        self.ready()
        members = self.nodes.etcd.members
        with ExitStack() as stack:
            for number in range(len(members)):
                stack.enter_context(full(self.ground.disks[f"etcd{number + 1}"]))
            client = stack.enter_context(closing(EtcdClient(self.nodes.etcd.urls)))

            def down() -> bool:
                self._write(client)
                return sum(not member.running for member in members) * 2 > len(members)

            self.nodes.wait(down, "most members have ended")
            self.nobody_changes()
        for member in members:
            if not member.running:
                member.launch()
        self.etcd_is_back()

    def nobody_changes(self) -> None:
        """All nodes have to say that they are cut off from etcd; no change is kept, and what there is can be read."""
        numbers = range(len(self.nodes.nodes))
        self.nodes.wait(lambda: all(map(self._is_cut_off, numbers)), "all nodes are cut off from etcd")
        self.expect(not self.loaded.change_once(), "no change is kept without etcd")
        for node in self.nodes.nodes:
            node.get(CHANGED_VN)

    def etcd_is_back(self) -> None:
        """All members have to answer, and the nodes to go on by themselves."""
        for member in self.nodes.etcd.members:
            member.wait_answers()
        self.nodes.wait_controls()
        self.assert_change_stored()

    # -- nodes' disks and clocks

    def _nodes_full(self) -> None:
        """The logs are there; not a byte of them can be written, nor anything else."""
        victim = self.ready()
        logs = [node.log_path for node in self.nodes.nodes]
        for log in logs:
            with log.open("ab") as file:
                file.write(b"\n" * (-log.stat().st_size % PAGE_BYTES))
        with ExitStack() as stack:
            for number in range(len(logs)):
                stack.enter_context(full(self.ground.disks[name_of(number)]))
            sizes = [log.stat().st_size for log in logs]
            self.assert_stable(victim)
            self._replaced(victim, signal.SIGKILL)
            self.expect([log.stat().st_size for log in logs] == sizes, "no log could be written")

    def _clocks_step(self) -> None:
        """Both ways at the victim, then each way at it and at the others; a node also starts on a wrong clock."""
        victim = self.ready()
        for here_s, there_s in ((STEP_S, 0), (-STEP_S, 0), (-STEP_S, STEP_S)):
            for number, clock in enumerate(self.ground.clocks):
                clock.step(here_s if number == victim else there_s)
            self.assert_change_stored()
        self.assert_stable(victim)
        self._replaced(victim, signal.SIGTERM)
        for clock in self.ground.clocks:
            clock.step(0)
        self.assert_change_stored()

    def _replaced(self, victim: int, by: signal.Signals) -> None:
        """End the victim, let the others take over, and start it again."""
        self.nodes.nodes[victim].end(by)
        self.nodes.wait(lambda: self.others_control(victim), "the other nodes control the switches")
        self.assert_change_stored()
        self.nodes.nodes[victim].start()
        self.nodes.wait_ready()

    # -- what is looked at

    def taken_over(self, victim: int) -> None:
        """The other nodes have to take over, and the victim to change nothing any more."""
        self.nodes.wait(lambda: self.others_control(victim), "the other nodes control the switches")
        self.expect(self.nodes.role(victim) not in ("active", "sharing"), f"{name_of(victim)} does not decide as well")
        self.assert_change_stored()

    def assert_stable(self, victim: int, hold_s: float = HOLD_S) -> None:
        """Nothing has to change hands for ``hold_s``, and a change to be kept."""
        self.assert_change_stored()
        until_s = time.monotonic() + hold_s
        while time.monotonic() < until_s and self.is_unchanged(victim):
            time.sleep(POLL_INTERVAL_S)
        self.expect(self.is_unchanged(victim), "everybody is what they were, without an interruption")

    def assert_change_stored(self) -> None:
        """A change has to be kept, now or soon."""
        self.nodes.wait(self.loaded.change_once, "a change is kept")

    def expect(self, true: bool, what: str) -> None:
        """Note a problem unless something is so."""
        if not true:
            self.loaded.judgement.problems.append(f"not so: {what}")

    def _is_cut_off(self, number: int) -> bool:
        return self.nodes.role(number) == "cut off from etcd"

    def _write(self, client: EtcdClient) -> None:
        """Let etcd's database grow, unless it is down."""
        with suppress(EtcdError):
            client.transact([], [put("/others/growing", os.urandom(_VALUE_BYTES))], [])
