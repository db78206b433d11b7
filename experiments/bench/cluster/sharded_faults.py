"""Faults of three sharded nodes: the victim owns the receiver's switch.

Every node reports the owners, and the switches log who changes them.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from functools import partial

from apps.cluster.placement_requests import PlacementRequests
from controller.shards.peer_timeout import GRANT_HOLD_S as PEERS_HOLD_S
from experiments.bench.cluster.fault_scenarios import HOLD_S, FaultScenarios
from experiments.bench.cluster.testbed.fault_environment import FaultEnvironment
from experiments.bench.cluster.testbed.loaded_cluster import RECEIVER, SWITCHES, LoadedCluster, request_placement
from experiments.machine.cluster_process import ShardedNodes, name_of, number_of

_RECEIVED = re.compile(r'^dets_cluster_messages_total\{peer="n(\d+)",result="received"\} (\S+)$', re.MULTILINE)
AFTER_S = 1.5
SWITCH = f"s{RECEIVER[0]}"


class ShardedFaults(FaultScenarios):
    """Faults of nodes each of which controls one of the switches."""

    def __init__(self, loaded: LoadedCluster, shared: ShardedNodes, environment: FaultEnvironment) -> None:
        super().__init__(loaded, environment)
        self._shared, self._numbers = shared, range(len(shared.nodes))
        self._owners_before: dict[str, str | None] = {}
        self._writers_before: list[int] = []

    def faults(self) -> dict[str, Callable[[], None]]:  # noqa: D102
        return {
            **self.without_etcd(),
            "cut off from a switch": partial(self._without_switch, True, True),
            "nothing from a switch": partial(self._without_switch, True, False),
            "nothing to a switch": partial(self._without_switch, False, True),
            "cut off from the other nodes": partial(self._without_peers, True, True),
            "nothing from the other nodes": partial(self._without_peers, True, False),
            "nothing to the other nodes": partial(self._without_peers, False, True),
            "cut off from everything": self.without_link,
            "each member of etcd killed": self._a_member_killed,
            "most members of etcd killed": self._most_members_killed,
            **self.disks_and_clocks(),
        }

    def ready(self) -> int:
        """Wait until every node has its switch again; return the owner of the receiver's switch."""
        self.nodes.wait_ready()
        request_placement(self.nodes, PlacementRequests.move_to_first_candidates)
        self.nodes.wait_ready()
        time.sleep(AFTER_S)
        self._owners_before, self._writers_before = self._shared.owners(), self._writers()
        self.expect(len(set(self._owners_before.values())) == len(SWITCHES), "every node has a switch")
        return number_of(str(self._owners_before[SWITCH]))

    def others_control(self, victim: int) -> bool:  # noqa: D102
        return self._shared.shared_by([number for number in self._numbers if number != victim])

    def is_unchanged(self, victim: int) -> bool:
        """Whether all nodes name the same owners as before, and no switch has had another writer."""
        return self._agree_on_owners([self._owners_before]) and self._writers() == self._writers_before

    def _without_switch(self, incoming: bool, outgoing: bool) -> None:
        """Cut an owner off from one switch; another node must own it, also afterwards."""
        victim = self.ready()
        source = self.environment.sources[RECEIVER[0]]
        name = name_of(victim)
        allowed_owners = [
            {**self._owners_before, SWITCH: name_of(number)} for number in self._numbers if number != victim
        ]
        with self.cut(victim, f"ip saddr {source}" if incoming else "", f"ip daddr {source}" if outgoing else ""):
            controlled = partial(self._shared.shared_by, self._numbers)
            self.nodes.wait(
                lambda: self._agree_on_owners(allowed_owners) and controlled(),
                f"a node other than {name} owns {SWITCH}",
            )
            self.assert_change_stored()
        time.sleep(HOLD_S)
        self.expect(self._agree_on_owners(allowed_owners), f"{SWITCH} keeps its new owner after {name} has recovered")

    def _without_peers(self, incoming: bool, outgoing: bool) -> None:
        """Cut a node off from the other nodes; all owners must stay, and no message may pass."""
        victim = self.ready()
        hosts = [host for number, host in enumerate(self.environment.network.hosts) if number != victim]
        to_peers, from_peers = (f"ip {end} {{ {', '.join(hosts)} }}" for end in ("daddr", "saddr"))
        with self.cut(victim, from_peers if incoming else "", to_peers if outgoing else ""):
            self.assert_stable(victim, PEERS_HOLD_S + HOLD_S)
            received = self._messages_received(victim)
            time.sleep(AFTER_S)
            self.expect(
                self._messages_received(victim) == received,
                f"no message passes between {name_of(victim)} and the others",
            )
        self.nodes.wait(lambda: self._messages_received(victim) > received, "messages pass again")
        self.assert_stable(victim)

    def _a_member_killed(self) -> None:
        """Kill each member of etcd, one after the other: no owner changes."""
        victim = self.ready()
        for member in self.nodes.etcd.members:
            member.end(signal.SIGKILL)
            self.assert_stable(victim)
            member.launch()
            member.wait_answers()

    def _most_members_killed(self) -> None:
        """Leave etcd without a quorum: nothing changes, and the nodes continue after its return."""
        self.ready()
        killed_members = self.nodes.etcd.members[1:]
        for member in killed_members:
            member.end(signal.SIGKILL)
        self.nobody_changes()
        for member in killed_members:
            member.launch()
        self.etcd_is_back()

    def _messages_received(self, victim: int) -> int:
        """Return how many messages a node has received from the others, and the others from it."""
        total = 0
        for number, node in enumerate(self.nodes.nodes):
            for peer, frames in _RECEIVED.findall(node.read("/metrics")):
                total += int(float(frames)) if victim in (number, int(peer) - 1) else 0  # "n1" is node number 0
        return total

    def _agree_on_owners(self, allowed: list[dict[str, str | None]]) -> bool:
        """Whether all nodes name the same owners, and these are among the ``allowed``."""
        owners = [node.health().get("cluster", {}).get("owners") for node in self.nodes.nodes]
        return all(owner == owners[0] for owner in owners) and owners[0] in allowed

    def _writers(self) -> list[int]:
        """Return how many successive writers each switch has had."""
        with self.loaded.fabric.locked():
            return [len(switch.writers) for switch in self.loaded.fabric.switches.values()]
