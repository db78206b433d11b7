"""Random kills and stops in a row, of both nodes and of etcd's members, while traffic is limited and limits change.

Two controllers, three members of etcd, three software switches. In each turn a process is killed or paused, sometimes a
second one too, and restored after a while. testbed checks the result.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from experiments.bench.cluster.testbed.failure_injection import LONGEST_PAUSE_S, RandomFailures
from experiments.bench.cluster.testbed.loaded_cluster import ClusterVerdict, LoadedCluster, document, row_of_switches
from experiments.machine.cluster_process import Cluster

BOTH_READY_SHARE = 0.8  # of the turns begin with a standby that can take over


def run_kills(count: int, seed: int, folder: Path) -> ClusterVerdict:
    """Disturb an active-standby pair of nodes ``count`` times; return the verdict.

    Raises ControllerError if the nodes do not recover.
    """
    with Cluster(document, folder) as pair, row_of_switches(pair) as fabric:
        run = _Run(LoadedCluster(pair, fabric), pair, seed)
        run.loaded.begin()
        for turn in range(count):
            print(f"{turn + 1:>3}: {run.turn()}", flush=True)
        return run.loaded.judge()


class _Run(RandomFailures):
    """Failures of the active node, of the standby and of members."""

    def turn(self) -> str:
        if self._random.random() < BOTH_READY_SHARE:
            self._cluster.wait_ready()
        return super().turn()

    def kinds(self) -> Mapping[str, Callable[[], None]]:
        active = self._cluster.active
        if active is None:
            active = self._random.randrange(len(self._cluster.nodes))
        member = self._random.randrange(len(self._cluster.etcd.members))
        pause_s = self._random.uniform(0.3, LONGEST_PAUSE_S)
        injector = self._injector
        return {
            "active node killed": lambda: injector.kill(active, signal.SIGKILL),
            "active node's machine dead": lambda: injector.kill_machine(active),
            "active node stopped": lambda: injector.kill(active, signal.SIGTERM),
            "active node paused": lambda: injector.pause(active, pause_s),
            "standby killed": lambda: injector.kill(1 - active, signal.SIGKILL),
            "standby paused": lambda: injector.pause(1 - active, pause_s),
            "member of etcd killed": lambda: injector.kill_member(member),
            "member of etcd paused": lambda: injector.pause_member(member, pause_s),
        }
