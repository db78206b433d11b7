"""Random kills and stops in a row, of both nodes and of etcd's members, while traffic is limited and limits change.

Two controllers, three members of etcd, three software switches. In each turn a process is killed or paused, sometimes a
second one too, and restored after a while. testbed checks the result.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from experiments.bench.cluster.testbed.failure_injection import FailureInjector
from experiments.bench.cluster.testbed.loaded_cluster import ClusterVerdict, LoadedCluster, document, row_of_switches
from experiments.machine.cluster_process import Cluster, name_of

LONGEST_PAUSE_S, LONGEST_WAIT_S = 6.0, 4.0
BOTH_READY_SHARE = 0.8  # of the turns begin with a standby that can take over
SECOND_SHARE = 0.3  # of the turns have a second disturbance
SETTLE_S = 60.0


def run_kills(count: int, seed: int, folder: Path) -> ClusterVerdict:
    """Disturb an active-standby pair of nodes ``count`` times; return the verdict.

    Raises ControllerError if the nodes do not recover.
    """
    with Cluster(document, folder) as pair, row_of_switches(pair) as fabric:
        run = _Run(LoadedCluster(pair, fabric), random.Random(seed))
        run.loaded.begin()
        for turn in range(count):
            print(f"{turn + 1:>3}: {run.turn()}", flush=True)
        return run.loaded.judge()


class _Run:
    def __init__(self, loaded: LoadedCluster, random_: random.Random) -> None:
        self.loaded = loaded
        self._pair, self._random = loaded.cluster, random_
        self._done = FailureInjector(loaded.cluster)

    def turn(self) -> str:
        """Disturb, change a limit during the disturbance and after it, and wait until a node controls the switches."""
        if self._random.random() < BOTH_READY_SHARE:
            self._pair.wait_ready()
        names = [self._disturb()]
        if self._random.random() < SECOND_SHARE:
            names.append(self._disturb())
        self.loaded.change_once()
        time.sleep(self._random.uniform(0.0, LONGEST_WAIT_S))
        self.loaded.change_once()
        self._done.undo()
        begun_s = time.monotonic()
        active = self._pair.wait_controls()
        self._pair.wait(self.loaded.change_once, "a change is stored", SETTLE_S)
        return (
            f"{', '.join(names)}; {name_of(active)} in control {time.monotonic() - begun_s:.1f} s after all were back"
        )

    def _disturb(self) -> str:
        """Inject one random failure and return its name."""
        active = self._pair.active
        if active is None:
            active = self._random.randrange(len(self._pair.nodes))
        member = self._random.randrange(len(self._pair.etcd.members))
        pause_s = self._random.uniform(0.3, LONGEST_PAUSE_S)
        done = self._done
        kinds: Mapping[str, Callable[[], None]] = {
            "active node killed": lambda: done.kill(active, signal.SIGKILL),
            "active node's machine dead": lambda: done.kill_machine(active),
            "active node stopped": lambda: done.kill(active, signal.SIGTERM),
            "active node paused": lambda: done.pause(active, pause_s),
            "standby killed": lambda: done.kill(1 - active, signal.SIGKILL),
            "standby paused": lambda: done.pause(1 - active, pause_s),
            "member of etcd killed": lambda: done.kill_member(member),
            "member of etcd paused": lambda: done.pause_member(member, pause_s),
        }
        name = self._random.choice(list(kinds))
        kinds[name]()
        counts = self.loaded.judgement.disturbances
        counts[name] = counts.get(name, 0) + 1
        return name
