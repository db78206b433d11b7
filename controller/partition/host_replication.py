"""Replication of hosts between the nodes of a sharded fabric, by ``node_protocol.host_update``.

Only changes are sent, and the work does not grow with the number of hosts. A restarted peer gets all hosts, and sends
all of its own, in messages that both sides process in batches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from controller.cluster.ownership import Owner
from controller.fabric.vn_table import VnTable
from controller.forwarding.forwarding_state import ForwardingState
from controller.forwarding.pairs import Host
from controller.node_protocol.header import Octets
from controller.node_protocol.host_update import HostUpdateHeader, decode_host_update, encode_host_update
from controller.node_protocol.rejection import MessageRejectedError, RejectCause
from controller.partition.host_publisher import HostPublisher, Subscriber
from controller.partition.remote_hosts import HostSubscription, RemoteHosts

RETRANSMIT_S = 1.0
"""time without an acknowledgement after which a node retransmits, and minimum interval of unchanged messages"""
_HOST_BATCH = 25  # hosts per batch: each has flow entries at all local switches of its VLAN
_VN_BATCH = 500


@dataclass
class _Peer:
    subscription: HostSubscription = field(default_factory=HostSubscription)  # what this node has of its hosts
    hearer: Subscriber = field(default_factory=Subscriber)  # what it has of this node's hosts
    last: tuple[int, int] = (0, 0)  # incarnation and number of its last message
    sent_s: float = -np.inf
    answer: bool = False  # it has sent a message since the last one to it


class HostReplication:
    """Adds hosts behind peers' switches to ``network``, and publishes local hosts to peers.

    ``digest`` is the fabric's digest.
    """

    def __init__(self, network: ForwardingState, vns: VnTable, digest: bytes) -> None:
        self._vns, self._digest = vns, digest
        self._publisher = HostPublisher(vns, network.hosts_of_vn)
        self._others = RemoteHosts(network, vns, self._publisher)
        self._peers = defaultdict[str, _Peer](_Peer)
        self._owners: Mapping[int, str] = {}
        self._own: frozenset[int] = frozenset()
        self._token = self._number = 0

    def update_owners(self, owners: Mapping[int, str], name: str, token: int) -> None:
        """Set the owners of switches, by dpid; this node is ``name``, with the incarnation ``token``."""
        if token != self._token:
            self._token = token
            for peer in self._peers.values():
                peer.hearer = Subscriber()
        self._owners, before = dict(owners), self._own
        self._own = frozenset(dpid for dpid, node in owners.items() if node == name)
        if new := self._own - before:  # other nodes' claims on them are void
            self._others.withdraw_claims(np.flatnonzero(np.isin(self._vns.dpid, list(new))).tolist())

    def receive(self, node: str, data: Octets, now_s: float) -> int:
        """Receive a peer's message, and return its incarnation; raise MessageRejectedError for a useless one."""
        head, hosts = decode_host_update(data, self._digest, len(self._vns))
        peer = self._peers[node]
        if head[:2] <= peer.last:
            raise MessageRejectedError(
                RejectCause.ORDER, f"number {head.number} of {head.token} is not above that of the last one"
            )
        owned = np.array([dpid for dpid, owner in self._owners.items() if owner == node], dtype=np.uint64)
        if not np.isin(self._vns.dpid[hosts.vn], owned).all():
            raise MessageRejectedError(RejectCause.NOT_OWNED, "names VNs of switches that are not its own")
        peer.last, self._others.now_s = (head.token, head.number), now_s
        # The peer may know hosts of an earlier incarnation of this node: then all are sent again.
        known = head.known if head.known_token == self._token else 0
        peer.hearer.acknowledge(known if known <= self._publisher.number else 0, now_s)
        self._others.note_changes(self._own)
        peer.subscription.receive(head, hosts, self._publisher.number)
        peer.answer = peer.answer or head.until > head.since
        return head.token

    def apply_received(self) -> Iterator[None]:
        """Apply received updates in batches; yield after each but the last one. Only one caller at a time."""
        left = self._apply_batch()
        while left:
            yield
            left = self._apply_batch()

    def drain_new_hosts(self) -> list[Host]:
        """Return the new hosts behind other nodes' switches since the last call, and clear them."""
        new_hosts, self._others.new_hosts = self._others.new_hosts, []
        return new_hosts

    def _apply_batch(self) -> bool:
        """Apply a batch of received updates; return whether more remain."""
        vns, hosts = 0, 0
        for node, peer in self._peers.items():
            subscription = peer.subscription
            while subscription.pending:
                for vn in subscription.pending[0].vns:  # an iterator: the next batch continues where this one stops
                    if self._owners.get(self._vns.key(vn.row).dpid) == node:
                        hosts += self._others.apply(subscription.pending[0], vn, self._own)
                    vns += 1
                    if vns >= _VN_BATCH or hosts >= _HOST_BATCH:
                        return True
                subscription.known = subscription.pending.popleft().until
        return False

    def due(
        self, peers: Collection[str], up: Mapping[int, Owner], now_s: float, retransmit_s: float
    ) -> dict[str, bytes]:
        """Return the messages that are due to these peers; ``up`` are the local switches under control, by dpid.

        Changes are retransmitted after ``retransmit_s``. A message without changes acknowledges, or keeps alive.
        """
        self._others.note_changes(self._own)
        self._others.restore_hosts(self._own)
        self._publisher.set_owned_switches(up)
        found = dict[str, bytes]()
        for node in peers:
            peer = self._peers[node]
            since, until, hosts = self._publisher.due(peer.hearer, now_s, retransmit_s)
            if since == until and not peer.answer and now_s - peer.sent_s < RETRANSMIT_S:
                continue
            self._number += 1
            known = peer.subscription.token, peer.subscription.known
            found[node] = encode_host_update(
                HostUpdateHeader(self._token, self._number, since, until, *known), self._digest, hosts
            )
            peer.sent_s, peer.answer = now_s, bool(peer.subscription.pending)  # those must be acknowledged later
        return found
