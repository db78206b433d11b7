"""One node's part of a sharded fabric, and its messages from and to the other nodes.

The node controls its own switches as usual, with a shard's interval (``controller.shards``). The other switches' state
comes from their owners: hosts (``host_replication``), links, connected switches. An owner's report takes precedence.
The last reports of an unresponsive node stay valid.

When a switch changes its owner, no node raises a grant until every switch is under some node's control again, at most
SWITCH_WAIT_S after the last one connected, as after a restart (``may_lack_senders``).

The owner of the owned switch with the lowest dpid is the allocator for network-wide policies: that switch's key in etcd
is the allocator's, too.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass

import numpy as np

from controller.central.controller import CentralController
from controller.cluster.ownership import Owner
from controller.columns import BoolArray, IntArray
from controller.fabric.link_table import LinkTable
from controller.fabric.topology import Link, PortId
from controller.fabric.vn_table import VnTable
from controller.loop import control_step
from controller.loop.fabric_partition import FabricPartition
from controller.metering.counters import Readings
from controller.metering.fabric_readings import FabricReadings
from controller.node_protocol.bundle import Bundle, unbundle
from controller.node_protocol.header import Octets, fabric_digest
from controller.node_protocol.host_update import KIND as HOSTS
from controller.node_protocol.rejection import MessageRejectedError, RejectCause
from controller.node_protocol.switch_snapshot import KIND as PLACES
from controller.node_protocol.switch_snapshot import SnapshotHeader, SwitchSnapshot, decode_places, encode_snapshot
from controller.node_protocol.table_codec import message_kind
from controller.partition.host_replication import HostReplication
from controller.policy.policy_groups import PolicyGroup
from controller.shards.shard import NO_OWNER, Shard
from controller.switch.switch_record import SwitchRecord

RETRANSMIT_S = 1.0
"""interval of snapshots without changes"""
MIN_S = 0.2
"""minimum interval of snapshots"""
ACK_TIMEOUT_INTERVALS = 6
"""time in which peers learn the owner of a switch, and their reports arrive"""
PEER_TIMEOUT_S = 2.5
"""a node without messages for this long is unresponsive; less than the timeout of links"""
_ME = 0
_NO_SNAPSHOT = SnapshotHeader(0, 0)


@dataclass
class _Peer:
    """Another node. ``number`` identifies the node in this node's shard.

    ``up`` are the dpids of the switches under its control, ``sent_to`` the rows of the VNs to which its switches send.
    """

    number: int
    token: int = 0
    head: SnapshotHeader = _NO_SNAPSHOT
    received_s: float = -math.inf
    up: frozenset[int] = frozenset()
    sent_to: frozenset[int] = frozenset()


class NodePartition(FabricPartition):
    """The part of ``central``'s fabric that the node ``name`` controls. The configuration may not change later.

    ``refused`` counts rejected messages by cause. Raises InvalidValueError as ``Shard`` does.
    """

    is_whole = False

    def __init__(self, central: CentralController, name: str) -> None:
        fabric = central.fabric
        self._central, self._name, self._vns = central, name, fabric.vns
        links = fabric.links.link_table(fabric.vns, fabric.network.topology).names
        self._digest = fabric_digest(fabric.vns, links)
        nobody = np.full(len(fabric.vns), NO_OWNER)
        interval_s = fabric.config.interval_s
        self._shard = Shard(fabric.shared_vns, fabric.control.groups, nobody, _ME, 0, interval_s, links)
        self._token, self._allocator = 0, NO_OWNER
        self.owners: dict[int, Owner] = {}
        self._received: Mapping[int, Owner] | None = None
        self._peers: dict[str, _Peer] = {}
        self.remote_switches: frozenset[int] = frozenset()
        self._due: defaultdict[str, Bundle] = defaultdict(Bundle)
        self.refused: Counter[RejectCause] = Counter()
        self._once_controlled: set[int] = set()  # own switches that came under control since this node owns them
        self._peer_receivers: list[frozenset[int]] = []  # of each peer: rows of the VNs to which its switches send
        self._hosts = HostReplication(fabric.network, fabric.vns, self._digest)
        self._snapshot_number = 0
        self._snapshot_sent_s = self._repartitioned_s = -math.inf
        # Of the last snapshot: links, switches under control, lost switches, and the number of peers.
        self._last_snapshot: tuple[frozenset[Link], frozenset[int], frozenset[int], int] | None = None
        fabric.share, self.ownership_lag_s = self, ACK_TIMEOUT_INTERVALS * interval_s
        fabric.network.enable_sharding()

    @property
    def receives(self) -> BoolArray:  # noqa: D102
        return self._shard.scope

    @property
    def remote_senders(self) -> IntArray:  # noqa: D102
        return self._shard.remote_senders

    # -- owners of switches

    def update_owners(self, owners: Mapping[int, Owner], token: int, now_s: float) -> None:
        """Set the owners of switches; ``token`` grows with each new lease of this node.

        For grants, hosts and links, an unowned switch still counts as its last owner's.
        """
        if owners is self._received and token == self._token:
            return
        self._received, fabric = owners, self._central.fabric
        changed = {dpid for dpid, owner in owners.items() if dpid in fabric.switches and self.owners.get(dpid) != owner}
        lowest_dpid = min(owners.keys() & fabric.switches.keys(), default=None)
        allocator = self._allocator if lowest_dpid is None else self._number_of(owners[lowest_dpid].node)
        allocator_moves = allocator != self._allocator and self._shard.is_network_wide
        if not changed and token == self._token and not allocator_moves:
            # An allocator that no policy uses may move without a repartition.
            self._allocator = self._shard.allocator = allocator
            return
        for dpid in changed:
            if dpid in self.owners and self.owners[dpid].node == self._name:
                self._release_switch(dpid, now_s)
            self.owners[dpid] = owners[dpid]
        self._token, self._allocator, self._repartitioned_s = token, allocator, now_s
        if allocator_moves:  # only the old allocator has the reports of unowned switches
            changed |= fabric.switches.keys() - owners.keys()
        self.freeze_grants(now_s, changed)
        number_by_dpid = {dpid: self._number_of(owner.node) for dpid, owner in self.owners.items()}
        self._shard.state = fabric.state
        vn_owner = np.array([number_by_dpid.get(dpid, NO_OWNER) for dpid in self._vns.dpid.tolist()])
        self._shard.repartition(vn_owner, token, allocator, owners_digest(self.owners))
        self._hosts.update_owners({dpid: owner.node for dpid, owner in self.owners.items()}, self._name, token)

    def _number_of(self, node: str) -> int:
        """Return the number of a node in the shard; an unknown node becomes a peer with the next number."""
        if node == self._name:
            return _ME
        return self._peers.setdefault(node, _Peer(len(self._peers) + 1)).number

    def _release_switch(self, dpid: int, now_s: float) -> None:
        """Forget a switch's tables and pairs: another node changes them from now on."""
        fabric = self._central.fabric
        if fabric.switches[dpid].connected:
            self._central.on_switch_released(dpid, now_s)
        self._central.pairs.release_switch(dpid)
        self._central.network.release_switch(dpid)
        before = fabric.switches[dpid]
        fabric.switches[dpid] = SwitchRecord.from_config(before.switch, fabric.vns, fabric.config)
        fabric.switches[dpid].capabilities = before.capabilities

    def _owned_by(self, node: str) -> set[int]:
        return {dpid for dpid, owner in self.owners.items() if owner.node == node}

    # -- messages of other nodes

    def receive(self, node: str, message: Octets, now_s: float) -> None:
        """Receive a bundle of another node (``drain_messages``); rejected messages are counted."""
        try:
            for data in unbundle(message):
                self._receive(node, data, now_s)
        except MessageRejectedError as error:
            self.refused[error.cause] += 1

    def _receive(self, node: str, data: Octets, now_s: float) -> None:
        """Process one message of a node; count its rejection, or raise MessageRejectedError."""
        peer, kind = self._peers.get(node), message_kind(data)
        if peer is None:
            self.refused[RejectCause.NOT_OWNED] += 1
        elif kind == HOSTS:
            self._check_incarnation(node, peer, self._hosts.receive(node, data, now_s), now_s)
        elif kind == PLACES:
            head, snapshot = decode_places(data, self._digest, len(self._vns))
            self._check(node, peer, head, snapshot)
            self._check_incarnation(node, peer, head.token, now_s)
            peer.head, peer.received_s = head, now_s
            self._apply_snapshot(peer, snapshot, now_s)
        elif peer.number not in self._shard.peers:
            self.refused[RejectCause.NOT_OWNED] += 1
        else:
            error = self._shard.receive(peer.number, data, now_s)
            if error is not None:
                self.refused[error.cause] += 1
            self._check_incarnation(node, peer, self._shard.peers[peer.number].token, now_s)

    def apply_host_updates(self, now_s: float) -> Iterator[None]:
        """Apply received host updates in batches; yield after each but the last one.

        Then adopt installed pairs whose receivers became known by that. Only one caller at a time.
        """
        yield from self._hosts.apply_received()
        if new_hosts := self._hosts.drain_new_hosts():
            yield from self._central.reconciler.adopt_deferred(now_s, come=new_hosts)

    def _check_incarnation(self, node: str, peer: _Peer, token: int, now_s: float) -> None:
        """Detect a restarted node, which knows none of its switches' senders until it has read their tables."""
        if token <= peer.token:
            return
        has_restarted, peer.token = peer.token > 0, token
        if has_restarted:
            self.freeze_grants(now_s, self._owned_by(node))

    def freeze_grants(self, now_s: float, dpids: Set[int] = frozenset()) -> None:
        """Freeze grants until these switches are under some node's control; without any, for a while.

        Before a switch changes its owner, none is given: the new owner learns of the change first, and from then on
        sends the last owner nothing, which the last owner must not take for less traffic.
        """
        fabric = self._central.fabric
        fabric.arrivals.known -= dpids
        fabric.arrivals.new_s = now_s
        fabric.state = control_step.with_frozen_grants(fabric.state)

    def _check(self, node: str, peer: _Peer, head: SnapshotHeader, snapshot: SwitchSnapshot) -> None:
        """Raise MessageRejectedError for an old snapshot, or one of switches that the node does not own."""
        if head.token < peer.head.token:
            raise MessageRejectedError(
                RejectCause.TOKEN, f"token {head.token} is below {peer.head.token}: its owner was replaced"
            )
        if head <= peer.head:
            raise MessageRejectedError(RejectCause.ORDER, f"number {head.number} is not above {peer.head.number}")
        owned = np.array(sorted(self._owned_by(node)), dtype=np.uint64)
        # A probe is reported by the owner of the switch that received it; its sender may be any switch.
        columns = (snapshot.up, snapshot.lost_switches, snapshot.receiver_dpid)
        if not all(np.isin(dpids, owned).all() for dpids in columns):
            raise MessageRejectedError(RejectCause.NOT_OWNED, "names switches that are not its own")

    def _apply_snapshot(self, peer: _Peer, snapshot: SwitchSnapshot, now_s: float) -> None:
        """Apply a node's snapshot: its connected and lost switches, the VNs that it sends to, and discovery probes.

        A probe is a pair of ports, and is late if the next one from the same port has not arrived in time.
        """
        central, network = self._central, self._central.network
        peer.up, sent_to = frozenset(snapshot.up.tolist()), frozenset(snapshot.sent_to.tolist())
        if sent_to != peer.sent_to:  # an equal set stays the same object, which is quick to compare in each interval
            peer.sent_to = sent_to
        for dpid in peer.up:
            central.fabric.arrivals.connected(dpid, now_s)
            if dpid not in network.topology.switches:
                network.paths.switch_up(dpid)
        for dpid in set(snapshot.lost_switches.tolist()) & network.topology.switches:
            network.paths.switch_down(dpid)
        ends = (snapshot.sender_dpid, snapshot.sender_port, snapshot.receiver_dpid, snapshot.receiver_port)
        rows = zip(*(column.tolist() for column in ends), strict=True)
        probes = [(PortId(*row[:2]), PortId(*row[2:])) for row in rows]
        late_by_probe = dict(zip(probes, snapshot.late.tolist(), strict=True))
        network.paths.merge_peer_probes(peer.up, late_by_probe, now_s)

    # -- the interval

    def step(
        self,
        state: control_step.ControlState,
        vns: VnTable,
        groups: tuple[PolicyGroup, ...],
        readings: Readings,
        now_s: float,
        links: LinkTable | None,
        observed: FabricReadings | None,
        shaped: BoolArray | None,
    ) -> tuple[control_step.ControlState, control_step.StepResult]:
        """Run one interval of the local switches, and queue the messages to peers (``drain_messages``).

        Agents do not shape in sharded mode.
        """
        shard = self._shard
        if shard.groups is not groups:
            shard.set_policies(groups)
        shard.vns, shard.state = vns, state
        # The messages that these calls return are in the shard's bundles, too.
        shard.report(readings, now_s)
        shard.encode_readings(observed, now_s)
        shard.decide(now_s, links, observed)
        shard.encode_link_usage(now_s)
        result = shard.enforce(now_s)
        name_by_number = {peer.number: name for name, peer in self._peers.items()}
        self._due = defaultdict(Bundle)
        self._due |= {name_by_number[number]: bundle for number, bundle in shard.drain_messages().items()}
        return shard.state, result

    def released(self) -> None:
        """Let grants rise again; policies begin again, with all senders."""
        self._shard.reset_policies()

    def end_interval(self, ready: Collection[int], now_s: float) -> None:
        """After an interval, detect unresponsive peers, and queue snapshots and host updates for all peers.

        ``ready`` are the dpids of the switches under this node's control.
        """
        self._update_remote_switches(ready, now_s)
        owned = self._owned_by(self._name)
        controlled = frozenset(owned.intersection(ready))
        # Until RETRANSMIT_S after a change of owners, peers may not know the new owner and reject its messages.
        owners_settled = now_s - self._repartitioned_s >= RETRANSMIT_S
        self._queue_snapshot(owned, controlled, owners_settled, now_s)
        retransmit_s = RETRANSMIT_S if owners_settled else MIN_S
        own_owners = {dpid: self.owners[dpid] for dpid in controlled}
        for name, data in self._hosts.due(self._peers, own_owners, now_s, retransmit_s).items():
            self._due[name].put(data)

    def _update_remote_switches(self, ready: Collection[int], now_s: float) -> None:
        """Set the switches and receivers of responsive peers, and keep the links of switches that no node reads.

        ``ready`` are the dpids of the switches under this node's control.
        """
        network = self._central.network
        live = {name: peer for name, peer in self._peers.items() if now_s - peer.received_s < PEER_TIMEOUT_S}
        self.remote_switches = frozenset(
            dpid for dpid, owner in self.owners.items() if owner.node in live and dpid in live[owner.node].up
        )
        peer_receivers = [peer.sent_to for peer in self._peers.values()]
        if peer_receivers != self._peer_receivers:
            self._peer_receivers = peer_receivers
            network.remote_destinations = frozenset[int]().union(*peer_receivers)
        unread_switches = network.topology.switches - self.remote_switches - set(ready)
        if unread_switches:
            network.topology.refresh_switches(unread_switches, now_s)

    def _queue_snapshot(self, owned: set[int], controlled: frozenset[int], owners_settled: bool, now_s: float) -> None:
        """Queue a snapshot of this node's switches for all peers, if MIN_S or, without changes, RETRANSMIT_S is over.

        ``owned`` are the dpids of this node's switches, ``controlled`` of those that are under its control. Until
        ``owners_settled`` snapshots are repeated as if there were changes.
        """
        topology = self._central.network.topology
        self._once_controlled = (self._once_controlled | controlled) & owned
        lost = frozenset(self._once_controlled - topology.switches)  # switches that were here and disconnected
        # The number of peers, so that a new peer gets the snapshot soon.
        content = topology.links(), controlled, lost, len(self._peers)
        unchanged = owners_settled and content == self._last_snapshot
        if now_s - self._snapshot_sent_s < (RETRANSMIT_S if unchanged else MIN_S):
            return
        self._snapshot_sent_s, self._last_snapshot = now_s, content
        self._snapshot_number += 1
        head = SnapshotHeader(self._token, self._snapshot_number)
        data = encode_snapshot(head, self._digest, self._snapshot(controlled, lost, now_s))
        for name in self._peers:
            self._due[name].put(data)

    def drain_messages(self) -> dict[str, memoryview]:
        """Return the bundle for each peer by name, and clear them.

        Bundles that are not drained before the next interval are lost.
        """
        due, self._due = self._due, defaultdict(Bundle)
        return {name: bundle.data for name, bundle in due.items()}

    def _snapshot(self, up: frozenset[int], lost: frozenset[int], now_s: float) -> SwitchSnapshot:
        """Return the snapshot of this node's switches: connected, lost, and the discovery probes received."""
        network = self._central.network
        probes = network.topology.probes_received_at(up)
        late = np.array([network.topology.is_late(ends, now_s) for ends in probes], dtype=np.bool_)
        # (probes, 4): dpid and port number of the sender, then of the receiver.
        ends_table = np.array([(*sender, *receiver) for sender, receiver in probes], dtype=np.uint64)
        sender_dpid, sender_port, receiver_dpid, receiver_port = ends_table.reshape(-1, 4).T
        ports = sender_port.astype(np.int64), receiver_port.astype(np.int64)
        up_dpids, lost_dpids = (np.array(sorted(dpids), dtype=np.uint64) for dpids in (up, lost))
        receivers = network.pairs.receivers()
        return SwitchSnapshot(up_dpids, sender_dpid, receiver_dpid, *ports, late, receivers, lost_dpids)


def owners_digest(owners: Mapping[int, Owner]) -> bytes:
    """Return a digest that is equal for two nodes only if they know the same owners of switches."""
    return repr(sorted((dpid, owner.node) for dpid, owner in owners.items())).encode()
