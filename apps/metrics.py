"""``/metrics``: the controller's state in Prometheus' text format, version 0.0.4.

vn_metrics.py writes the metrics of each VN, a column at a time; prometheus_client writes the rest. The number of series
depends on the configuration only: no label comes from hosts or clients. Unknown values have no sample.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sized
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from apps.reload import Reloads
from apps.runtime.connection.connection_limits import ConnectionCounts, MessageCounts
from apps.runtime.loop_stats import LoopStats
from apps.runtime.supervisor import Supervisor
from apps.vn_metrics import guarantee_samples, samples, vlan_columns, vlan_labels, vn_columns, vn_labels
from controller import __version__
from controller.capability.capabilities import Verdict
from controller.central import port_enforceability
from controller.central.controller import CentralController
from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.monitoring.observer import Observer
from controller.monitoring.policy_metrics import bottleneck_counts

# The upper bounds of the histograms' buckets.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.055, 0.08, 0.11, 0.25, 0.5, 1.0, 2.5)
_ENFORCEABLE = {Verdict.YES: 1.0, Verdict.PARTLY: 0.5, Verdict.NO: 0.0}


class Southbound(Protocol):
    """The part of ``apps.southbound.southbound_driver`` that metrics use."""

    central: CentralController
    times: LoopStats

    @property
    def counts(self) -> Mapping[int, MessageCounts]:
        """Return the OpenFlow message counts by dpid."""

    @property
    def unmanaged(self) -> Sized:
        """Return the connections of switches that are not under control; only their number is used."""

    def is_ready(self, dpid: int) -> bool:
        """Return whether a switch is under control."""


class Transactions(Protocol):
    """The part of the queue reconciler that metrics use: its transactions, and the failed ones."""

    applied: int
    failed: int


def family_of(
    kind: type[CounterMetricFamily | GaugeMetricFamily], name: str, about: str, label: str, values: Mapping[Any, float]
) -> Metric:
    """Return a metric with one label; ``values`` has its samples by the label's values."""
    family = kind(name, about, labels=[label])
    for label_value, value in values.items():
        family.add_metric([str(label_value)], value)
    return family


