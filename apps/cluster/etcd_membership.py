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
    """The nodes and the owners of switches, as in the reply of etcd that the control loop last applied.

    ``dpids`` are the configuration's switches, ``reached`` returns those connected to this node, ``controlled`` those
    under some node's control, as far as known. ``handover_state`` returns this node's state of a switch for the next
    owner, None without any, and ``import_handover_state`` imports the state from another node.

    ``reading`` are the operations that read the shared keys; ``synchronize`` gets their results. ``token`` is this
    node's incarnation, 0 before its key is written.
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
        # The last reply: owners by dpid, nodes by name, this node's incarnation, and the key of discovery probes.
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

    def monitored_leases(self, results: Sequence[list[KeyValue]], lease_id: int) -> set[int]:
        """Return the leases of other owners that this node, with its own ``lease_id``, monitors: at most MAX_WATCHED.

        They are the next higher ids in a ring, so that the same number of nodes monitors each lease. ``results`` are
        those of ``reading``.
        """
        leases = sorted({key_value.lease_id for key_value in results[_OWN]} - {lease_id})
        ring = [lease for lease in leases if lease > lease_id] + [lease for lease in leases if lease < lease_id]
        return set(ring[:MAX_WATCHED])

    def synchronize(
        self, etcd: EtcdClient, results: Sequence[list[KeyValue]], lease_id: int, epoch: int, now_s: float
    ) -> None:
        """Write this node's keys, take switches when it is this node's turn, and store the state for the control loop.

        ``results`` are those of ``reading``, ``epoch`` is the epoch of generation ids. Each write returns newer
        results. Raises EtcdError if etcd does not reply.
        """
        results = self._write(etcd, [], self._own_writes(results, lease_id)) or results
        if not results[-1]:  # no node has made the key of discovery probes yet
            secret_key = f"{self._prefix}secret"
            write_secret = put(secret_key, secrets.token_bytes(32))
            results = self._write(etcd, [created_at(secret_key, 0)], [write_secret]) or results
        if self._placement is None:
            self._placement = Placement(self.me, self.dpids)
        view = known_of(results)
        unowned = self._placement.unowned_due(now_s, view, self.reached())
        moving = None if unowned else self._placement.move_due(now_s, view, self.controlled())
        if unowned:
            still_unowned = [created_at(self._owner_key(dpid), 0) for dpid in unowned]
            results = self._claim(etcd, still_unowned, unowned, lease_id) or results
        elif moving is not None:
            key = self._owner_key(moving)
            revision = next(key_value.mod_revision for key_value in results[_OWN] if key_value.key == key)
            LOG.info("takes switch %016x from node %s", moving, view.owners[moving])
            results = self._claim(etcd, [modified_at(key, revision)], [moving], lease_id) or results
        nodes, _, owner_keys, *_, secret = results
        own_node = next((node for node in nodes if _name(node) == self.me), None)
        owners = {int(_name(owner), 16): Owner(*_owner(owner, epoch)) for owner in owner_keys}
        if self._snapshot is not None and self._snapshot[0] != owners:
            self._changed_s = now_s
        self._snapshot = (
            owners,
            {_name(node): NodeRecord(**json.loads(node.value)) for node in nodes},
            0 if own_node is None else own_node.mod_revision,
            secret[0].value if secret else b"",
        )

    def _own_writes(self, results: Sequence[list[KeyValue]], lease_id: int) -> list[Operation]:
        """Return the operations that bring this node's own keys up to date, none for a key that is right.

        The keys are the node's record, its reached switches, and the handover states of its switches, of which at most
        MAX_MOVES are written at once.
        """
        record = NodeRecord(str(self._cluster.peer_advertise), self.public_key, self._cluster.rest_advertise)._asdict()
        desired = {"nodes": record, "reached": sorted(self.reached())}
        writes = []
        # ``desired`` has the first two of _KINDS, in the same order as ``results``.
        for (kind, value), stored_keys in zip(desired.items(), results, strict=False):
            key, data = f"{self._prefix}{kind}/{self.me}", json.dumps(value).encode()
            if not any((stored.key, stored.lease_id, stored.value) == (key, lease_id, data) for stored in stored_keys):
                writes.append(put(key, data, lease_id))
        own_switches = [int(_name(key_value), 16) for key_value in results[_OWN] if key_value.lease_id == lease_id]
        for dpid in own_switches:
            state = self.handover_state(dpid)
            if state is not None and self._written_states.get(dpid) != state and len(writes) < MAX_MOVES:
                self._written_states[dpid] = state
                writes.append(put(f"{self._prefix}tested/{dpid:016x}", state))
        return writes

    def _owner_key(self, dpid: int) -> str:
        """Return the key of a switch's owner."""
        return f"{self._prefix}own/{dpid:016x}"

    def _claim(
        self, etcd: EtcdClient, conditions: list[Operation], dpids: Sequence[int], lease_id: int
    ) -> list[list[KeyValue]] | None:
        """Take switches if ``conditions`` hold, and import their handover states; return as ``_write`` does."""
        writes = [put(self._owner_key(dpid), self.me.encode(), lease_id) for dpid in dpids]
        state_reads = [get(f"{self._prefix}tested/{dpid:016x}") for dpid in dpids]
        results = self._write(etcd, conditions, writes, state_reads)
        if results is None:
            return None
        for states in results[len(self.reading) :]:
            for key_value in states:  # one at most
                try:
                    self.import_handover_state(int(_name(key_value), 16), key_value.value)
                except InvalidValueError as error:
                    LOG.warning("%s: %s", key_value.key, error)
        return results[: len(self.reading)]

    def _write(
        self, etcd: EtcdClient, conditions: list[Operation], writes: list[Operation], reads: Sequence[Operation] = ()
    ) -> list[list[KeyValue]] | None:
        """Write if ``conditions`` hold, which means that no other node was faster.

        Return the new results of ``reading``, and after a write also those of ``reads``. None if there is nothing to
        write, or if etcd rejects writes.
        """
        if not writes:
            return None
        try:
            results = etcd.transact(conditions, [*writes, *self.reading, *reads], self.reading)[1]
        except EtcdError as error:
            if not self._refused:  # log it once, although etcd is polled four times a second
                LOG.warning("switches keep their owners: %s", error)
            self._refused = True
            return None
        self._refused = False
        return results


def keys_of(prefix: str) -> list[Operation]:
    """Return the operations that read the keys of nodes and switches, one for each of _KINDS."""
    return [get(f"{prefix}{kind}/", prefix=True) for kind in _KINDS]


def known_of(results: Sequence[list[KeyValue]]) -> ClusterView:
    """Return the results of ``keys_of`` as a view; further results may follow them."""
    nodes, reached, owners, drained, requested_nodes, *_ = results
    return ClusterView(
        [_name(node) for node in nodes],
        {_name(node): frozenset(json.loads(node.value)) for node in reached},
        [_name(node) for node in drained],
        {int(_name(requested_node), 16): requested_node.value.decode() for requested_node in requested_nodes},
        {int(_name(owner), 16): owner.value.decode() for owner in owners},
    )


def _name(key_value: KeyValue) -> str:
    """Return the last part of a key: a node's name, or a dpid in hexadecimal digits."""
    return key_value.key.rpartition("/")[2]


def _owner(key_value: KeyValue, epoch: int) -> tuple[str, int, int]:
    """Return (node, lease id, generation id) of a switch's owner key."""
    return key_value.value.decode(), key_value.lease_id, generation_id(epoch, key_value.mod_revision)
