"""Bulk requests: one request to many switches, replies decoded directly into arrays.

Bytes are read this way only if they are the pending reply, with nothing before it: meters, as many as the switch had
the last time, in one message or in several parts, or a barrier's reply. That happens once for each request, so it does
not count toward a connection's allowance. All other bytes are left to the connection (docs/adr/0150).

The native form of reading sockets fills the columns (``_sockets.c``). Without it there are no bulk requests: all
switches get normal requests.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from apps.runtime.sockets.greenlet_event import TimedWait
from controller.columns import FloatArray, IntArray
from controller.openflow.meters import METER_STATS, STATS_BYTES
from controller.openflow.multipart import MULTIPART_HEAD

_MAX_MESSAGE_BYTES = 0xFFFF  # of one message
_MAX_METERS = (_MAX_MESSAGE_BYTES - MULTIPART_HEAD.size) // STATS_BYTES
_NOBODY = -1


class BulkBarrier:
    """The last bulk barrier request: the called switches, and those that have replied; the next request ends it.

    By number, in the order of the call: ``xid`` of the request, and ``at_s``, when the reply arrived, NaN without one.
    ``index_of`` maps a socket to the number, while a reply may arrive; ``left`` is the number of pending replies (1,).
    ``columns`` are all of these.
    """

    def __init__(self) -> None:
        self.index_of: IntArray = np.full(256, _NOBODY, np.int64)
        self.pending_count: IntArray = np.zeros(1, np.int64)
        self._called: list[int] = []
        self._filenos: IntArray = np.empty(0, np.int64)
        self._numbers: IntArray = np.empty(0, np.int64)
        self.xid: IntArray = np.empty(0, np.int64)
        self.at_s: FloatArray = np.empty(0)
        self._all_in = TimedWait()
        self.start([], [])

    def start(self, filenos: list[int], xids: Sequence[int]) -> None:
        """Await replies at these sockets, to requests with these xids."""
        if filenos != self._called:
            self.index_of[self._filenos] = _NOBODY
            highest = max(filenos, default=0)
            if highest >= len(self.index_of):
                self.index_of = np.full(2 * highest, _NOBODY, np.int64)
            self._called, self._filenos = filenos, np.array(filenos, np.int64)
            self._numbers = np.arange(len(filenos))
            self.xid, self.at_s = np.empty(len(filenos), np.int64), np.empty(len(filenos))
        self.index_of[self._filenos] = self._numbers
        self.xid[:] = xids
        self.at_s.fill(np.nan)
        self.pending_count[0] = len(filenos)
        self.columns = self._columns()

    def _columns(self) -> tuple[NDArray[np.generic], ...]:
        """Return the columns of the called switches."""
        return self.index_of, self.xid, self.at_s, self.pending_count

    @property
    def is_over(self) -> bool:
        """Return whether no reply is pending."""
        return not self.pending_count[0]

    def cancel(self, fileno: int) -> bool:
        """Stop waiting for a socket's reply; return whether it was pending."""
        if self._number(fileno) == _NOBODY:
            return False
        self.index_of[fileno] = _NOBODY
        self.pending_count[0] -= 1
        self.notify_if_done()
        return True

    def partial_reply(self, fileno: int) -> tuple[NDArray[np.void], bytes]:
        """Return the received part of a socket's pending reply: METER_STATS, and an incomplete message."""
        return np.empty(0, METER_STATS), b""

    def notify_if_done(self) -> None:
        """Wake the waiting greenlet once no reply is pending."""
        if not self.pending_count[0]:
            self._all_in.end()

    def wait(self, timeout_s: float) -> bool:
        """Return whether all replies have arrived within ``timeout_s``."""
        if not self.is_over and timeout_s > 0.0:
            self._all_in.wait(timeout_s)
        return self.is_over

    def _number(self, fileno: int) -> int:
        return int(self.index_of[fileno]) if 0 <= fileno < len(self.index_of) else _NOBODY


class BulkMeterStats(BulkBarrier):
    """The last bulk request for meter counters: ``stats`` (METER_STATS), in which each switch's meters end at ``ends``.

    Their ids are in ``meter_id`` as well. ``filled`` is the number of meters received from each switch. If a switch has
    more than fit into one message, ``partial_bytes`` bytes of the next part are in row ``slot`` of ``parts``.
    """

    def __init__(self) -> None:
        self._meters: list[int] | None = None
        self.ends: IntArray = np.empty(0, np.int64)
        self.filled: IntArray = np.empty(0, np.int64)
        self.partial_bytes: IntArray = np.empty(0, np.int64)
        self.parts: NDArray[np.uint8] = np.empty((1, _MAX_MESSAGE_BYTES), np.uint8)
        self.expect([])
        super().__init__()

    def expect(self, meters: list[int]) -> None:
        """Set the number of meters of each called switch."""
        if meters != self._meters:
            self._meters, self.ends = meters, np.cumsum(meters, dtype=np.int64)
            self.filled, self.partial_bytes = np.empty((2, len(meters)), np.int64)
            in_parts = np.array(meters, np.int64) > _MAX_METERS
            self.slot: IntArray = np.where(in_parts, np.cumsum(in_parts) - 1, _NOBODY)
            if np.count_nonzero(in_parts) > len(self.parts):
                self.parts = np.empty((np.count_nonzero(in_parts), _MAX_MESSAGE_BYTES), np.uint8)
        self.filled.fill(0)
        self.partial_bytes.fill(0)
        in_all = int(self.ends[-1]) if meters else 0
        self.stats: NDArray[np.void] = np.empty(in_all, METER_STATS)  # other switches keep their last counters
        self.meter_id: NDArray[np.uint32] = np.empty(in_all, np.uint32)

    def _columns(self) -> tuple[NDArray[np.generic], ...]:
        """Return the arrays that the native reader fills, in its order."""
        of_answers = (self.ends, self.stats, self.meter_id, self.filled, self.partial_bytes, self.slot, self.parts)
        return *super()._columns(), *of_answers

    def partial_reply(self, fileno: int) -> tuple[NDArray[np.void], bytes]:
        """Return the received part of a socket's pending reply: METER_STATS, and an incomplete message."""
        number = self._number(fileno)
        if number == _NOBODY:
            return super().partial_reply(fileno)
        first = self._first(number)
        return self.stats[first : first + int(self.filled[number])].copy(), self._kept(number)

    def _first(self, number: int) -> int:
        return int(self.ends[number - 1]) if number else 0

    def _kept(self, number: int) -> bytes:
        kept = int(self.partial_bytes[number])
        return self.parts[self.slot[number], :kept].tobytes() if kept else b""