class Metrics:
    """The controller's own metrics, and the page of all metrics.

    ``shell`` is the southbound driver, ``queues`` the queue reconciler, and ``peers`` the counts of all OpenFlow
    connections.
    """

    def __init__(
        self,
        shell: Southbound,
        loops: Supervisor,
        queues: Transactions,
        peers: ConnectionCounts,
        observer: Observer,
        reloads: Reloads,
    ) -> None:
        self.central, self.shell, self.loops, self.queues, self.peers = shell.central, shell, loops, queues, peers
        self.observer, self.reloads = observer, reloads
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(_Controller(self))
        self.round_s = Histogram(
            "dets_loop_round_seconds",
            "Rounds of the control loop, including the wait for the switches' counters.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.requests: Counter[str] = Counter()  # REST responses by status
        self.hub_lag_s = Histogram(
            "dets_event_loop_lag_seconds",
            "Event loop lag: delay between the requested and the actual wake-up of a sleeping greenlet.",
            buckets=_SECONDS,
            registry=self._registry,
        )

    def add(self, collector: Collector) -> None:
        """Add the metrics of this collector."""
        self._registry.register(collector)

    def page(self) -> Iterator[bytes]:
        """Yield the page in parts; other greenlets can run in between. All values of VNs are from the start."""
        columns = vn_columns(self.observer)
        labels_of_vns = vn_labels(self.central) if self.central.config.vn_metrics else []
        labels_of_vlans = vlan_labels(self.central)
        vlan_vid, seconds = self.central.vns.vlan_vid, self.observer.traffic.seconds.copy()
        yield generate_latest(self._registry)
        if labels_of_vns:
            yield from samples(labels_of_vns, columns)
        yield from samples(labels_of_vlans, vlan_columns(vlan_vid, columns))
        yield from guarantee_samples(labels_of_vlans, vlan_vid, seconds)


class _Controller(Collector):
    """Metrics with values from other parts of the controller."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the controller."""
        yield InfoMetricFamily(
            "dets_build", "The running version.", value={"version": __version__, "python": platform.python_version()}
        )
        yield from self._loop()
        yield from self._switches()
        yield from self._ports()
        yield from self._links()
        yield from self._service()
        # Also kinds without events, or the first event would be no increase.
        events = {kind: self._metrics.central.events.counts[kind] for kind in EventKind}
        yield family_of(CounterMetricFamily, "dets_events", "Events by kind.", "kind", events)
        about = "Rounds of background tasks that failed."
        failures = {task: loop.failures for task, loop in self._metrics.loops.loops.items()}
        yield family_of(CounterMetricFamily, "dets_task_failures", about, "task", failures)

    def _loop(self) -> Iterator[Metric]:
        """Yield the metrics of the control loop, of pairs and of OVSDB."""
        times = self._metrics.shell.times
        for name, about, value in (
            ("skipped_rounds", "Rounds of the control loop that were due and never began.", times.skipped_rounds),
            ("poll_timeouts", "Switches that did not send their counters in time.", times.poll_timeouts),
            ("read_meters", "Meters whose counters were read.", times.read_meters),
            ("modified_meters", "Meters that were modified.", times.modified_meters),
        ):
            yield CounterMetricFamily(f"dets_loop_{name}", about, value=value)
        interval_s = self._metrics.central.config.interval_s
        yield GaugeMetricFamily("dets_loop_interval_seconds", "The control interval.", value=interval_s)
        pair_count = len(self._metrics.central.state.entries)
        yield GaugeMetricFamily("dets_metered_pairs", "Pairs of VNs that have a meter.", value=pair_count)
        about = "Of these, pairs with a bottleneck, by bottleneck: a link, or the limit of a VN."
        bottlenecks = bottleneck_counts(self._metrics.central.fabric)
        yield family_of(GaugeMetricFamily, "dets_bottlenecked_pairs", about, "bottleneck", bottlenecks)
        queues = self._metrics.queues
        yield CounterMetricFamily(
            "dets_ovsdb_transactions", "Transactions with switches' databases.", value=queues.applied
        )
        yield CounterMetricFamily("dets_ovsdb_failures", "Of these, those that failed.", value=queues.failed)

    def _switches(self) -> Iterator[Metric]:
        """Yield the metrics of switches and of their connections."""
        about = "1 while the switch is under control; none where another node has it under control."
        ready = GaugeMetricFamily("dets_switch_ready", about, labels=["switch"])
        remote = self._metrics.central.fabric.share.remote_switches
        messages = CounterMetricFamily(
            "dets_openflow_messages", "OpenFlow messages except echoes.", labels=["switch", "direction"]
        )
        errors = CounterMetricFamily("dets_openflow_error_replies", "OpenFlow error replies.", labels=["switch"])
        for dpid, record in self._metrics.central.switches.items():
            name, counts = record.switch.name, self._metrics.shell.counts.get(dpid, MessageCounts())
            if dpid not in remote:
                ready.add_metric([name], float(self._metrics.shell.is_ready(dpid)))
            messages.add_metric([name, "sent"], counts.sent)
            messages.add_metric([name, "received"], counts.received)
            errors.add_metric([name], counts.errors)
        yield from (ready, messages, errors)
        peers, about = self._metrics.peers, "Connections that the controller evicted."
        yield family_of(CounterMetricFamily, "dets_openflow_evictions", about, "reason", peers.cut_off)
        about = "OpenFlow messages dropped unread."
        yield family_of(CounterMetricFamily, "dets_openflow_dropped_messages", about, "reason", peers.dropped)
        about, unmanaged = "Connections of switches that are not under control.", len(self._metrics.shell.unmanaged)
        yield GaugeMetricFamily("dets_openflow_unmanaged_connections", about, value=unmanaged)

    def _service(self) -> Iterator[Metric]:
        """Yield the metrics of REST and of the configuration."""
        requests = dict(sorted(self._metrics.requests.items()))
        yield family_of(CounterMetricFamily, "dets_rest_requests", "Answers of the REST interface.", "code", requests)
        reloads, about = self._metrics.reloads, "Reloads of the configuration."
        results = {"done": reloads.done, "failed": reloads.failed}
        yield family_of(CounterMetricFamily, "dets_config_reloads", about, "result", results)
        about = "When the effective configuration was read, seconds since 1970."
        yield GaugeMetricFamily("dets_config_last_load_timestamp_seconds", about, value=reloads.read_s)
        yield InfoMetricFamily("dets_config", "The file that was read last.", value={"sha256": reloads.sha256})

    def _links(self) -> Iterator[Metric]:
        """Yield the metrics of the configured links; the number of discovered links would have no bound."""
        observer, switch_name = self._metrics.observer, self._metrics.central.fabric.switch_name
        up = GaugeMetricFamily("dets_link_up", "1 while a link of the configuration is up.", labels=["a", "b"])
        capacity = GaugeMetricFamily("dets_link_capacity_bits_per_second", "Either way.", labels=["a", "b"])
        sent = CounterMetricFamily("dets_link_bytes", "Traffic of a link.", labels=["from", "to"])

        def location(end: PortId) -> str:
            return f"{switch_name(end.dpid)}:{end.port_no}"

        for link in observer.links.list_links(self._metrics.central.config):
            if link.capacity_bps is None:  # not in the configuration
                continue
            a, b = link.link
            up.add_metric([location(a), location(b)], float(link.up))
            capacity.add_metric([location(a), location(b)], link.capacity_bps)
            for start, end in ((a, b), (b, a)):
                sent_and_received = observer.ports.counted_bytes(start.dpid).get(start.port_no)
                if sent_and_received is not None:
                    sent.add_metric([location(start), location(end)], sent_and_received[0])
        yield from (up, capacity, sent)

    def _ports(self) -> Iterator[Metric]:
        """Yield the metrics of edge ports and of agents."""
        yield from self._port_states()
        yield from self._port_traffic()
        central = self._metrics.central
        about = "Whether limits can be enforced at an edge port: 1 yes, 0.5 partly, 0 no."
        enforceable = GaugeMetricFamily("dets_port_enforceable", about, labels=["switch", "port"])
        for dpid, record in central.switches.items():
            for port_no, found in port_enforceability.switch_verdicts(central.fabric, dpid).items():
                labels = [record.switch.name, record.switch.ports[port_no].label]
                enforceable.add_metric(labels, _ENFORCEABLE[found.verdict])
        yield enforceable
        about, agents = "Edge ports with an agent, by its state.", central.agents
        yield family_of(GaugeMetricFamily, "dets_agent_ports", about, "state", agents.counts())
        about = "Rejected frames of agents."
        yield family_of(CounterMetricFamily, "dets_agent_frames_rejected", about, "cause", agents.refused())

    def _port_states(self) -> Iterator[Metric]:
        """Yield the states that connected switches report for their edge ports."""
        up = GaugeMetricFamily("dets_port_up", "1 while an edge port has its link.", labels=["switch", "port"])
        about = "1 while an edge port carries nothing, because it is absent or may be the wrong port."
        fenced = GaugeMetricFamily("dets_port_fenced", about, labels=["switch", "port"])
        speed = GaugeMetricFamily(
            "dets_port_speed_bits_per_second", "Link speed reported by the switch.", labels=["switch", "port"]
        )
        for record in self._metrics.central.switches.values():
            for port_no, (state, _) in record.ports.items() if record.connected else ():
                labels = [record.switch.name, record.switch.ports[port_no].label]
                up.add_metric(labels, float(state.state == "up"))
                fenced.add_metric(labels, float(bool(state.fence)))
                if state.speed_bps:
                    speed.add_metric(labels, state.speed_bps)
        yield from (up, fenced, speed)

    def _port_traffic(self) -> Iterator[Metric]:
        """Yield the traffic, the capacity and the commitments of edge ports, and the frames dropped there."""
        central, vns = self._metrics.central, self._metrics.central.vns
        traffic = CounterMetricFamily(
            "dets_port_bytes",
            "Traffic that edge ports received from hosts and sent to them.",
            labels=["switch", "port", "direction"],
        )
        capacity = GaugeMetricFamily("dets_port_capacity_bits_per_second", "Capacity.", labels=["switch", "port"])
        committed = GaugeMetricFamily(
            "dets_port_committed_bits_per_second", "Sum of its VNs' limits.", labels=["switch", "port", "direction"]
        )
        dropped = CounterMetricFamily(
            "dets_port_refused_frames", "Hosts' frames dropped at their edge port.", labels=["switch", "port", "reason"]
        )
        for switch, port in central.config.ports():
            labels = [switch.name, port.label]
            capacity.add_metric(labels, port.capacity_bps)
            vn_rows = [vns.row_of(vid, switch.dpid, port.port_no) for vid in port.vlan_vids]
            rows = [row for row in vn_rows if row is not None]
            for direction, limits_bps in (("send", vns.send_limit_bps), ("receive", vns.receive_limit_bps)):
                committed.add_metric([*labels, direction], float(limits_bps[rows].sum()))
            for reason, count in (central.switches[switch.dpid].refused.counts_at_port(port.port_no) or {}).items():
                dropped.add_metric([*labels, reason], count)
        for dpid, record in central.switches.items():
            bytes_at = self._metrics.observer.ports.counted_bytes(dpid)
            for port_no in record.switch.ports.keys() & bytes_at.keys():
                for direction, count in zip(("sent", "received"), bytes_at[port_no], strict=True):
                    traffic.add_metric([record.switch.name, record.switch.ports[port_no].label, direction], count)
        yield from (traffic, capacity, committed, dropped)
