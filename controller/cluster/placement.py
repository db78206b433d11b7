"""Which switches a node takes, and when: unowned switches, and switches that must change their owner.

For each switch the live nodes have an order (rendezvous hashing); a node that is requested for the switch comes first.

- A switch without an owner: the first node takes it at once, each next node FALLBACK_DELAY_S later, if the nodes before
  it cannot reach the switch. A node that has just joined takes nothing for JOIN_DELAY_S: in that time the other nodes
  learn of it, so that nodes that start together share the switches. Delays begin again when nodes join or leave.
- A switch with an owner is moved (``move_target``) if another node is requested for it, if its owner is drained, or if
  its owner is not connected to it. It goes to a connected node. Otherwise it stays while its owner lives.

A drained node takes nothing. A node takes one switch at a time from others, once the previous one is under control,
because each change of owner freezes grants. It first waits for MOVE_NOTICE_S, in which all nodes learn of the move
(``Placement.moving``). They then freeze grants, since the new owner sends the last owner nothing more, and poll etcd
often. An owner that is not connected has UNREACHABLE_GRACE_S to reconnect.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

JOIN_DELAY_S = 2.0
FALLBACK_DELAY_S = 3.0
MOVE_NOTICE_S = 0.5
UNREACHABLE_GRACE_S = 2.0
MOVE_TIMEOUT_S = 5.0
MAX_MOVES = 50
"""switches taken in one transaction, with two operations each: etcd allows 128"""


class ClusterView(NamedTuple):
    """The state of the cluster in etcd, which all nodes read.

    ``nodes`` are the live nodes, ``reached`` has the dpids of the switches that each node is connected to, ``drained``
    are the names of drained nodes. ``requested_nodes`` are the nodes requested for switches, ``owners`` the nodes that
    own them, both by dpid.
    """

    nodes: Collection[str]
    reached: Mapping[str, Collection[int]]
    drained: Collection[str]
    requested_nodes: Mapping[int, str]
    owners: Mapping[int, str]


def rendezvous_order(dpid: int, nodes: Iterable[str]) -> list[str]:
    """Return nodes in the order in which they may take a switch."""

    def node_weight(node: str) -> bytes:
        return hashlib.blake2b(f"{dpid:016x} {node}".encode(), digest_size=8).digest()

    return sorted(nodes, key=node_weight)


def candidates(dpid: int, cluster: ClusterView) -> list[str]:
    """Return the nodes that may take a switch, in order."""
    nodes = rendezvous_order(dpid, set(cluster.nodes).difference(cluster.drained))
    return sorted(nodes, key=lambda node: node != cluster.requested_nodes.get(dpid))


def connected_candidates(dpid: int, cluster: ClusterView) -> list[str]:
    """Return the candidates that are connected to a switch."""
    return [node for node in candidates(dpid, cluster) if dpid in cluster.reached.get(node, ())]


def is_unreached(dpid: int, cluster: ClusterView) -> bool:
    """Return whether a switch's owner reports that it is not connected to the switch."""
    owner = cluster.owners[dpid]
    return owner in cluster.reached and dpid not in cluster.reached[owner]


def move_target(dpid: int, cluster: ClusterView) -> str | None:
    """Return the node to which an owned switch must move; None: it stays.

    It moves if its owner is drained or not connected to it, or if its first connected candidate was requested.
    """
    owner, requested = cluster.owners[dpid], cluster.requested_nodes.get(dpid)
    leaving = owner in cluster.drained or is_unreached(dpid, cluster)
    if not leaving and requested in (None, owner):
        return None
    nodes = connected_candidates(dpid, cluster)
    if not nodes or not (leaving or requested == nodes[0]):
        return None
    return None if nodes[0] == owner else nodes[0]


class Placement:
    """The moves that the node ``local_node`` makes, and since when it could have made them.

    ``dpids`` are the configuration's switches.
    """

    def __init__(self, local_node: str, dpids: Collection[int]) -> None:
        self._local_node, self._dpids = local_node, dpids
        self._unowned_since_s: dict[int, float] = {}  # by dpid of connected, unowned switches
        self._nodes: frozenset[str] = frozenset()  # live and not drained, at the last call
        self._joined_s = math.inf  # when this node first appeared among the live ones
        self._moves: dict[int, tuple[str, str, float]] = {}  # by dpid: owner, target, and since when
        self._bring_up_since_s: dict[int, float] = {}  # by dpid of switches in bring-up at their owners
        self.moving = False  # whether a switch is about to change its owner, to this node or another one

    def unowned_due(self, now_s: float, cluster: ClusterView, reached: Collection[int]) -> list[int]:
        """Return the dpids of the unowned switches that this node takes now, at most MAX_MOVES.

        ``reached`` are the dpids of the switches that are connected to this node.
        """
        self._joined_s = min(self._joined_s, now_s) if self._local_node in cluster.nodes else math.inf
        nodes = frozenset(cluster.nodes).difference(cluster.drained)
        since_s = self._unowned_since_s if nodes == self._nodes else {}  # delays begin again with other nodes
        self._nodes = nodes
        unowned = (dpid for dpid in self._dpids if dpid not in cluster.owners and dpid in reached)
        self._unowned_since_s = {dpid: since_s.get(dpid, now_s) for dpid in unowned}
        if now_s - self._joined_s < JOIN_DELAY_S or self._local_node not in nodes:
            return []
        waited_s = {dpid: now_s - unowned_s for dpid, unowned_s in self._unowned_since_s.items()}
        due = [
            dpid
            for dpid, switch_waited_s in waited_s.items()
            if switch_waited_s >= FALLBACK_DELAY_S * candidates(dpid, cluster).index(self._local_node)
        ]
        return due[:MAX_MOVES]

    def move_due(self, now_s: float, cluster: ClusterView, controlled: Collection[int]) -> int | None:
        """Return the dpid of the switch that this node takes from its owner now, or None; set ``moving``.

        ``controlled`` are the switches under some node's control. A switch that is not, though its owner is connected,
        is being brought up there; this node waits for it at most MOVE_TIMEOUT_S.
        """
        in_bring_up = (
            dpid
            for dpid, owner in cluster.owners.items()
            if dpid not in controlled and dpid in cluster.reached.get(owner, ())
        )
        self._bring_up_since_s = {dpid: self._bring_up_since_s.get(dpid, now_s) for dpid in in_bring_up}
        old_moves, self._moves = self._moves, {}
        for dpid, owner in cluster.owners.items():
            target = move_target(dpid, cluster)
            if target is not None:
                since_s = old_moves[dpid][2] if old_moves.get(dpid, ())[:2] == (owner, target) else now_s
                self._moves[dpid] = (owner, target, since_s)
        remaining_s = {
            dpid: since_s + (UNREACHABLE_GRACE_S if is_unreached(dpid, cluster) else MOVE_NOTICE_S) - now_s
            for dpid, (_, _, since_s) in self._moves.items()
        }
        # Due within the notice, or overdue for a short time: a target that does not come must not freeze grants.
        self.moving = any(-MOVE_TIMEOUT_S < move_s <= MOVE_NOTICE_S for move_s in remaining_s.values())
        must_wait = any(now_s - since_s < MOVE_TIMEOUT_S for since_s in self._bring_up_since_s.values())
        if must_wait or now_s - self._joined_s < JOIN_DELAY_S:
            return None
        due = (dpid for dpid, move_s in remaining_s.items() if move_s <= 0.0)
        return next((dpid for dpid in due if self._moves[dpid][1] == self._local_node), None)
