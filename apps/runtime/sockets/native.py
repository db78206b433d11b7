"""The native form of reading many sockets (``_sockets.c``): one call for all.

``library`` is None if it was not built; callers check that first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from controller.native_loader import load_native

library = load_native("apps.runtime.sockets._sockets", "dets_receive", "dets_ask")


def ask(targets: Sequence[tuple[int, int]], message: bytes) -> list[int]:
    """Send an OpenFlow message to each target (fileno, xid), with the target's xid in the header; never waits.

    Return the number of bytes that each socket accepted: 0 for a closed socket, or one with a full buffer.
    """
    accepted_bytes = np.empty(len(targets), np.int64)
    if targets:
        filenos, xids = np.array(targets, np.int64).T.copy()
        library.dets_ask((filenos, xids, np.frombuffer(message, np.uint8), accepted_bytes))
    return list(accepted_bytes.tolist())


class ReceiveBuffer:
    """A buffer for the bytes of several sockets, which each call overwrites.

    The arguments are its size in bytes, and the greatest number of replies that one call separates. The attribute
    ``octets`` are the bytes, one socket's after another's.
    """

    def __init__(self, octets: int, replies: int) -> None:
        self._buffer = np.empty(octets, np.uint8)
        self._replies = np.empty((replies, 4), np.int64)
        self.octets = memoryview(self._buffer)  # type: ignore[arg-type]  # an array is a buffer

    def receive(
        self, filenos: Sequence[int], bulk_columns: tuple[NDArray[np.generic], ...], now_s: float, *limits: int
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Read the first of these sockets, as many as the buffer has space for; return their arrivals and replies.

        ``bulk_columns`` are the columns of the bulk requests for meters (``BulkMeterStats.columns``) and for barriers
        (``BulkBarrier.columns``), which are filled. ``limits`` are the maximum of bytes per socket, OpenFlow's version,
        the types of replies (one bit each), and the maximum of replies per socket.

        An arrival, one per socket, is (number of bytes, number of complete replies at their beginning, whether nothing
        else follows). The number of bytes is -1 if all were bulk replies, and 0 if the socket was closed. A reply is
        (type, xid, start, end in the bytes of its socket).
        """
        arrivals = np.empty((len(filenos), 3), np.int64)
        columns = np.array(filenos, np.int64), self._buffer, arrivals, self._replies, *bulk_columns
        sockets_read = library.dets_receive(columns, now_s, *limits)
        arrivals_read: list[list[int]] = arrivals[:sockets_read].tolist()
        return arrivals_read, self._replies[: arrivals[:sockets_read, 1].sum()].tolist()
