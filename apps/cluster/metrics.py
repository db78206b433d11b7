"""The metrics of a node of a cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from apps.metrics import family_of
from controller.node_protocol.rejection import RejectCause

if TYPE_CHECKING:  # these need the framework, metrics do not
    from apps.cluster.cluster_node import ClusterNode
    from apps.cluster.peer_exchange import PeerExchange
    from apps.cluster.peer_transport import PeerTransport
    from apps.cluster.role_manager import RoleManager


class ClusterMetrics(Collector):
    """The lease and the roles of one node."""

    def __init__(self, node: ClusterNode, roles: RoleManager) -> None:
        self._node, self._roles = node, roles

    def collect(self) -> Iterable[Metric]:
        """Yield the present samples."""
        node, active = self._node, self._node.active_generation() is not None
        about = "1 while this node is active: it may change switches or, in sharded mode, accepts changes of settings."
        yield GaugeMetricFamily("dets_cluster_active", about, value=float(active))
        age_s = node.lease_age_s()
        if math.isfinite(age_s):
            about = "Age of the last request that etcd answered."
            yield GaugeMetricFamily("dets_cluster_lease_age_seconds", about, value=age_s)
        yield CounterMetricFamily("dets_cluster_takeovers", "How often this node became active.", value=node.takeovers)
        about = "Roles and changes that switches rejected because another controller is their master."
        yield CounterMetricFamily("dets_cluster_role_refusals", about, value=self._roles.refused)


class SharingMetrics(Collector):
    """The shard of a node, and what it rejected from other nodes."""

    def __init__(self, node: str, exchange: PeerExchange) -> None:
        self._node, self._exchange = node, exchange

    def collect(self) -> Iterable[Metric]:
        """Yield the present samples."""
        owners = list(self._exchange.owners().values())
        about = "Switches that this node owns."
        yield GaugeMetricFamily("dets_cluster_owned_switches", about, value=owners.count(self._node))
        about = "Switches that no node owns, as far as this one knows."
        yield GaugeMetricFamily("dets_cluster_unowned_switches", about, value=owners.count(None))
        about = "Rejected messages of other nodes, by cause."
        refused = {cause: self._exchange.sharing.refused[cause] for cause in RejectCause}
        yield family_of(CounterMetricFamily, "dets_cluster_rejected_messages", about, "cause", refused)


class LinksMetrics(Collector):
    """The messages between one node and its peers, and rejected connections."""

    def __init__(self, links: PeerTransport) -> None:
        self._links = links

    def collect(self) -> Iterable[Metric]:
        """Yield the present samples."""
        about = "Messages to and from another node: sent, unsent (queue full), received."
        frames = CounterMetricFamily("dets_cluster_messages", about, labels=("peer", "result"))
        octets = CounterMetricFamily(
            "dets_cluster_message_bytes", "Bytes of these messages.", labels=("peer", "direction")
        )
        again = CounterMetricFamily("dets_cluster_reconnects", "Connections closed and opened again.", labels=("peer",))
        for peer, traffic in self._links.traffic.items():
            frames.add_metric((peer, "sent"), traffic.sent)
            frames.add_metric((peer, "unsent"), traffic.unsent)
            frames.add_metric((peer, "received"), traffic.received)
            octets.add_metric((peer, "sent"), traffic.sent_octets)
            octets.add_metric((peer, "received"), traffic.received_octets)
            again.add_metric((peer,), traffic.reconnects)
        yield from (frames, octets, again)
        about = "Rejections at the address for nodes, by cause: key, handshake, frame, flood."
        rejections = self._links.rejections
        yield family_of(CounterMetricFamily, "dets_cluster_rejected_connections", about, "cause", rejections)
