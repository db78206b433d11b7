"""Failures of nodes and of members of etcd, their reversal, and random failures in a row."""

from __future__ import annotations

import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from experiments.bench.cluster.testbed.loaded_cluster import LoadedCluster
from experiments.machine.cluster_process import Cluster, kill_machine_of

LONGEST_PAUSE_S, LONGEST_WAIT_S = 6.0, 4.0
SECOND_SHARE = 0.3  # of the turns have a second failure
SETTLE_S = 60.0


class FailureInjector:
    """Kills and pauses of nodes and members, until ``undo``. ``dead`` are the nodes that have ended."""

    def __init__(self, nodes: Cluster) -> None:
        self._nodes = nodes
        self._undo: list[Callable[[], None]] = []
        self.dead: set[int] = set()

    def undo(self) -> None:
        """Undo all failures, in reverse order."""
        while self._undo:
            self._undo.pop()()

    def undo_by(self, undo: Callable[[], None]) -> None:
        """Add an undo step."""
        self._undo.append(undo)

    def kill(self, number: int, what: signal.Signals) -> None:
        """End a node by a signal, also when it is paused."""
        self._nodes.resume(number)
        self._nodes.nodes[number].end(what)
        if number not in self.dead:
            self.dead.add(number)
            self._undo.append(lambda: self._restart(number))

    def kill_machine(self, number: int) -> None:
        """Kill a node and its lease watchdog."""
        if number not in self.dead:
            kill_machine_of(self._nodes.nodes[number].pid)
            self.kill(number, signal.SIGKILL)

    def pause(self, number: int, seconds: float) -> None:
        """Pause a node, for ``seconds`` at least."""
        if number in self.dead:
            return
        self._nodes.send_signal(number, signal.SIGSTOP)

        def resume() -> None:
            time.sleep(seconds)
            self._nodes.resume(number)

        self._undo.append(resume)

    def kill_member(self, number: int) -> None:
        """End a member of etcd."""
        member = self._nodes.etcd.members[number]
        member.end(signal.SIGKILL)

        def restart() -> None:
            member.end(signal.SIGKILL)  # a member may be killed twice
            member.launch()
            member.wait_answers()

        self._undo.append(restart)

    def pause_member(self, number: int, seconds: float) -> None:
        """Pause a member of etcd, for ``seconds`` at least."""
        member = self._nodes.etcd.members[number]
        member.send_signal(signal.SIGSTOP)

        def resume() -> None:
            time.sleep(seconds)
            member.send_signal(signal.SIGCONT)

        self._undo.append(resume)

    def _restart(self, number: int) -> None:
        """Start a node that was ended."""
        self.dead.discard(number)
        self._nodes.nodes[number].start()


ENDS: Mapping[str, Callable[[FailureInjector, int], None]] = {
    "killed": lambda injector, number: injector.kill(number, signal.SIGKILL),
    "machine dead": FailureInjector.kill_machine,
    "paused": lambda injector, number: injector.pause(number, 0.0),
    "stopped": lambda injector, number: injector.kill(number, signal.SIGTERM),
}
"""How a node ends. Killed: its lease watchdog revokes the lease; with the machine the lease must expire. Paused: its
connections stay open, without data. Stopped: it hands over, as for an upgrade."""


class RandomFailures(ABC):
    """Random failures in a row of loaded nodes; each is counted in the verdict by its name."""

    def __init__(self, loaded: LoadedCluster, nodes: Cluster, seed: int) -> None:
        self.loaded, self._random = loaded, random.Random(seed)
        self._injector = FailureInjector(nodes)
        self._cluster = nodes

    @abstractmethod
    def kinds(self) -> Mapping[str, Callable[[], None]]:
        """Return the failures that are possible now, of random nodes and members, by name."""

    def turn(self) -> str:
        """Let something fail, change a limit during it and after it, and wait until all switches are under control."""
        names = [self._fail() for _ in range(2 if self._random.random() < SECOND_SHARE else 1)]
        self.change_between(LONGEST_WAIT_S)
        begun_s = time.monotonic()
        self._cluster.wait_controls()
        self._cluster.wait(self.loaded.change_once, "a change is stored", SETTLE_S)
        return f"{', '.join(names)}; all under control {time.monotonic() - begun_s:.1f} s after all were back"

    def change_between(self, longest_s: float) -> None:
        """Change a limit, wait for a random time, change it again, and undo all failures."""
        self.loaded.change_once()
        time.sleep(self._random.uniform(0.0, longest_s))
        self.loaded.change_once()
        self._injector.undo()

    def count(self, name: str) -> None:
        """Count a failure."""
        counts = self.loaded.judgement.disturbances
        counts[name] = counts.get(name, 0) + 1

    def _fail(self) -> str:
        """Inject one random failure and return its name."""
        kinds = self.kinds()
        name = self._random.choice(list(kinds))
        kinds[name]()
        self.count(name)
        return name
