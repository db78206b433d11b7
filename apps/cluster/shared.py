"""What nodes that share switches out keep in etcd: the nodes, the owner of each switch, and the key of the hellos.

| key | value |
|---|---|
| ``nodes/NAME`` | a node's address and public key, under its lease; its mod_revision is the token of its frames |
| ``own/DPID`` | the owner's name, under its lease; its create_revision is the fencing token of the switch |
| ``secret`` | the key by which all nodes sign hellos |

All calls but ``put_in_force`` are made next to the control loop. A full etcd refuses writes: owners stay then.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from apps.cluster.etcd import Etcd, EtcdError, KeyValue, Operation, created_at, get, put
from controller.cluster.leadership import generation_id
from controller.cluster.ownership import Orphans, Owner
from controller.fabric.description import Cluster

LOG = logging.getLogger("dets.cluster")


class Node(NamedTuple):
    """A node: where others send frames to, its public key, and where its REST interface is."""

    address: str
    public_key: str
    url: str


class Shared:
    """The nodes and the owners of switches, as etcd said when the control loop took it last (``put_in_force``).

    ``dpids`` are the configuration's switches, ``reached`` returns those that are connected to this node.
    """

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self._cluster, self._prefix = cluster, prefix
        self.reading: list[Operation] = [
            get(f"{prefix}nodes/", prefix=True),
            get(f"{prefix}own/", prefix=True),
            get(f"{prefix}secret"),
        ]
        self.public_key = ""
        self.dpids: Collection[int] = ()
        self.reached: Callable[[], Collection[int]] = tuple
        self._orphans: Orphans | None = None
        self._heard: tuple[Mapping[int, Owner], Mapping[str, Node], int, bytes] | None = None
        self.owners: Mapping[int, Owner] = {}
        self.nodes: Mapping[str, Node] = {}
        self.token = 0
        self.secret = b""

    def put_in_force(self) -> None:
        """The control loop takes what etcd said last."""
        if self._heard is not None:
            self.owners, self.nodes, self.token, self.secret = self._heard

    def ask(self, etcd: Etcd, found: Sequence[list[KeyValue]], lease_id: int, epoch: int, now_s: float) -> None:
        """Take what was found of ``reading``; put this node's key there, and take switches whose turn it is.

        ``epoch`` is that of generation ids. Raises EtcdError when etcd does not answer.
        """
        nodes, owners, secret = found
        key = f"{self._prefix}nodes/{self._cluster.node}"
        if not any(one.key == key and one.lease_id == lease_id for one in nodes) or not secret:
            about = Node(str(self._cluster.address), self.public_key, self._cluster.url)
            writing = [put(key, json.dumps(about._asdict()).encode(), lease_id)]
            found = self._write(etcd, [], writing) or found
            if not secret:
                place = f"{self._prefix}secret"
                found = self._write(etcd, [created_at(place, 0)], [put(place, secrets.token_bytes(32))]) or found
            nodes, owners, secret = found
        if self._orphans is None:
            self._orphans = Orphans(self._cluster.node, self.dpids)
        live = {_name(one): one for one in nodes}
        owned = {int(_name(one), 16) for one in owners}
        due = self._orphans.due(now_s, live.keys(), owned, self.reached())
        if due:
            places = [f"{self._prefix}own/{dpid:016x}" for dpid in due]
            taking = [put(place, self._cluster.node.encode(), lease_id) for place in places]
            nodes, owners, secret = self._write(etcd, [created_at(place, 0) for place in places], taking) or found
        mine = live.get(self._cluster.node)
        self._heard = (
            {int(_name(one), 16): Owner(*_owner(one, epoch)) for one in owners},
            {_name(one): Node(**json.loads(one.value)) for one in nodes},
            0 if mine is None else mine.mod_revision,
            secret[0].value if secret else b"",
        )

    def _write(self, etcd: Etcd, conditions: list[Operation], writing: list[Operation]) -> list[list[KeyValue]] | None:
        """Write, unless others were first; return what there is then, None where etcd refuses writes."""
        try:
            return etcd.transact(conditions, [*writing, *self.reading], self.reading)[1]
        except EtcdError as error:
            LOG.warning("switches keep their owners: %s", error)
            return None


def _name(one: KeyValue) -> str:
    return one.key.rpartition("/")[2]


def _owner(one: KeyValue, epoch: int) -> tuple[str, int, int]:
    return one.value.decode(), one.lease_id, generation_id(epoch, one.create_revision)
