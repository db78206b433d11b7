"""The active node of a cluster, as one node knows it, and how long that node may rely on it.

The active node holds one key in etcd, attached to a lease that its control loop refreshes. The key's create_revision
grows with every change of owner: it is the fencing token, and switches get it as OpenFlow's generation_id (1.3.5,
section 6.3.6). A switch refuses a role request with an older one, so that a node that was paused cannot come back.

1. A node sends its request to etcd at ``began_s``; etcd extends the lease no earlier than that.
2. So if the reply says that the key is this node's, it stays so until at least ``began_s`` + the lease's time to live.
3. The node relies on that for LEASE_MARGIN_S less, by its own clock, and then changes nothing until etcd replies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from controller.errors import InvalidValueError
from controller.openflow.constants import ControllerRole

LEASE_MARGIN_S = 0.5
# A generation id is 64 bits: the epoch, which is raised when etcd has lost its revisions, above 40 bits of revision.
# Switches compare ids in a circle, so two ids must not be 2^63 apart.
EPOCH_BITS, REVISION_BITS = 22, 40
MAX_EPOCH = 2**EPOCH_BITS - 1


def generation_id(epoch: int, revision: int) -> int:
    """Return the generation id of an owner, from the epoch and the revision of etcd at which its key was created."""
    if not 0 <= epoch <= MAX_EPOCH:
        raise InvalidValueError("epoch", epoch, f"is outside 0 to {MAX_EPOCH}")
    if not 0 < revision < 2**REVISION_BITS:
        raise InvalidValueError("revision", revision, f"is outside 1 to {2**REVISION_BITS - 1}")
    return epoch << REVISION_BITS | revision


@dataclass(frozen=True, slots=True)
class LeaseSnapshot:
    """Etcd's reply to the request of ``began_s``: this node's lease, and the active node with its generation.

    Without an active node, ``active`` is empty and ``generation`` is None.
    """

    began_s: float
    lease_id: int
    active: str
    active_lease_id: int
    generation: int | None


class Leadership:
    """What one node knows of the lease and the active node. ``ttl_s`` is the time to live of its lease."""

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self.lease_id: int | None = None
        self.confirmed_s = -math.inf  # the start of the last request that etcd answered
        self.active = ""
        self.generation: int | None = None  # of the active node, which may be another node
        self.is_mine = False  # this node was active in etcd's last reply; ``active_generation`` checks the reply's age

    def update(self, snapshot: LeaseSnapshot) -> None:
        """Store a reply of etcd. Replies must be given in the order of their requests."""
        self.lease_id, self.confirmed_s = snapshot.lease_id, snapshot.began_s
        self.active, self.generation = snapshot.active, snapshot.generation
        self.is_mine = snapshot.generation is not None and snapshot.active_lease_id == snapshot.lease_id

    def invalidate(self) -> None:
        """Forget the lease, which is lost or was released: a new one is needed."""
        self.lease_id, self.is_mine = None, False

    def is_lease_valid(self, now_s: float) -> bool:
        """Return whether this node may rely on its lease at ``now_s``."""
        return self.lease_id is not None and now_s < self.confirmed_s + self.ttl_s - LEASE_MARGIN_S

    def active_generation(self, now_s: float) -> int | None:
        """Return the generation under which this node is active at ``now_s``, None if it is not."""
        return self.generation if self.is_mine and self.is_lease_valid(now_s) else None

    def desired_role(self, now_s: float) -> tuple[ControllerRole, int] | None:
        """Return the role to request from switches, with its generation id; None while the active node is unknown."""
        own_generation = self.active_generation(now_s)
        if own_generation is not None:
            return ControllerRole.MASTER, own_generation
        return None if self.generation is None or self.is_mine else (ControllerRole.SLAVE, self.generation)
