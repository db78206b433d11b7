"""The metrics of each VN, and of each VLAN: a column at a time, for there may be tens of thousands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from controller.central.controller import CentralController
from controller.columns import FloatArray, IntArray
from controller.monitoring.observer import Observer
from controller.monitoring.traffic_totals import COLUMNS, GuaranteeState

# Samples written before other greenlets run, about a millisecond.
BATCH_SIZE = 2000
_BYTE_COUNTERS = {
    "received": "Sent to the VN, behind the meters of its senders.",
    "sent": "Sent by the VN, behind its meters.",
    "offered": "Sent to the VN, before any meter of its senders.",
    "send_offered": "Sent by the VN, before its send limit.",
    "dropped": "Dropped by the meters of its senders' pairs with it.",
    "send_limit_dropped": "Dropped at the VN's send limit.",
    "granted": "What its active senders were granted while it was congested.",
    "flooded": "Floods sent by the VN: broadcast, multicast and unknown unicast.",
    "flood_dropped": "Floods dropped by its meters.",
    "flood_received": "Received floods of other VNs.",
}
_POLICY_COUNTERS = {
    "marked": "Received traffic that its policy counts as marked; no sample without marks.",
    "lost": "Traffic to it that its policy counts as lost on the path; no sample without losses.",
}


class MetricColumn(NamedTuple):
    """One metric of all VNs: its name, description, type, and a value for each VN, NaN where unknown."""

    name: str
    description: str
    kind: str
    values: FloatArray


def vn_columns(observer: Observer) -> list[MetricColumn]:
    """Return the metrics of all VNs: present limits and states, and counts since the start."""
    observer.sync_vns()
    central, traffic = observer.central, observer.traffic
    vns, fabric = central.vns, central.fabric

    def gauge(name: str, description: str, values: Any) -> MetricColumn:
        return MetricColumn(f"dets_vn_{name}", description, "gauge", np.asarray(values, dtype=np.float64))

    def counter(name: str, description: str, values: FloatArray) -> MetricColumn:
        return MetricColumn(f"dets_vn_{name}_total", description, "counter", values)

    bytes_of = dict(zip(COLUMNS, traffic.bytes.copy(), strict=True))
    is_measured = dict(zip(COLUMNS, ~np.isnan(traffic.mean_bps), strict=True))

    def policy_bytes(name: str) -> FloatArray:  # NaN where the policy measures no such traffic
        has_value = is_measured[name] | (bytes_of[name] > 0.0)
        return np.where(has_value, bytes_of[name], np.nan)

    bps = "bits_per_second"
    return [
        gauge(f"send_limit_{bps}", "Send limit.", vns.send_limit_bps),
        gauge(f"receive_limit_{bps}", "Receive limit.", vns.receive_limit_bps),
        gauge(f"flood_limit_{bps}", "Its flood limit.", fabric.flood_limit_bps),
        gauge("congested", "1 while the VN is offered more than it may receive.", fabric.congestion.congested),
        gauge(
            "guarantee_violated", "1 while it receives less than offered within its limit.", fabric.guarantees.violated
        ),
        gauge(
            "send_guarantee_violated",
            "1 while it sends less than it offers within both ends' limits, where VNs borrow.",
            fabric.send_guarantees.violated,
        ),
        *(counter(f"{name}_bytes", description, bytes_of[name]) for name, description in _BYTE_COUNTERS.items()),
        *(counter(f"{name}_bytes", description, policy_bytes(name)) for name, description in _POLICY_COUNTERS.items()),
        counter("congested_seconds", "How long it was congested.", traffic.congested_s.copy()),
        counter(
            "congestion_notifications", "Congestion notifications that its senders got from it.", fabric.notifications
        ),
        counter("guarantee_violated_seconds", "How long its guarantee was violated.", traffic.violated_s),
        gauge("hosts_full", "1 while it has as many hosts as it may learn.", central.network.known.full_vns()),
        counter(
            "packet_ins_dropped",
            "Packet-ins of the VN for new hosts and pairs that were dropped above its rate limit.",
            fabric.floods.reports_dropped,
        ),
    ]


def samples(labels: list[str], columns: Iterable[MetricColumn]) -> Iterator[bytes]:
    """Yield the columns as text of Prometheus, in batches of lines; ``labels`` are the labels of each row."""
    for column in columns:
        yield _head(column)
        known_rows = np.flatnonzero(~np.isnan(column.values))
        for start in range(0, len(known_rows), BATCH_SIZE):
            rows = known_rows[start : start + BATCH_SIZE]
            values = _rounded(column, rows)
            name = column.name
            lines = [f"{name}{labels[row]} {value}\n" for row, value in zip(rows.tolist(), values, strict=True)]
            yield "".join(lines).encode()


def guarantee_samples(labels: list[str], vlan_vid: IntArray, seconds: FloatArray) -> Iterator[bytes]:
    """Yield, as text of Prometheus, how long the guarantees of each VLAN's VNs were in each state.

    ``labels`` are those of each VLAN, ``vlan_vid`` (vns,) is the VLAN of each VN, and ``seconds`` are
    (len(GuaranteeState), vns).
    """
    name = "dets_vlan_guarantee_seconds_total"
    # One head for all states; the heads of ``samples`` are left out.
    yield _head(MetricColumn(name, "Seconds of its VNs' guarantees by state, as a sum.", "counter", seconds[0]))
    for outcome in GuaranteeState:
        outcome_label = f'outcome="{outcome.name.lower()}"'
        with_outcome = [f"{label[:-1]},{outcome_label}}}" for label in labels]  # within the label's brace
        (sums,) = vlan_columns(vlan_vid, [MetricColumn(name, "", "counter", seconds[outcome])])
        yield from (lines for lines in samples(with_outcome, [sums]) if not lines.startswith(b"#"))


def _rounded(column: MetricColumn, rows: IntArray) -> list[float]:
    """Return some rows of a column: seconds with milliseconds, everything else as whole numbers."""
    values = column.values[rows]
    if column.name.endswith("seconds_total"):
        return list(values.round(3).tolist())
    return list(np.rint(values).astype(np.int64).tolist())


def vlan_columns(vlan_vid: IntArray, columns: Iterable[MetricColumn]) -> Iterator[MetricColumn]:
    """Yield the sums of the VNs' columns over each VLAN, in ascending order of their ids."""
    vids, vlan = np.unique(vlan_vid, return_inverse=True)
    for column in columns:
        sums = np.bincount(vlan, np.nan_to_num(column.values), len(vids)).astype(np.float64)
        name = column.name.replace("dets_vn_", "dets_vlan_")
        yield MetricColumn(name, f"Over all VNs of the VLAN: {column.description}", column.kind, sums)


