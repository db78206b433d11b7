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
    """What all nodes know: the live nodes, the switches that each is connected to, and the names of drained nodes.

    ``requested_nodes`` are the nodes requested for switches, ``owners`` the nodes that own them, both by dpid.
    """

    nodes: Collection[str]
    reached: Mapping[str, Collection[int]]
    drained: Collection[str]
    requested_nodes: Mapping[int, str]
    owners: Mapping[int, str]


def rendezvous_order(dpid: int, nodes: Iterable[str]) -> list[str]:
    """Return nodes in the order in which they may take a switch."""

    def weight(node: str) -> bytes:
        return hashlib.blake2b(f"{dpid:016x} {node}".encode(), digest_size=8).digest()

    return sorted(nodes, key=weight)


def candidates(dpid: int, known: ClusterView) -> list[str]:
    """Return the nodes that may take a switch, in order."""
    nodes = rendezvous_order(dpid, set(known.nodes).difference(known.drained))
    return sorted(nodes, key=lambda node: node != known.requested_nodes.get(dpid))


def connected_candidates(dpid: int, known: ClusterView) -> list[str]:
    """Return the candidates that are connected to a switch."""
    return [node for node in candidates(dpid, known) if dpid in known.reached.get(node, ())]


def is_unreached(dpid: int, known: ClusterView) -> bool:
    """Return whether a switch's owner reports that it is not connected to the switch."""
    owner = known.owners[dpid]
    return owner in known.reached and dpid not in known.reached[owner]


def move_target(dpid: int, known: ClusterView) -> str | None:
    """Return the node to which an owned switch must move; None: it stays.

    It moves if its owner is drained or not connected to it, or if its first connected candidate was requested.
    """
    owner, requested = known.owners[dpid], known.requested_nodes.get(dpid)
    leaving = owner in known.drained or is_unreached(dpid, known)
    if not leaving and requested in (None, owner):
        return None
    nodes = connected_candidates(dpid, known)
    if not nodes or not (leaving or requested == nodes[0]):
        return None
    return None if nodes[0] == owner else nodes[0]


class Placement:
    """The moves that the node ``me`` makes, and since when it could have made them.

    ``dpids`` are the configuration's switches.
    """

    def __init__(self, me: str, dpids: Collection[int]) -> None:
        self._me, self._dpids = me, dpids
        self._since_s: dict[int, float] = {}
        self._nodes: frozenset[str] = frozenset()
        self._began_s = math.inf  # when this node first appeared among the live ones
        self._goals: dict[int, tuple[str, str, float]] = {}  # owner, target, and since when
        self._coming_s: dict[int, float] = {}  # since when switches are in bring-up at their owners
        self.moving = False  # whether a switch is about to change its owner, to this node or another one

    def unowned_due(self, now_s: float, known: ClusterView, reached: Collection[int]) -> list[int]:
        """Return the unowned switches to take now, at most MAX_MOVES; ``reached`` are connected."""
        self._began_s = min(self._began_s, now_s) if self._me in known.nodes else math.inf
        nodes = frozenset(known.nodes).difference(known.drained)
        since_s = self._since_s if nodes == self._nodes else {}
        self._nodes = nodes
        waiting = (dpid for dpid in self._dpids if dpid not in known.owners and dpid in reached)
        self._since_s = {dpid: since_s.get(dpid, now_s) for dpid in waiting}
        if now_s - self._began_s < JOIN_DELAY_S or self._me not in nodes:
            return []
        waited_s = {dpid: now_s - at_s for dpid, at_s in self._since_s.items()}
        due = [
            dpid
            for dpid, each_s in waited_s.items()
            if each_s >= FALLBACK_DELAY_S * candidates(dpid, known).index(self._me)
        ]
        return due[:MAX_MOVES]

    def move_due(self, now_s: float, known: ClusterView, controlled: Collection[int]) -> int | None:
        """Return the switch to take from its owner now, or None.

        ``controlled`` are the switches under some node's control. A switch that is not, though its owner is connected,
        is being brought up there; this node waits for it at most MOVE_TIMEOUT_S.
        """
        before, self._goals = self._goals, {}
        coming = (
            dpid
            for dpid, owner in known.owners.items()
            if dpid not in controlled and dpid in known.reached.get(owner, ())
        )
        self._coming_s = {dpid: self._coming_s.get(dpid, now_s) for dpid in coming}
        for dpid, owner in known.owners.items():
            node = move_target(dpid, known)
            if node is not None:
                since_s = before[dpid][2] if before.get(dpid, ())[:2] == (owner, node) else now_s
                self._goals[dpid] = (owner, node, since_s)
        left_s = {
            dpid: since_s + (UNREACHABLE_GRACE_S if is_unreached(dpid, known) else MOVE_NOTICE_S) - now_s
            for dpid, (_, _, since_s) in self._goals.items()
        }
        self.moving = any(-MOVE_TIMEOUT_S < one_s <= MOVE_NOTICE_S for one_s in left_s.values())
        waits = any(now_s - since_s < MOVE_TIMEOUT_S for since_s in self._coming_s.values())
        if waits or now_s - self._began_s < JOIN_DELAY_S:
            return None
        return next((dpid for dpid, one_s in left_s.items() if one_s <= 0.0 and self._goals[dpid][1] == self._me), None)
