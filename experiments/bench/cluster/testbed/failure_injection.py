"""Random failures of nodes and of members of etcd, and their reversal."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from experiments.machine.cluster_process import Cluster, kill_machine_of


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