def vn_labels(central: CentralController) -> list[str]:
    """Return the labels of each VN, in the order of the table of VNs.

    The label of a port is its interface name if the configuration gives one, otherwise its number.
    """
    vns, config = central.vns, central.config
    switch_names = {dpid: _label_value(record.switch.name) for dpid, record in central.switches.items()}
    interfaces = {(switch.dpid, port.port_no): port.interface for switch, port in config.ports() if port.interface}
    keys = zip(vns.vlan_vid.tolist(), vns.dpid.tolist(), vns.port_no.tolist(), strict=True)
    return [
        f'{{vlan="{vid}",switch="{switch_names[dpid]}",port="{interfaces.get((dpid, port_no), port_no)}"}}'
        for vid, dpid, port_no in keys
    ]


def vlan_labels(central: CentralController) -> list[str]:
    """Return the labels of each VLAN, in ascending order of their ids."""
    vids, vlans = np.unique(central.vns.vlan_vid).tolist(), central.config.vlans
    return [f'{{vlan="{vid}",name="{_label_value(vlans[vid].name)}"}}' for vid in vids]


def _label_value(text: str) -> str:
    """Return a text as the value of a label, with the escapes of Prometheus' text format."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _head(column: MetricColumn) -> bytes:
    """Return the two comment lines of Prometheus' text format before a metric's samples."""
    return f"# HELP {column.name} {column.description}\n# TYPE {column.name} {column.kind}\n".encode()
