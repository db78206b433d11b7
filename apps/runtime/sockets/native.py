"""The native form of reading many sockets (``_sockets.c``): one call for all.

``library`` is None if it was not built; callers check that first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from controller.native_loader import load_native

library = load_native("apps.runtime.sockets._sockets", "dets_receive", "dets_ask")


def ask(lanes: Sequence[tuple[int, int]], message: bytes) -> list[int]:
    """Send a message to each of these sockets, with its xid in the header.

    Return the number of bytes that each accepted.

    It waits for no socket; a closed socket, or one with a full buffer, accepts nothing.
    """
    taken = np.empty(len(lanes), np.int64)
    if lanes:
        filenos, xids = np.array(lanes, np.int64).T.copy()
        library.dets_ask((filenos, xids, np.frombuffer(message, np.uint8), taken))
    return list(taken.tolist())


class ReceiveBuffer:
    """The buffer for received bytes, reused by each call: ``octets`` and replies of several sockets."""

    def __init__(self, octets: int, replies: int) -> None:
        self._room = np.empty(octets, np.uint8)
        self._replies = np.empty((replies, 4), np.int64)
        self.octets = memoryview(self._room)  # type: ignore[arg-type]  # an array is a buffer

    def receive(
        self, filenos: Sequence[int], rolls: tuple[NDArray[np.generic], ...], now_s: float, *what: int
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Read the first of these sockets, as many as the buffer has space for.

        ``rolls`` are the called switches of bulk requests for meters (``BulkMeterStats.columns``) and for barriers
        (``BulkBarrier.columns``). ``what`` is the maximum of bytes per socket; OpenFlow's version; the types of
        replies, a bit for each; and the maximum of replies per socket. Return for each socket the number of bytes (-1:
        only replies to bulk requests, 0: it was closed), the number of complete replies at the beginning, and whether
        there is nothing else; and for each reply its type, its xid, and its range in the bytes.
        """
        arrivals = np.empty((len(filenos), 3), np.int64)
        columns = np.array(filenos, np.int64), self._room, arrivals, self._replies, *rolls
        done = library.dets_receive(columns, now_s, *what)
        found: list[list[int]] = arrivals[:done].tolist()
        return found, self._replies[: arrivals[:done, 1].sum()].tolist()
