"""Exchange between a sharded node and its peers, in the control loop: messages, and the switches' owners.

It runs before and after an interval, and never waits: messages that a peer does not accept are lost, and later messages
replace them. The loop applies a batch of received host updates; the rest is applied in its idle time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from apps.cluster.cluster_node import ClusterNode
from apps.cluster.etcd_membership import EtcdMembership, NodeRecord
from apps.runtime.memory_tuning import with_gc_freezing
from controller.central.controller import CentralController
from controller.errors import InvalidValueError
from controller.partition.node_partition import NodePartition

if TYPE_CHECKING:  # ZeroMQ is optional
    from apps.cluster.peer_transport import PeerTransport

LOG = logging.getLogger("dets.cluster")
_ALL = object()  # marks the end of an iterator


class PeerExchange:
    """The work for other nodes in the control loop. ``now_s`` is the clock of the controller.

    ``probe_key`` is called with the key with which discovery probes are signed. ``ready`` returns the dpids of the
    switches under control. ``spawn`` starts long work, which calls ``yield_control`` between batches.
    """

    def __init__(
        self,
        node: ClusterNode,
        shared: EtcdMembership,
        links: PeerTransport,
        central: CentralController,
        now_s: Callable[[], float],
        ready: Callable[[], Collection[int]],
        probe_key: Callable[[bytes], None],
        spawn: Callable[..., object],
        yield_control: Callable[[], None],
    ) -> None:
        self._node, self._shared, self.links, self._now_s, self._ready = node, shared, links, now_s, ready
        self._probe_key, self._spawn, self._yield_control = probe_key, spawn, yield_control
        self._applying_hosts = False  # whether host updates are being applied, in the loop's idle time
        self.sharing = NodePartition(central, node.cluster.node)
        self._switches = {record.switch.name: dpid for dpid, record in central.switches.items()}
        shared.public_key, shared.dpids = links.public_key, list(central.switches)
        self._nodes: Mapping[str, NodeRecord] = {}

    def before_interval(self) -> None:
        """Process received messages: one batch of host updates now, the rest in the loop's idle time."""
        now_s = self._now_s()
        for name, data in self.links.receive():
            self.sharing.receive(name, data, now_s)
        if not self._applying_hosts:
            hosts = self.sharing.apply_host_updates(now_s)
            if next(hosts, _ALL) is not _ALL:  # the first batch is applied, and more updates remain
                self._applying_hosts = True
                self._spawn(self._apply_hosts, hosts)

    def _apply_hosts(self, hosts: Iterator[None]) -> None:
        """Apply host updates, and yield control between them; an error is logged."""
        yield_control = with_gc_freezing(self._yield_control)
        try:
            yield_control()
            for _ in hosts:
                yield_control()
        except Exception:  # the next intervals apply the rest
            LOG.exception("cannot apply host updates received from peers")
        finally:
            self._applying_hosts = False

    def after_interval(self) -> None:
        """Send the messages that are due, if this node owns its switches, and apply the owners from etcd."""
        shared, now_s = self._shared, self._now_s()
        self.sharing.end_interval(self._ready(), now_s)
        messages = self.sharing.drain_messages()
        if self._node.is_lease_valid():
            for name, data in messages.items():
                self.links.send(name, data)
        if shared.secret:
            self._probe_key(shared.secret)
        if shared.nodes != self._nodes:
            self._nodes = shared.nodes
            self._connect()
        self.sharing.update_owners(shared.owners, shared.token, now_s)
        if shared.moving:
            self.sharing.freeze_grants(now_s)

    def _connect(self) -> None:
        """Set the peers of the transport: all nodes except this one."""
        local = self._node.cluster.node
        peers = {name: (node.address, node.public_key) for name, node in self._nodes.items() if name != local}
        try:
            self.links.set_peers(peers)
        except InvalidValueError as error:
            LOG.error("a node's address is unusable: %s", error)

    def owners(self) -> dict[str, str | None]:
        """Return the node that owns each switch, by the switch's name; None: unowned."""
        owners = self._shared.owners
        return {name: owners[dpid].node if dpid in owners else None for name, dpid in self._switches.items()}

    def describe(self) -> dict[str, Any]:
        """Return the other nodes' part of ``/v1/health``."""
        nodes = {name: node.url for name, node in sorted(self._nodes.items())}
        return {"owners": self.owners(), "nodes": nodes}
