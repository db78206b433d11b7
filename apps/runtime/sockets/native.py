"""The compiled form of reading many sockets (``_sockets.c``): one call for all.

``library`` is None when it was not built; callers look before they call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from controller.native_loader import load_native

library = load_native("apps.runtime.sockets._sockets", "dets_receive", "dets_ask")


def ask(lanes: Sequence[tuple[int, int]], message: bytes) -> list[int]:
    """Send a message to each of these sockets with its xid in the header; return how many octets each has taken.

    No socket is waited for; of one that has ended, or has no room, nothing is taken.
    """
    taken = np.empty(len(lanes), np.int64)
    if lanes:
        filenos, xids = np.array(lanes, np.int64).T.copy()
        library.dets_ask((filenos, xids, np.frombuffer(message, np.uint8), taken))
    return list(taken.tolist())


class ReceiveBuffer:
    """Where what comes is read to, for one call after the other: ``octets`` and replies of several sockets."""

    def __init__(self, octets: int, replies: int) -> None:
        self._room = np.empty(octets, np.uint8)
        self._replies = np.empty((replies, 4), np.int64)
        self.octets = memoryview(self._room)  # type: ignore[arg-type]  # an array is a buffer

    def receive(
        self, filenos: Sequence[int], rolls: tuple[NDArray[np.generic], ...], now_s: float, *what: int
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Read the first of these sockets, as many as there is room for.

        ``rolls`` are who is called for its meters (``BulkMeterStats.columns``) and for barriers
        (``BulkBarrier.columns``).
        ``what`` is how many octets of each socket at most; OpenFlow's version; the types of replies, a bit for each;
        and how many replies of each socket at most. Return for each socket how many octets came (-1: none but answers
        to bulk requests, 0: it has ended), how many whole replies are at the beginning, and whether nothing else is;
        and of each reply its type, its xid, and from where to where it goes within what came.
        """
        arrivals = np.empty((len(filenos), 3), np.int64)
        columns = np.array(filenos, np.int64), self._room, arrivals, self._replies, *rolls
        done = library.dets_receive(columns, now_s, *what)
        found: list[list[int]] = arrivals[:done].tolist()
        return found, self._replies[: arrivals[:done, 1].sum()].tolist()
