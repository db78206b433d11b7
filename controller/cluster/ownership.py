"""The owner of each switch in sharded mode.

Every switch has a key in etcd, attached to its owner's lease, as the active node's key is (leadership.py). Each owner
puts the key once: the key's mod_revision is the fencing token of that switch alone.

placement.py decides which node takes which switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from controller.cluster.leadership import Leadership
from controller.openflow.constants import ControllerRole


class Owner(NamedTuple):
    """The owner of a switch, with its lease and generation id."""

    node: str
    lease_id: int
    generation: int


class Ownership:
    """The switches' owners, by dpid, as one node knows them.

    The node relies on its own lease as ``leadership`` does.
    """

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self.owners: Mapping[int, Owner] = {}
        """the owners from the last reply of etcd that ``leadership`` has received as well"""

    def write_generation(self, dpid: int, now_s: float) -> int | None:
        """Return the generation under which this node may change a switch at ``now_s``, None if it may not."""
        owner = self.owners.get(dpid)
        if owner is None or owner.lease_id != self._leadership.lease_id:
            return None
        return owner.generation if self._leadership.is_lease_valid(now_s) else None

    def desired_role(self, dpid: int, now_s: float) -> tuple[ControllerRole, int] | None:
        """Return the role to request from a switch, with its generation id; None while its owner is unknown."""
        owner = self.owners.get(dpid)
        if owner is None:
            return None
        if owner.lease_id != self._leadership.lease_id:
            return ControllerRole.SLAVE, owner.generation
        own_generation = self.write_generation(dpid, now_s)
        return None if own_generation is None else (ControllerRole.MASTER, own_generation)
