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
from controller.node_protocol.header import COLUMNS
from controller.node_protocol.message_types import MarkReadingsMessage, PortReadingsMessage, QueueReadingsMessage, Read
from controller.shards.peer import Peer


def local_readings(observed: FabricReadings, local_mask: BoolArray) -> list[Read]:
    """Return the reading messages for the VNs in ``local_mask`` (vns,), and for links whose ports were read."""
    messages: list[Read] = []
    if (queues := observed.queues) is not None:
        messages.append(_message(QueueReadingsMessage, queues, np.flatnonzero(queues.known & local_mask)))
    if (ports := observed.ports) is not None:
        messages.append(_message(PortReadingsMessage, ports, np.flatnonzero(ports.known)))
    if (marks := observed.marks) is not None:
        were_read = ~np.isnan(marks.arrived_bps) & ~np.isnan(marks.beyond_bps)  # the phantom meters
        messages.append(_message(MarkReadingsMessage, marks, np.flatnonzero(local_mask & were_read)))
    return messages


def _message(form: type[Read], readings: object, rows: IntArray) -> Read:
    """Return the message with some rows of readings."""
    return form(rows, *(getattr(readings, name)[rows] for name in COLUMNS[form][0].eights))


def merge_readings(
    observed: FabricReadings, local_mask: BoolArray, peers: Iterable[Peer], entries: int
) -> FabricReadings:
    """Merge the local readings with those received from peers since the last call.

    The table has ``entries`` pairs: marks are known by receiver only, not by pair.
    """
    messages = [message for peer in peers for message in peer.drain_readings()]
    messages += local_readings(observed, local_mask)  # of a link that a peer has read too, the local reading counts
    queues, ports, marks, vns = observed.queues, observed.ports, observed.marks, len(local_mask)
    if queues is not None:
        (served, packets, dropped, drops, elapsed), known = _put_together(QueueReadingsMessage, vns, messages)
        queues = QueueReadings(served, packets, dropped, drops, elapsed, known, np.zeros_like(known))
    if ports is not None:
        (transmitted_bps, elapsed_s), known = _put_together(PortReadingsMessage, len(ports.known), messages)
        no_drops = np.full(len(known), np.nan)  # no policy uses the drops of ports
        ports = PortReadings(transmitted_bps, no_drops, elapsed_s, known, np.zeros_like(known))
    if marks is not None:
        (arrived_bps, beyond_bps), _ = _put_together(MarkReadingsMessage, vns, messages)
        marks = MarkReadings(np.full(entries, np.nan), arrived_bps, beyond_bps)
    return FabricReadings(queues, ports, marks)


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


def _put_together(form: type[Read], size: int, messages: Iterable[Read]) -> tuple[list[FloatArray], BoolArray]:
    """Return the columns (size,) of all messages of a form, and the mask of the written rows; others are NaN.

    A later message replaces an earlier one.
    """
    names, known = COLUMNS[form][0].eights, np.zeros(size, dtype=np.bool_)
    columns = [np.full(size, np.nan) for _ in names]
    for message in messages:
        if isinstance(message, form):
            rows = getattr(message, form.first)
            known[rows] = True
            for column, name in zip(columns, names, strict=True):
                column[rows] = getattr(message, name)
    return columns, known
