"""Three sharded nodes: how soon new owners decide, what a move costs, and kills in a row.

Three software switches have hosts that together send more than one receiver's limit. The master of a switch reads its
meters in every interval that it decides (``ReadingLog``): so the longest time between two readings is the longest time
without a decision. testbed checks meters, grants, writers and revisions.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from apps.cluster.placement_requests import PlacementRequests
from controller.openflow.constants import MessageType
from experiments.bench.cluster.testbed.failure_injection import ENDS, LONGEST_PAUSE_S, SETTLE_S, RandomFailures
from experiments.bench.cluster.testbed.loaded_cluster import (
    DPIDS,
    ClusterVerdict,
    LoadedCluster,
    request_placement,
    row_of_switches,
    shared_document,
)
from experiments.bench.cluster.testbed.switch_logs import ReadingLog
from experiments.machine.cluster_process import ShardedNodes, name_of, number_of

INTERVAL_S = 0.055
AFTER_S = 1.5
DEATH_EVERY_S, LONGEST_DEATH_S, MACHINE_SHARE = 60.0, 10.0, 0.5
CAUSES = ("moved", "drained", *ENDS)


@dataclass
class SharedReport:
    """The verdict, and what the changes of owners cost: one value per change, in lists by cause.

    ``undecided`` is the longest time without a decision for a switch whose owner changed, in intervals.
    ``refused_writes`` is how many changes switches refused during the node failures.
    """

    judgement: ClusterVerdict = field(default_factory=ClusterVerdict)
    undecided: dict[str, list[float]] = field(default_factory=dict)
    refused_writes: int = 0


def run_ownership_changes(repeats: int, kills: int, node_failures: int, seed: int, folder: Path) -> SharedReport:
    """Change owners ``repeats`` times by each cause, then disturb ``kills`` times at random; return the report.

    Then ``node_failures`` nodes fail, one every DEATH_EVERY_S. Raises ControllerError if the nodes do not recover.
    """
    with ShardedNodes(shared_document, folder) as nodes, row_of_switches(nodes) as fabric:
        run = _Run(LoadedCluster(nodes, fabric), nodes, seed)
        run.loaded.begin()
        for _ in range(repeats):
            for cause in CAUSES:
                run.measure(cause)
                print(f"{cause}: {run.report.undecided[cause][-1]:.1f} intervals without a decision", flush=True)
        for number in range(kills):
            print(f"{number + 1:>3}: {run.turn()}", flush=True)
        before = run.refused_writes()
        for number in range(node_failures):
            due_s = time.monotonic() + DEATH_EVERY_S
            print(f"{number + 1:>3}: {run.death()}", flush=True)
            time.sleep(max(0.0, due_s - time.monotonic()))
        run.report.refused_writes = run.refused_writes() - before
        run.report.judgement = run.loaded.judge()
        return run.report


class _Run(RandomFailures):
    """One run of the benchmark: changes of owners, random failures, and failures of nodes."""

    def __init__(self, loaded: LoadedCluster, nodes: ShardedNodes, seed: int) -> None:
        super().__init__(loaded, nodes, seed)
        self.report, self._nodes = SharedReport(), nodes

    # -- time without a decision

    def measure(self, cause: str) -> None:
        """Change the owner of a switch by one cause.

        Record the longest time without a decision for affected switches.

        A move affects one switch, every other cause all switches of the owner.
        """
        self._nodes.wait_ready()
        request_placement(self._nodes, PlacementRequests.move_to_first_candidates)
        self._nodes.wait_ready()
        time.sleep(AFTER_S)
        switch, owner = self._random.choice(sorted(self._nodes.owners().items()))
        assert owner is not None
        number, names = number_of(owner), [name_of(index) for index in range(len(self._nodes.nodes))]
        new_owner = self._random.choice([name for name in names if name != owner])
        owned_switches = [name for name, node in self._nodes.owners().items() if node == owner]
        affected = [switch] if cause == "moved" else owned_switches
        with self.loaded.fabric.locked():
            logs = [ReadingLog(self.loaded.fabric.switches[DPIDS[name]]) for name in affected]
        time.sleep(AFTER_S)
        self._end(cause, number, switch, new_owner)
        self._nodes.wait(lambda: all(len({node for _, node in log.read_s}) > 1 for log in logs), "others decide")
        time.sleep(AFTER_S)
        with self.loaded.fabric.locked():
            gap_s = max(log.longest_gap_s() for log in logs)
            for log in logs:
                log.close()
        # Without a change of owners, two readings are one interval apart.
        self.report.undecided.setdefault(cause, []).append(gap_s / INTERVAL_S - 1.0)
        if cause == "drained":
            request_placement(self._nodes, lambda requests: requests.undrain(owner))
        self._injector.undo()

    def _end(self, cause: str, number: int, switch: str, new_owner: str) -> None:
        """End a node's ownership by one cause: a move to ``new_owner``, a drain, a pause or a failure."""
        if cause == "moved":
            request_placement(self._nodes, lambda requests: requests.move(switch, new_owner))
        elif cause == "drained":
            request_placement(self._nodes, lambda requests: requests.drain(name_of(number)))
            request_placement(self._nodes, lambda requests: requests.wait_drained(name_of(number)))
        else:
            ENDS[cause](self._injector, number)

    # -- in a row

    def turn(self) -> str:
        self._nodes.wait_ready()
        return super().turn()

    def death(self) -> str:
        """Let a node fail, with its machine or alone, until the others own its switches; wait until it is back."""
        self._nodes.wait_ready()
        request_placement(self._nodes, PlacementRequests.move_to_first_candidates)
        self._nodes.wait_ready()
        number = self._random.randrange(len(self._nodes.nodes))
        cause = "machine dead" if self._random.random() < MACHINE_SHARE else "killed"
        lost_switches = [name for name, owner in self._nodes.owners().items() if owner == name_of(number)]
        other_nodes, begun_s = set(range(len(self._nodes.nodes))) - {number}, time.monotonic()
        ENDS[cause](self._injector, number)
        self._nodes.wait(lambda: self._nodes.shared_by(other_nodes), "other nodes own its switches", SETTLE_S)
        takeover_s = time.monotonic() - begun_s
        self.change_between(LONGEST_DEATH_S)
        self.count(cause)
        return f"{name_of(number)} {cause}; other nodes own its {len(lost_switches)} switches after {takeover_s:.1f} s"

    def refused_writes(self) -> int:
        """Return how many messages, role requests excepted, switches have refused so far."""
        with self.loaded.fabric.locked():
            refused = [kind for switch in self.loaded.fabric.switches.values() for kind, _ in switch.refused]
        return sum(kind != MessageType.ROLE_REQUEST for kind in refused)

    def kinds(self) -> Mapping[str, Callable[[], None]]:
        number = self._random.randrange(len(self._nodes.nodes))
        member = self._random.randrange(len(self._nodes.etcd.members))
        pause_s = self._random.uniform(0.3, LONGEST_PAUSE_S)
        of_members = {"member of etcd killed": lambda: self._injector.kill_member(member)}
        if self._injector.dead or self._nodes.paused:  # three nodes tolerate two failures
            return of_members
        return {
            "killed": lambda: self._injector.kill(number, signal.SIGKILL),
            "machine dead": lambda: self._injector.kill_machine(number),
            "stopped": lambda: self._injector.kill(number, signal.SIGTERM),
            "paused": lambda: self._injector.pause(number, pause_s),
            "drained and stopped": lambda: self._drain(number),
            "balanced": lambda: request_placement(self._nodes, PlacementRequests.move_to_first_candidates),
            **of_members,
        }

    def _drain(self, number: int) -> None:
        """Drain a node and stop it; ``undo`` undrains it."""
        name = name_of(number)
        request_placement(self._nodes, lambda requests: requests.drain(name))
        request_placement(self._nodes, lambda requests: requests.wait_drained(name))
        self._injector.undo_by(lambda: request_placement(self._nodes, lambda requests: requests.undrain(name)))
        self._injector.kill(number, signal.SIGTERM)
