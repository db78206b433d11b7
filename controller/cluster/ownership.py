"""Whose each switch is where switches are shared out over nodes, and which ones a node takes next.

Every switch has a key in etcd, attached to its owner's lease, as the active node's key is (leadership.py). The key is
put once by each owner: its mod_revision is the fencing token of that switch alone.

Who takes which is for placement.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from controller.cluster.leadership import Leadership
from controller.openflow.constants import ControllerRole


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

    def update(self, owners: Mapping[int, Owner]) -> None:
        """Etcd has answered; ``leadership`` has heard that answer too."""
        self.owners = owners

    def write_generation(self, dpid: int, now_s: float) -> int | None:
        """Return the generation under which this node may change a switch at ``now_s``, None if it may not."""
        owner = self.owners.get(dpid)
        mine = owner is not None and owner.lease_id == self._leadership.lease_id
        return owner.generation if owner is not None and mine and self._leadership.is_lease_valid(now_s) else None

    def desired_role(self, dpid: int, now_s: float) -> tuple[ControllerRole, int] | None:
        """Return the role to ask a switch for, with its generation id; None while nobody is known to own it."""
        owner = self.owners.get(dpid)
        if owner is None:
            return None
        if owner.lease_id != self._leadership.lease_id:
            return ControllerRole.SLAVE, owner.generation
        held = self.write_generation(dpid, now_s)
        return None if held is None else (ControllerRole.MASTER, held)
