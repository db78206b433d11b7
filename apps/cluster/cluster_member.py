"""A process that is one node of a cluster: its additional work compared with ``apps.membership``.

Switches wait for this node's role, and may be written to while its lease is valid (``controller.cluster.write_gate``).
The gate exists before a switch connects, and the roles before the southbound driver.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from apps.cluster.cluster_node import ClusterNode
from apps.cluster.etcd_tokens import EtcdTokens
from apps.cluster.lease_watchdog import LeaseWatchdog
from apps.cluster.metrics import ClusterMetrics, LinksMetrics, SharingMetrics
from apps.cluster.peer_exchange import PeerExchange
from apps.cluster.reachability import SwitchReachability
from apps.cluster.rest.node_client import NodeClient, Nodes
from apps.cluster.rest.request_forwarding import RequestForwarder
from apps.cluster.role_manager import RoleManager
from apps.membership import Standalone
from apps.metrics import Metrics
from apps.ovsdb.queue_reconciler import QueueReconciler
from apps.runtime.cooperative_scheduler import CooperativeScheduler
from apps.runtime.ryu_adapter import PeerDatapath, hub, run_in_thread
from apps.runtime.tls import RenewableContext
from apps.settings.settings import Settings
from apps.settings.store import SettingsStore
from apps.southbound.connected_switches import SwitchState
from apps.southbound.southbound_driver import SouthboundDriver
from controller.cluster.write_gate import WriteGate
from controller.errors import DetsError
from controller.fabric.config_model import Cluster


def _boot_time_s() -> float:
    """Return the seconds since the machine's boot, including those in which it slept, as etcd's leases count them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ClusterMember(Standalone):
    """A node of an active-standby cluster. Raises InvalidValueError."""

    def __init__(self, cluster: Cluster) -> None:
        self.node = ClusterNode(cluster, _boot_time_s, hub.spawn, run_in_thread)
        self._watchdog = LeaseWatchdog(cluster.etcd, cluster.ca, cluster.certificate, cluster.key)
        self.node.watch_lease = self._watchdog.set_lease
        self._hop = NodeClient(cluster.node, self.node.etcd.tls)
        PeerDatapath.new_gate = WriteGate
        self.roles: RoleManager = RoleManager(
            self.node.desired_role, self.node.write_generation, _boot_time_s, hub.spawn
        )

    def store(self, path: str) -> SettingsStore:
        """Return etcd's store; the path is not used."""
        return self.node.store

    def tokens(self, path: str) -> EtcdTokens:
        """Return etcd's tokens; the path is not used."""
        return self.node.tokens

    def tls_contexts(self) -> list[RenewableContext]:
        """Return the TLS context of etcd, which is also used towards other nodes."""
        return [self.node.etcd.tls]

    @staticmethod
    def run(function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function directly: etcd's sockets yield to others, and a thread would have no hub for them."""
        return function(*arguments)

    def drive(self, shell: SouthboundDriver, scheduler: CooperativeScheduler) -> None:
        """Let the role manager take switches under the driver's control, and release them."""
        self._shell = shell
        self.roles.control, self.roles.release = shell.control, shell.release

    def attach(self, settings: Settings, queues: QueueReconciler, metrics: Metrics) -> None:
        """Let the node apply the settings that others store, and add the cluster's metrics."""
        shell = self._shell

        def follow() -> bool:
            is_applied = settings.sync_from_store()
            if is_applied:
                shell.edge_ports.restore(settings.port_names())
                shell.push_soon()
                queues.wake()
            return is_applied

        self.node.follow = follow
        self.node.start_over = lambda: shell.start_over(settings.file.config, settings.values)
        metrics.add(ClusterMetrics(self.node, self.roles))

    def after_interval(self) -> None:
        """Process etcd's replies, and request the resulting roles from switches."""
        self.node.poll_etcd()
        self.roles.round()

    def about_others(self) -> dict[str, Any]:
        """Return the other nodes' part of ``/v1/health``."""
        return {}

    def waits(self, states: dict[str, str], cluster: dict[str, Any]) -> bool:
        """Return whether this node is on standby, with a connection of every switch; ``states`` are by switch name."""
        return cluster["role"] == "standby" and set(states.values()) == {SwitchState.STANDBY}

    def health(self, health: dict[str, Any]) -> dict[str, Any]:
        """Return the health with section ``cluster``. A complete standby node is ready; without etcd: degraded."""
        frozen = self._shell.central.state.adopted_bps is not None  # no grant rises above the adopted ones
        cluster = {**self.node.describe(), "frozen": frozen, **self.about_others()}
        ready = self.waits(health["switches"], cluster) and not health.get("faults")
        status = "ready" if ready else health["status"]
        return {**health, "status": "degraded" if cluster["etcd"] else status, "cluster": cluster}

    def remote_nodes(self) -> RequestForwarder:  # noqa: D102
        return RequestForwarder(self._nodes)

    def _nodes(self) -> Nodes:
        """Return the nodes as this one knows them now, with the node to which changes are forwarded, if any.

        This node accepts a change itself if it may write, or if no other active node with a URL is known: then its
        refusal is the answer.
        """
        node, state = self.node, {"owners": {}, "nodes": {}} | self.about_others()
        local, active = node.cluster.node, node.leadership.active
        accepts_changes = node.store.writable or active in ("", local) or not node.active_url
        remote_urls = {name: url for name, url in state["nodes"].items() if name != local}
        forward_changes_to = None if accepts_changes else (active, node.active_url)
        return Nodes(local, remote_urls, state["owners"], forward_changes_to, self._hop)

    def leave(self, shell: SouthboundDriver, queues: QueueReconciler, on_stop: str) -> None:
        """Release the lease, so that another node takes over with the present grants; meters and queues stay."""
        self.node.release_lease()
        self._watchdog.close()


class ShardedMember(ClusterMember):
    """A node of a sharded cluster."""

    def drive(self, shell: SouthboundDriver, scheduler: CooperativeScheduler) -> None:
        """Begin to listen to the other nodes; SystemExit if that is not possible."""
        super().drive(shell, scheduler)
        try:
            from apps.cluster.peer_transport import PeerTransport  # ZeroMQ is optional

            links = PeerTransport(str(self.node.cluster.peer_listen))
        except (DetsError, ImportError, OSError) as error:
            print(f"cluster.peer_listen: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        shared, peers = self.node.shared, shell.peers
        assert shared is not None
        now_s = time.monotonic
        self._reach = SwitchReachability(shared, self.roles, shell.central, peers, peers.ready, now_s, shell.edge_ports)

        def sign(key: bytes) -> None:
            shell.link_discovery.key = key

        self._exchange = PeerExchange(
            self.node, shared, links, shell.central, now_s, peers.ready, sign, hub.spawn, scheduler.yield_control
        )

    def attach(self, settings: Settings, queues: QueueReconciler, metrics: Metrics) -> None:  # noqa: D102
        super().attach(settings, queues, metrics)
        metrics.add(SharingMetrics(self.node.cluster.node, self._exchange))
        metrics.add(LinksMetrics(self._exchange.links))

    def before_interval(self) -> None:
        """Process the other nodes' messages."""
        self._exchange.before_interval()

    def after_interval(self) -> None:
        """Process etcd's replies, and send the messages that are due."""
        super().after_interval()
        self._reach.round()
        self._exchange.after_interval()

    def about_others(self) -> dict[str, Any]:  # noqa: D102
        return self._exchange.describe()

    def waits(self, states: dict[str, str], cluster: dict[str, Any]) -> bool:
        """Return whether every switch has an owner, the local switches are ready, and the remote ones connected."""
        expected_states = {
            name: SwitchState.READY if owner == self.node.cluster.node else SwitchState.STANDBY
            for name, owner in cluster["owners"].items()
            if owner is not None
        }
        return states == expected_states

    def leave(self, shell: SouthboundDriver, queues: QueueReconciler, on_stop: str) -> None:  # noqa: D102
        self._exchange.links.close()
        super().leave(shell, queues, on_stop)


def member(cluster: Cluster) -> ClusterMember:
    """Return the membership for this section of a configuration."""
    return ShardedMember(cluster) if cluster.mode == "sharded" else ClusterMember(cluster)
