"""Whose each switch is where switches are shared out over nodes, and which ones a node takes next.

Every switch has a key in etcd, attached to its owner's lease, as the active node's key is (leadership.py): the key's
create_revision is the fencing token of that switch alone.

A switch without an owner is taken by a node that is connected to it. All live nodes have an order for each switch
(rendezvous hashing): the first takes it at once, the next ones TURN_S later each, where the ones before cannot reach
it. A node that has just come takes nothing for START_S, so that nodes that start together share the switches out; the
others know it by then, and begin their turns again when nodes come or go.
A switch is not moved while its owner lives.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from controller.cluster.leadership import Leadership
from controller.openflow.constants import ControllerRole

START_S = 2.0
TURN_S = 3.0
MOST_AT_ONCE = 100
"""switches taken in one transaction: etcd allows 128 operations"""


class Owner(NamedTuple):
    """Whose a switch is, under which lease and generation id."""

    node: str
    lease_id: int
    generation: int


class Ownership:
    """What a node knows of the switches' owners, by dpid. It relies on its own lease as ``leadership`` does."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self.owners: Mapping[int, Owner] = {}

    def hear(self, owners: Mapping[int, Owner]) -> None:
        """Etcd has answered; ``leadership`` has heard that answer too."""
        self.owners = owners

    def held(self, dpid: int, now_s: float) -> int | None:
        """Return the generation under which this node may change a switch at ``now_s``, None if it may not."""
        owner = self.owners.get(dpid)
        mine = owner is not None and owner.lease_id == self._leadership.lease_id
        return owner.generation if owner is not None and mine and self._leadership.relies(now_s) else None

    def wanted_role(self, dpid: int, now_s: float) -> tuple[ControllerRole, int] | None:
        """Return the role to ask a switch for, with its generation id; None while nobody is known to own it."""
        owner = self.owners.get(dpid)
        if owner is None:
            return None
        if owner.lease_id != self._leadership.lease_id:
            return ControllerRole.SLAVE, owner.generation
        held = self.held(dpid, now_s)
        return None if held is None else (ControllerRole.MASTER, held)


def order(dpid: int, nodes: Iterable[str]) -> list[str]:
    """Return nodes in the order in which they are to take a switch."""

    def weight(node: str) -> bytes:
        return hashlib.blake2b(f"{dpid:016x} {node}".encode(), digest_size=8).digest()

    return sorted(nodes, key=weight)


class Orphans:
    """Since when the node ``me`` could have taken switches that have no owner; which it takes."""

    def __init__(self, me: str, dpids: Collection[int]) -> None:
        self._me, self._dpids = me, dpids
        self._since_s: dict[int, float] = {}
        self._nodes: frozenset[str] = frozenset()
        self._began_s = math.inf  # when this node was first seen among the live ones

    def due(self, now_s: float, nodes: Collection[str], owned: Collection[int], reached: Collection[int]) -> list[int]:
        """Return the switches to take now, MOST_AT_ONCE at most.

        ``nodes`` are the live ones, ``owned`` the switches that have owners, ``reached`` those connected to this node.
        """
        self._began_s = min(self._began_s, now_s) if self._me in nodes else math.inf
        since_s = self._since_s if frozenset(nodes) == self._nodes else {}
        self._nodes = frozenset(nodes)
        waiting = (dpid for dpid in self._dpids if dpid not in owned and dpid in reached)
        self._since_s = {dpid: since_s.get(dpid, now_s) for dpid in waiting}
        if now_s - self._began_s < START_S or self._me not in nodes:
            return []
        due = [
            dpid for dpid, at_s in self._since_s.items() if now_s - at_s >= TURN_S * order(dpid, nodes).index(self._me)
        ]
        return due[:MOST_AT_ONCE]
