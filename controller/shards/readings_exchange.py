"""Exchange of readings at receivers and links, for policies that use them: each shard sends those of its own switches.

The allocator (network_allocation.py) merges them. A reading counts once: one that is late or lost is unknown in that
interval, like the reading of a switch that did not reply.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.dets.rate_allocator import IntervalContext
from controller.metering.fabric_readings import FabricReadings
from controller.metering.mark_readings import MarkReadings
from controller.metering.port_readings import PortReadings
from controller.metering.queue_readings import QueueReadings
from controller.node_protocol.message_types import MarkReadingsMessage, PortReadingsMessage, QueueReadingsMessage, Read
from controller.shards.peer import Peer

_OF_QUEUES = ("served_bps", "served_packets", "dropped_bps", "dropped_packets", "elapsed_s")
_OF_PORTS = ("transmitted_bps", "elapsed_s")
_OF_MARKS = ("arrived_bps", "beyond_bps")


def local_readings(observed: FabricReadings, local_mask: BoolArray) -> list[Read]:
    """Return the reading messages for the VNs in ``local_mask`` (vns,), and for links whose ports were read."""
    messages: list[Read] = []
    if (queues := observed.queues) is not None:
        vn = np.flatnonzero(queues.known & local_mask)
        messages.append(QueueReadingsMessage(vn, *(getattr(queues, name)[vn] for name in _OF_QUEUES)))
    if (ports := observed.ports) is not None:
        link = np.flatnonzero(ports.known)
        messages.append(PortReadingsMessage(link, *(getattr(ports, name)[link] for name in _OF_PORTS)))
    if (marks := observed.marks) is not None:
        vn = _marks_read(marks, local_mask)
        messages.append(MarkReadingsMessage(vn, *(getattr(marks, name)[vn] for name in _OF_MARKS)))
    return messages


def merge_readings(
    observed: FabricReadings, local_mask: BoolArray, peers: Iterable[Peer], entries: int
) -> FabricReadings:
    """Merge the local readings with those received from peers since the last call.

    The table has ``entries`` pairs: marks are known by receiver only, not by pair.
    """
    messages = [message for peer in peers for message in peer.drain_readings()]
    queues, ports, marks = observed.queues, observed.ports, observed.marks
    if queues is not None:
        local = np.flatnonzero(queues.known & local_mask)
        parts = [(local, [getattr(queues, name)[local] for name in _OF_QUEUES])]
        parts += [
            (message.vn, [getattr(message, name) for name in _OF_QUEUES])
            for message in messages
            if isinstance(message, QueueReadingsMessage)
        ]
        (served, packets, dropped, drops, elapsed), known = _put_together(len(local_mask), parts, len(_OF_QUEUES))
        queues = QueueReadings(served, packets, dropped, drops, elapsed, known, np.zeros_like(known))
    if ports is not None:
        links = len(ports.known)
        local = np.flatnonzero(ports.known)
        parts = [
            (message.link, [getattr(message, name) for name in _OF_PORTS])
            for message in messages
            if isinstance(message, PortReadingsMessage)
        ]
        parts.append((local, [getattr(ports, name)[local] for name in _OF_PORTS]))  # local readings take precedence
        (transmitted_bps, elapsed_s), known = _put_together(links, parts, len(_OF_PORTS))
        no_drops = np.full(links, np.nan)  # no policy uses the drops of ports
        ports = PortReadings(transmitted_bps, no_drops, elapsed_s, known, np.zeros(links, dtype=np.bool_))
    if marks is not None:
        local = _marks_read(marks, local_mask)
        parts = [(local, [getattr(marks, name)[local] for name in _OF_MARKS])]
        parts += [
            (message.vn, [getattr(message, name) for name in _OF_MARKS])
            for message in messages
            if isinstance(message, MarkReadingsMessage)
        ]
        (arrived_bps, beyond_bps), _ = _put_together(len(local_mask), parts, len(_OF_MARKS))
        marks = MarkReadings(np.full(entries, np.nan), arrived_bps, beyond_bps)
    return FabricReadings(queues, ports, marks)


def _marks_read(marks: MarkReadings, local_mask: BoolArray) -> IntArray:
    """Return the rows of the VNs in ``local_mask`` (vns,) whose phantom meters were read."""
    return np.flatnonzero(local_mask & ~np.isnan(marks.arrived_bps) & ~np.isnan(marks.beyond_bps))


def with_readings(
    context: IntervalContext, read: FabricReadings, receiver: IntArray, unresponsive: Iterable[BoolArray]
) -> IntervalContext:
    """Return the policies' input with the merged readings; ``receiver`` (pairs,) are the pairs' receivers.

    ``unresponsive`` has a mask (vns,) for each unresponsive node: its VNs, which have no readings. The senders to these
    VNs count as unread, so that policies with the stale mode *hold* raise nothing.
    """
    unread = context.unread_intervals
    for of_peer in unresponsive:
        unread = np.maximum(unread, of_peer[receiver])  # True counts as one interval
    return context._replace(unread_intervals=unread, observed=read)


def _put_together(
    size: int, parts: Iterable[tuple[IntArray, list[FloatArray]]], count: int
) -> tuple[list[FloatArray], BoolArray]:
    """Return ``count`` columns of this size assembled from parts, and the mask of the written rows; others are NaN.

    A part consists of rows and their values, by column; a later part replaces an earlier one.
    """
    columns, known = [np.full(size, np.nan) for _ in range(count)], np.zeros(size, dtype=np.bool_)
    for rows, values in parts:
        known[rows] = True
        for column, value in zip(columns, values, strict=True):
            column[rows] = value
    return columns, known
