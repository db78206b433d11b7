"""What ``/metrics`` says of a node of a cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:  # these need the framework, which a page of metrics does not
    from apps.cluster.node import ClusterNode
    from apps.cluster.roles import Roles


class ClusterMetrics(Collector):
    """The lease and the roles of one node."""

    def __init__(self, node: ClusterNode, roles: Roles) -> None:
        self._node, self._roles = node, roles

    def collect(self) -> Iterable[Metric]:
        """Yield the samples as they are now."""
        node, active = self._node, self._node.held() is not None
        yield GaugeMetricFamily("dets_cluster_active", "1 while this node may change switches.", value=float(active))
        age_s = node.lease_age_s()
        if math.isfinite(age_s):
            about = "Since the question that etcd answered last."
            yield GaugeMetricFamily("dets_cluster_lease_age_seconds", about, value=age_s)
        yield CounterMetricFamily("dets_cluster_takeovers", "How often this node became active.", value=node.takeovers)
        about = "Roles and changes that switches refused, since another controller is their master."
        yield CounterMetricFamily("dets_cluster_refused", about, value=self._roles.refused)
