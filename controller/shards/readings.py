"""What is read at receivers and links, for policies that decide by it: each shard says that of its own switches.

The allocator (network_wide.py) puts it together. A reading counts once: what did not come in time, or was lost, is
unknown in that interval, as a reading is that a switch did not answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.dets.rate_allocator import Surroundings
from controller.metering.observed import Observed
from controller.metering.port_readings import PortReadings
from controller.metering.queue_readings import QueueReadings
from controller.shards.frames import PortsRead, QueuesRead
from controller.shards.peer import Peer

_OF_QUEUES = ("served_bps", "served_packets", "dropped_bps", "dropped_packets", "elapsed_s")
_OF_PORTS = ("transmitted_bps", "elapsed_s")


def read_here(observed: Observed, mine: BoolArray) -> list[QueuesRead | PortsRead]:
    """Return what to say of the VNs that are ``mine`` (vns,), and of links whose ports were read."""
    said: list[QueuesRead | PortsRead] = []
    if (queues := observed.queues) is not None:
        vn = np.flatnonzero(queues.known & mine)
        said.append(QueuesRead(vn, *(getattr(queues, name)[vn] for name in _OF_QUEUES)))
    if (ports := observed.ports) is not None:
        link = np.flatnonzero(ports.known)
        said.append(PortsRead(link, *(getattr(ports, name)[link] for name in _OF_PORTS)))
    return said


def read_by_all(observed: Observed, mine: BoolArray, peers: Iterable[Peer]) -> Observed:
    """Return what was read here and what peers have said since the last time; nobody else is told it."""
    read = [peer.take_read() for peer in peers]
    queues, ports = observed.queues, observed.ports
    if queues is not None:
        here = np.flatnonzero(queues.known & mine)
        parts = [(here, [getattr(queues, name)[here] for name in _OF_QUEUES])]
        parts += [(one.vn, [getattr(one, name) for name in _OF_QUEUES]) for one, _ in read if one is not None]
        (served, packets, dropped, lost, elapsed), known = _put_together(len(mine), parts, len(_OF_QUEUES))
        queues = QueueReadings(served, packets, dropped, lost, elapsed, known, np.zeros(len(mine), dtype=np.bool_))
    if ports is not None:
        links = len(ports.known)
        here = np.flatnonzero(ports.known)
        parts = [(one.link, [getattr(one, name) for name in _OF_PORTS]) for _, one in read if one is not None]
        parts.append((here, [getattr(ports, name)[here] for name in _OF_PORTS]))  # its own word counts
        (transmitted_bps, elapsed_s), known = _put_together(links, parts, len(_OF_PORTS))
        unknown = np.full(links, np.nan)  # drops of ports: no policy looks at them
        ports = PortReadings(transmitted_bps, unknown, elapsed_s, known, np.zeros(links, dtype=np.bool_))
    return Observed(queues, ports, observed.marks)


def with_read(seen: Surroundings, read: Observed, receiver: IntArray, silent: Iterable[BoolArray]) -> Surroundings:
    """Return what policies see, with what all have read; ``receiver`` (entries,) are the entries' ones.

    ``silent`` are the VNs, (vns,) each, of whom nobody says what they get. Their senders count as unread, so that
    policies which hold then raise nothing.
    """
    unread = seen.unread_intervals
    for of_peer in silent:
        unread = np.maximum(unread, of_peer[receiver])
    return replace(seen, unread_intervals=unread, observed=read)


def _put_together(
    size: int, parts: Iterable[tuple[IntArray, list[FloatArray]]], count: int
) -> tuple[list[FloatArray], BoolArray]:
    """Return columns of this size with the parts of them written, and where there are some; elsewhere NaN."""
    columns, known = [np.full(size, np.nan) for _ in range(count)], np.zeros(size, dtype=np.bool_)
    for rows, values in parts:
        known[rows] = True
        for column, value in zip(columns, values, strict=True):
            column[rows] = value
    return columns, known
