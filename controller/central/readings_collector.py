"""The queue and port counters of this interval, as columns for the control step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from controller.central.fabric_state import FabricState
from controller.columns import BoolArray, IntArray
from controller.events import EventKind
from controller.metering.fabric_readings import FabricReadings, ReadingKind
from controller.metering.mark_readings import MarkReadings
from controller.metering.port_readings import PortChanges, PortReadings
from controller.metering.queue_readings import QueueChanges, QueueReadings
from controller.switch.delivered_rates import queue_key

# The OpenFlow counter of each column of a reading.
_OF_QUEUES = {"sent_bytes": "tx_bytes", "sent_packets": "tx_packets", "dropped_packets": "tx_errors"}
_OF_PORTS = {"sent_bytes": "tx_bytes", "dropped_packets": "tx_dropped"}
_OF_HOSTS = {"sent_bytes": "rx_bytes"}


def collect_readings(
    fabric: FabricState,
    desired: AbstractSet[ReadingKind],
    received_s: Mapping[int, float],
    now_s: float,
    marks: MarkReadings | None = None,
) -> FabricReadings | None:
    """Return the readings of the ``desired`` kinds, with ``marks``; None if there are none.

    ``received_s`` is when each switch's meter counters arrived. Port or queue counters that did not arrive with them
    are unknown. Counters with impossible changes cause events.
    """
    queues = _queues(fabric, received_s) if ReadingKind.QUEUES in desired else None
    ports = _ports(fabric, received_s) if ReadingKind.PORTS in desired else None
    if queues is None and ports is None and marks is None:
        return None
    if queues is not None:
        for row in _implausible(fabric, queues.implausible, now_s):
            _note(fabric, f"{fabric.vn_name(row)}: its queue's", now_s)
    if ports is not None:
        names = fabric.links.link_table(fabric.vns, fabric.network.topology).names
        for row in _implausible(fabric, ports.implausible, now_s):
            _note(fabric, f"link {names[row]}: its port's", now_s)
    return FabricReadings(queues, ports, marks)


def _queues(fabric: FabricState, received_s: Mapping[int, float]) -> QueueReadings:
    """Return the readings of receiving queues, (vns,), since the last interval; unknown where not read."""
    vns = fabric.vns
    queue_changes = QueueChanges.initial(len(vns))
    for dpid, rows in _by_switch(vns.dpid):
        counters = fabric.deliveries[dpid].queues
        changes = counters.changes
        if changes is None or not counters.received_s >= received_s.get(dpid, np.inf):
            continue
        # Of the switch's VNs with a reading: the positions in ``rows``, and the rows of ``changes``.
        positions, change_rows = changes.rows_of(queue_key(vns.port_no[rows], vns.vlan_vid[rows]))
        vn_rows = rows[positions]
        for name, counter in _OF_QUEUES.items():
            getattr(queue_changes, name)[vn_rows] = changes.delta[counter][change_rows]
        queue_changes.elapsed_s[vn_rows] = changes.elapsed_s[change_rows]
    return QueueReadings.from_changes(queue_changes, vns.capacity_bps, vns.max_arrival_bps())


def _ports(fabric: FabricState, received_s: Mapping[int, float]) -> PortReadings:
    """Return the readings of links' ports, (links,), since the last interval; unknown where not read."""
    links = fabric.links.link_table(fabric.vns, fabric.network.topology)
    ports = fabric.links.ports(fabric.vns)
    port_changes = PortChanges.initial(len(ports.dpid))
    for dpid, rows in _by_switch(ports.dpid):
        counters = fabric.deliveries[dpid].ports
        changes = counters.changes
        if changes is None or not counters.received_s >= received_s.get(dpid, np.inf):
            continue
        positions, change_rows = changes.rows_of(ports.port_no[rows])
        link_rows = rows[positions]
        for inward, names in ((True, _OF_HOSTS), (False, _OF_PORTS)):  # inward: a link from hosts to the switch
            in_direction = ports.inward[link_rows] == inward
            for name, counter in names.items():
                delta = changes.delta[counter][change_rows[in_direction]]
                getattr(port_changes, name)[link_rows[in_direction]] = delta
        port_changes.elapsed_s[link_rows] = changes.elapsed_s[change_rows]
    return PortReadings.from_changes(port_changes, links.capacity_bps)


def _by_switch(dpid: NDArray[np.uint64]) -> Iterator[tuple[int, IntArray]]:
    """Yield each switch and its rows of a column of dpids."""
    order = np.argsort(dpid, kind="stable")
    dpids, first = np.unique(dpid[order], return_index=True)
    yield from zip(dpids.tolist(), np.split(order, first[1:]), strict=True)


def _implausible(fabric: FabricState, implausible: BoolArray, now_s: float) -> list[int]:
    """Return the masked rows for which an event may be recorded now."""
    return fabric.events.limit_named(EventKind.COUNTERS_IMPLAUSIBLE, np.flatnonzero(implausible), now_s)


def _note(fabric: FabricState, subject: str, now_s: float) -> None:
    fabric.note(EventKind.COUNTERS_IMPLAUSIBLE, f"{subject} counters jumped or went back", now_s)
