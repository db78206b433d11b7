"""OpenFlow of a node without its greenlets: switches' answers and meter-mods as bytes, through sockets over loopback.

They are read, decoded and watched as ``apps.southbound.polling`` does it, and encoded as its shell does. What a
controller does for each switch, however many entries that has, is not here.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from controller.capability.meter_monitor import NOT_KNOWN, MeterMonitor, update_monitors
from controller.central.controller import CentralController
from controller.columns import IntArray, UInt32Array
from controller.openflow.bounded_reader import HEADER, Buffer
from controller.openflow.constants import MultipartType
from controller.openflow.meters import decode_meter_stats
from controller.openflow.multipart import multipart_header
from controller.switch.meter_index import MeterStatsBatch
from controller.switch.switch_record import encode_updates
from experiments.switch import replies

READ_BYTES = 256 << 10  # as a controller reads at once
_SENT_AT_ONCE = 128 << 10  # what loopback holds, whoever reads


class LoopbackSwitches:
    """The connections of the switches ``dpids`` of a node. What the node does at its ends is inside ``measured``."""

    def __init__(
        self, central: CentralController, dpids: Iterable[int], measured: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._central, self._dpids, self._measured = central, tuple(dpids), measured
        self._ends = {dpid: _connection() for dpid in self._dpids}
        self._watches = [MeterMonitor(np.empty(0, dtype=np.int64), self._settings) for _ in self._dpids]

    def close(self) -> None:
        """End all of them."""
        for ends in self._ends.values():
            for end in ends:
                end.close()

    def poll(self, meters: dict[int, NDArray[np.void]]) -> MeterStatsBatch:
        """Let switches answer with these records of the wire (``replies.METER_STATS``); return what the node read."""
        bodies = [self._read(dpid, meters[dpid]) for dpid in self._dpids]
        with self._measured():
            stats = {dpid: decode_meter_stats(b"".join(parts)) for dpid, parts in zip(self._dpids, bodies, strict=True)}
            reports, fabric = MeterStatsBatch.from_stats(stats), self._central.fabric
            rows, enforcement = fabric.listing.find(fabric.switches, reports).entry, fabric.state.enforcement
            update_monitors(
                self._watches, reports.whole, reports.ends, rows, (enforcement.rate_kbps, enforcement.burst_kbits)
            )
            return reports

    def push(self) -> None:
        """Send what is due to the switches."""
        with self._measured():
            due = self._central.take_updates()
            messages = dict(zip(due, encode_updates(list(due.values()), [1] * len(due)), strict=True))
        for dpid, data in messages.items():
            self._write(dpid, data)

    def _settings(self, meter_id: IntArray) -> tuple[UInt32Array, UInt32Array]:
        return np.full(len(meter_id), NOT_KNOWN, np.uint32), np.full(len(meter_id), NOT_KNOWN, np.uint32)

    def _read(self, dpid: int, meters: NDArray[np.void]) -> list[memoryview]:
        node, switch = self._ends[dpid]
        said, sent = b"".join(replies.multipart_rows(MultipartType.METER, 1, meters)), 0
        bodies, left, more = list[memoryview](), b"", True
        while more:
            sent += switch.send(memoryview(said)[sent : sent + _SENT_AT_ONCE])
            with self._measured():
                octets, offset = left + node.recv(READ_BYTES), 0
                while len(octets) - offset >= HEADER.size:
                    length = HEADER.unpack_from(octets, offset)[2]
                    if length > len(octets) - offset:
                        break
                    part = multipart_header(octets[offset : offset + length])
                    bodies.append(part.body)
                    offset, more = offset + length, part.more
                left = octets[offset:]
        return bodies

    def _write(self, dpid: int, data: Buffer) -> None:
        node, switch = self._ends[dpid]
        for start, end in pairwise([*range(0, len(data), _SENT_AT_ONCE), len(data)]):
            with self._measured():
                node.sendall(memoryview(data)[start:end])
            left = end - start
            while left:
                left -= len(switch.recv(left))


def _connection() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        node = socket.create_connection(listener.getsockname())
        switch, _ = listener.accept()
    for end in (node, switch):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return node, switch
