"""Shared state of a sharded cluster in etcd: the nodes, the owner of each switch, and the key of discovery probes.

| key | value |
|---|---|
| ``nodes/NAME`` | a node's address and public key, under its lease; its mod_revision is its incarnation |
| ``reached/NAME`` | the dpids of the switches that it is connected to, a JSON list, under its lease |
| ``own/DPID`` | the owner's name, under its lease; its mod_revision is the fencing token of the switch |
| ``drained/NAME`` | the node is drained, until the key is removed |
| ``want/DPID`` | the node requested for the switch: under a lease for a move, without one for a pin |
| ``tested/DPID`` | the owner's test results and port names of the switch, for the next owner |
| ``secret`` | the key with which all nodes sign discovery probes |

All methods except ``apply_snapshot`` are called next to the control loop. A full etcd rejects writes: then owners stay.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from apps.cluster.etcd_client import EtcdClient, EtcdError, KeyValue, Operation, created_at, get, modified_at, put
from controller.cluster.leadership import generation_id
from controller.cluster.ownership import Owner
from controller.cluster.placement import MAX_MOVES, ClusterView, Placement
from controller.errors import InvalidValueError
from controller.fabric.config_model import Cluster

LOG = logging.getLogger("dets.cluster")
FAST_POLL_S = 1.0
"""time after a change of owners in which etcd is polled often"""
MAX_WATCHED = 4
"""leases of other owners that a node monitors"""
_KINDS = ("nodes", "reached", "own", "drained", "want")
_OWN = _KINDS.index("own")


class NodeRecord(NamedTuple):
    """A node: the address for messages, its public key, and the URL of its REST interface."""

    address: str
    public_key: str
    url: str


class EtcdMembership:
    """The nodes and the owners of switches, by etcd's reply that the control loop applied last (``apply_snapshot``).

    ``dpids`` are the configuration's switches, ``reached`` returns those connected to this node, ``controlled`` those
    under some node's control, as far as known. ``handover_state`` returns this node's state of a switch for the next
    owner, None without any, and ``import_handover_state`` imports the state from another node.
    """

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self._cluster, self._prefix, self.me = cluster, prefix, cluster.node
        self.reading: list[Operation] = [*keys_of(prefix), get(f"{prefix}secret")]
        self.public_key = ""
        self.dpids: Collection[int] = ()
        self.reached: Callable[[], Collection[int]] = tuple
        self.controlled: Callable[[], Collection[int]] = tuple
        self.handover_state: Callable[[int], bytes | None] = lambda dpid: None
        self.import_handover_state: Callable[[int, bytes], None] = lambda dpid, data: None
        self._written_states: dict[int, bytes] = {}  # as written by this node
        self._placement: Placement | None = None
        self._snapshot: tuple[Mapping[int, Owner], Mapping[str, NodeRecord], int, bytes] | None = None
        self._changed_s = -math.inf
        self._refused = False  # whether etcd rejected the last write
        self.owners: Mapping[int, Owner] = {}
        self.nodes: Mapping[str, NodeRecord] = {}
        self.token = 0
        self.secret = b""

    def apply_snapshot(self) -> None:
        """Apply etcd's last reply; called by the control loop."""
        if self._snapshot is not None:
            self.owners, self.nodes, self.token, self.secret = self._snapshot

    @property
    def moving(self) -> bool:
        """Return whether a switch is about to change its owner, to this node or another one."""
        return self._placement is not None and self._placement.moving

    def needs_fast_polling(self, now_s: float) -> bool:
        """Return whether switches are about to change their owners, or just have: then nodes must learn of it soon."""
        return self.moving or now_s - self._changed_s < FAST_POLL_S

    def monitored_leases(self, found: Sequence[list[KeyValue]], lease_id: int) -> set[int]:
        """Return the leases of other owners that this node, with its own ``lease_id``, monitors: at most MAX_WATCHED.

        They are the next ones in a ring, so that the same number of nodes monitors each lease.
        """
        leases = sorted({key_value.lease_id for key_value in found[_OWN]} - {lease_id})
        ring = [lease for lease in leases if lease > lease_id] + [lease for lease in leases if lease < lease_id]
        return set(ring[:MAX_WATCHED])

    def synchronize(
        self, etcd: EtcdClient, found: Sequence[list[KeyValue]], lease_id: int, epoch: int, now_s: float
    ) -> None:
        """Process the result of ``reading``; put this node's keys, and take switches when it is this node's turn.

        ``epoch`` is that of generation ids. Raises EtcdError if etcd does not reply.
        """
        found = self._write(etcd, [], self._about(found, lease_id)) or found
        if not found[-1]:
            place = f"{self._prefix}secret"
            found = self._write(etcd, [created_at(place, 0)], [put(place, secrets.token_bytes(32))]) or found
        if self._placement is None:
            self._placement = Placement(self.me, self.dpids)
        known = known_of(found)
        orphans = self._placement.unowned_due(now_s, known, self.reached())
        move = None if orphans else self._placement.move_due(now_s, known, self.controlled())
        if orphans:
            free = [created_at(self._place(dpid), 0) for dpid in orphans]
            found = self._claim(etcd, free, orphans, lease_id) or found
        elif move is not None:
            place = self._place(move)
            revision = next(key_value.mod_revision for key_value in found[_OWN] if key_value.key == place)
            LOG.info("takes switch %016x from node %s", move, known.owners[move])
            found = self._claim(etcd, [modified_at(place, revision)], [move], lease_id) or found
        nodes, _, owners, *_, secret = found
        mine = next((node for node in nodes if _name(node) == self.me), None)
        owner_of = {int(_name(owner), 16): Owner(*_owner(owner, epoch)) for owner in owners}
        if self._snapshot is not None and self._snapshot[0] != owner_of:
            self._changed_s = now_s
        self._snapshot = (
            owner_of,
            {_name(node): NodeRecord(**json.loads(node.value)) for node in nodes},
            0 if mine is None else mine.mod_revision,
            secret[0].value if secret else b"",
        )

    def _about(self, found: Sequence[list[KeyValue]], lease_id: int) -> list[Operation]:
        """Return the operations that write this node's own keys."""
        about = NodeRecord(str(self._cluster.peer_advertise), self.public_key, self._cluster.rest_advertise)._asdict()
        desired = {"nodes": about, "reached": sorted(self.reached())}
        writing = []
        for (kind, value), standing in zip(desired.items(), found, strict=False):
            place, data = f"{self._prefix}{kind}/{self.me}", json.dumps(value).encode()
            if not any((held.key, held.lease_id, held.value) == (place, lease_id, data) for held in standing):
                writing.append(put(place, data, lease_id))
        for key_value in found[_OWN]:
            shown = self.handover_state(dpid := int(_name(key_value), 16)) if key_value.lease_id == lease_id else None
            if shown is not None and self._written_states.get(dpid) != shown and len(writing) < MAX_MOVES:
                self._written_states[dpid] = shown
                writing.append(put(f"{self._prefix}tested/{dpid:016x}", shown))
        return writing

    def _place(self, dpid: int) -> str:
        return f"{self._prefix}own/{dpid:016x}"

    def _claim(
        self, etcd: EtcdClient, conditions: list[Operation], dpids: Sequence[int], lease_id: int
    ) -> list[list[KeyValue]] | None:
        """Take switches, with their stored state; return as ``_write``."""
        taking = [put(self._place(dpid), self.me.encode(), lease_id) for dpid in dpids]
        more = [get(f"{self._prefix}tested/{dpid:016x}") for dpid in dpids]
        found = self._write(etcd, conditions, taking, more)
        for (key_value,) in filter(None, found[len(self.reading) :] if found is not None else ()):
            try:
                self.import_handover_state(int(_name(key_value), 16), key_value.value)
            except InvalidValueError as error:
                LOG.warning("%s: %s", key_value.key, error)
        return None if found is None else found[: len(self.reading)]

    def _write(
        self, etcd: EtcdClient, conditions: list[Operation], writing: list[Operation], more: Sequence[Operation] = ()
    ) -> list[list[KeyValue]] | None:
        """Write, unless other nodes were first; return the resulting state, None if etcd rejects writes."""
        if not writing:
            return None
        try:
            found = etcd.transact(conditions, [*writing, *self.reading, *more], self.reading)[1]
        except EtcdError as error:
            if not self._refused:  # etcd is read four times a second
                LOG.warning("switches keep their owners: %s", error)
            self._refused = True
            return None
        self._refused = False
        return found


def keys_of(prefix: str) -> list[Operation]:
    """Return the ranges of nodes and switches to read."""
    return [get(f"{prefix}{kind}/", prefix=True) for kind in _KINDS]


def known_of(found: Sequence[list[KeyValue]]) -> ClusterView:
    """Return the results of ``keys_of`` as a view; further results may follow them."""
    nodes, reached, owners, drained, requested_nodes, *_ = found
    return ClusterView(
        [_name(node) for node in nodes],
        {_name(node): frozenset(json.loads(node.value)) for node in reached},
        [_name(node) for node in drained],
        {int(_name(requested_node), 16): requested_node.value.decode() for requested_node in requested_nodes},
        {int(_name(owner), 16): owner.value.decode() for owner in owners},
    )


def _name(key_value: KeyValue) -> str:
    return key_value.key.rpartition("/")[2]


def _owner(key_value: KeyValue, epoch: int) -> tuple[str, int, int]:
    """Return (node, lease id, generation id) of a switch's owner key."""
    return key_value.value.decode(), key_value.lease_id, generation_id(epoch, key_value.mod_revision)
