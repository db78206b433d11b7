"""A shard's messages to its peers, written one after another into one bundle for each peer and interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.columns import IntArray
from controller.dets.messages import ReceiverLoads
from controller.node_protocol.bundle import Bundle
from controller.node_protocol.encoder import encode
from controller.node_protocol.header import Octets
from controller.node_protocol.message_types import Frame, OmittedColumns, ReportMessage
from controller.shards.peer import Peer


class Outbox:
    """The messages of the interval ``number``, with the owner's incarnation ``token`` and the fabric's digest."""

    def __init__(self) -> None:
        self.token, self.number, self.fabric = 0, 0, b""
        self._messages: dict[int, Bundle] = {}
        self._octets: dict[int, int] = {}  # sizes of the last bundles
        # The mask (vns,) of the VNs to which local pairs send, and those of each peer among them, as rows.
        self._sends, self._sent_to = np.empty(0, dtype=np.bool_), dict[int, IntArray]()

    def set_identity(self, token: int, fabric: bytes) -> None:
        """Set the incarnation and the fabric's digest, after VNs have changed their owners."""
        self.token, self.fabric, self._sends = token, fabric, np.empty(0, dtype=np.bool_)

    def begin_interval(self, peers: Iterable[int]) -> None:
        """Begin an interval's bundles for these peers."""
        self.number += 1
        self._messages = {number: Bundle(self._octets.get(number, 0)) for number in peers}

    def write(
        self,
        number: int,
        peer: Peer,
        frame: Frame,
        now_s: float,
        rows: IntArray | None = None,
        left: int = OmittedColumns.NONE,
        limits: int = 0,
    ) -> Octets:
        """Return a message for ``peer`` (``number``); ``rows``, ``left`` and ``limits`` are as in ``Peer.head``."""
        head = peer.head(self.token, self.number, now_s, type(frame), rows, left, limits)
        return encode(head, self.fabric, frame, rows, self._messages[number].allocate)

    def write_reports(
        self,
        peers: Mapping[int, Peer],
        loads: ReceiverLoads,
        columns: Sequence[NDArray[Any]],
        reportable_rows: Mapping[int, IntArray],
        left: int,
        limits: Mapping[int, int],
        now_s: float,
    ) -> dict[int, Octets]:
        """Return Report messages for each peer: its VNs' loads, and ``reportable_rows`` of the pairs' ``columns``.

        ``limits`` are the numbers of each peer's Grants that equal the effective limits of all its rows.
        """
        sends = (loads.smoothed_bps > 0.0) | (loads.passed_bps > 0.0) | (loads.dropped_bps > 0.0)
        if not np.array_equal(sends, self._sends):
            self._sends = sends
            self._sent_to = {
                number: np.flatnonzero(sends & (peer.owns | peer.decides)) for number, peer in peers.items()
            }
        frames = {}
        for number, peer in peers.items():
            loaded = self._sent_to[number]
            peer_loads = loads.passed_bps[loaded], loads.smoothed_bps[loaded], loads.dropped_bps[loaded]
            frame = ReportMessage(loaded, *peer_loads, *columns)
            frames[number] = self.write(number, peer, frame, now_s, reportable_rows[number], left, limits[number])
        return frames

    def drain(self) -> dict[int, Bundle]:
        """Return the bundles of the interval, and clear them."""
        messages, self._messages = self._messages, {}
        self._octets = {number: len(message) for number, message in messages.items()}
        return messages
