"""Bulk requests: one request to many switches, replies decoded directly into arrays.

Received bytes are decoded this way only if they are exactly the pending reply: a barrier reply, or meter-stats of as
many meters as the switch had in its last reply. All other bytes are left to the connection (docs/adr/0150). Bulk
replies do not count toward a connection's allowance, because there is at most one for each request.

The native reader of sockets (``_sockets.c``) fills the columns. Without it there are no bulk requests: all switches get
requests of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from apps.runtime.sockets.greenlet_event import TimedWait
from controller.columns import FloatArray, IntArray
from controller.openflow.meters import METER_STATS, STATS_BYTES
from controller.openflow.multipart import MULTIPART_HEAD

_MAX_MESSAGE_BYTES = 0xFFFF  # the length field of an OpenFlow message has 16 bits
_MAX_METERS = (_MAX_MESSAGE_BYTES - MULTIPART_HEAD.size) // STATS_BYTES
_NOT_AWAITED = -1


class BulkBarrier:
    """The last bulk request for barriers, and its replies so far. ``start`` begins the next request.

    Columns (switches,), in the order of the request: ``xid`` of the request, and ``at_s``, the arrival time of the
    reply, NaN before that. ``index_of`` maps a socket (fileno) to the switch's row while its reply is pending.
    ``pending_count`` (1,) is the number of pending replies. ``columns`` are all of these, for the native reader.
    """

    def __init__(self) -> None:
        self.index_of: IntArray = np.full(256, _NOT_AWAITED, np.int64)
        self.pending_count: IntArray = np.zeros(1, np.int64)
        self._requested: list[int] = []
        self._filenos: IntArray = np.empty(0, np.int64)
        self._rows: IntArray = np.empty(0, np.int64)
        self.xid: IntArray = np.empty(0, np.int64)
        self.at_s: FloatArray = np.empty(0)
        self._all_arrived = TimedWait()
        self.start([], [])

    def start(self, filenos: list[int], xids: Sequence[int]) -> None:
        """Await replies at the sockets ``filenos``, to requests with ``xids`` (switches,)."""
        if filenos != self._requested:  # the arrays are made anew for other sockets only
            self.index_of[self._filenos] = _NOT_AWAITED
            highest = max(filenos, default=0)
            if highest >= len(self.index_of):
                self.index_of = np.full(2 * highest, _NOT_AWAITED, np.int64)
            self._requested, self._filenos = filenos, np.array(filenos, np.int64)
            self._rows = np.arange(len(filenos))
            self.xid, self.at_s = np.empty(len(filenos), np.int64), np.empty(len(filenos))
        self.index_of[self._filenos] = self._rows
        self.xid[:] = xids
        self.at_s.fill(np.nan)
        self.pending_count[0] = len(filenos)
        self.columns = self._columns()

    def _columns(self) -> tuple[NDArray[np.generic], ...]:
        """Return the arrays that the native reader fills, in its order."""
        return self.index_of, self.xid, self.at_s, self.pending_count

    @property
    def is_over(self) -> bool:
        """Return whether no reply is pending."""
        return not self.pending_count[0]

    def cancel(self, fileno: int) -> bool:
        """Stop waiting for a socket's reply; return whether it was pending."""
        if self._row(fileno) == _NOT_AWAITED:
            return False
        self.index_of[fileno] = _NOT_AWAITED
        self.pending_count[0] -= 1
        self.notify_if_done()
        return True

    def partial_reply(self, fileno: int) -> tuple[NDArray[np.void], bytes]:
        """Return the received part of a socket's pending reply: METER_STATS, and an incomplete message."""
        return np.empty(0, METER_STATS), b""

    def notify_if_done(self) -> None:
        """Wake the waiting greenlet once no reply is pending."""
        if not self.pending_count[0]:
            self._all_arrived.end()

    def wait(self, timeout_s: float) -> bool:
        """Wait at most ``timeout_s``; return whether all replies have arrived."""
        if not self.is_over and timeout_s > 0.0:
            self._all_arrived.wait(timeout_s)
        return self.is_over

    def _row(self, fileno: int) -> int:
        """Return the row of the switch at a socket, _NOT_AWAITED if no reply is pending there."""
        return int(self.index_of[fileno]) if 0 <= fileno < len(self.index_of) else _NOT_AWAITED


class BulkMeterStats(BulkBarrier):
    """The last bulk request for meter counters, and its replies so far.

    ``stats`` (meters,) are the METER_STATS of all switches, one switch after the other; ``meter_id`` (meters,) repeats
    the ids. Columns (switches,): the switch's meters end at ``ends`` in these arrays, and ``filled`` of them have been
    received. If a switch has more meters than fit into one message, the first ``partial_bytes`` bytes of the next part
    are in row ``slot`` of ``parts``; otherwise ``slot`` is -1.
    """

    def __init__(self) -> None:
        self._meters: list[int] | None = None
        self.ends: IntArray = np.empty(0, np.int64)
        self.filled: IntArray = np.empty(0, np.int64)
        self.partial_bytes: IntArray = np.empty(0, np.int64)
        self.parts: NDArray[np.uint8] = np.empty((1, _MAX_MESSAGE_BYTES), np.uint8)
        self.expect([])  # before the base class, whose start() reads these arrays
        super().__init__()

    def expect(self, meters: list[int]) -> None:
        """Set the number of meters of each switch of the next request, and make arrays for their counters."""
        if meters != self._meters:
            self._meters, self.ends = meters, np.cumsum(meters, dtype=np.int64)
            self.filled, self.partial_bytes = np.empty((2, len(meters)), np.int64)
            in_parts = np.array(meters, np.int64) > _MAX_METERS
            self.slot: IntArray = np.where(in_parts, np.cumsum(in_parts) - 1, _NOT_AWAITED)
            if np.count_nonzero(in_parts) > len(self.parts):
                self.parts = np.empty((np.count_nonzero(in_parts), _MAX_MESSAGE_BYTES), np.uint8)
        self.filled.fill(0)
        self.partial_bytes.fill(0)
        total = int(self.ends[-1]) if meters else 0
        self.stats: NDArray[np.void] = np.empty(total, METER_STATS)  # not reused: the last counters are still in use
        self.meter_id: NDArray[np.uint32] = np.empty(total, np.uint32)

    def _columns(self) -> tuple[NDArray[np.generic], ...]:
        """Return the arrays that the native reader fills, in its order."""
        of_replies = (self.ends, self.stats, self.meter_id, self.filled, self.partial_bytes, self.slot, self.parts)
        return *super()._columns(), *of_replies

    def partial_reply(self, fileno: int) -> tuple[NDArray[np.void], bytes]:
        """Return the received part of a socket's pending reply: METER_STATS (filled,), and an incomplete message."""
        row = self._row(fileno)
        if row == _NOT_AWAITED:
            return super().partial_reply(fileno)
        first = int(self.ends[row - 1]) if row else 0  # of the switch's rows in ``stats``
        incomplete_bytes = int(self.partial_bytes[row])
        incomplete = self.parts[self.slot[row], :incomplete_bytes].tobytes() if incomplete_bytes else b""
        return self.stats[first : first + int(self.filled[row])].copy(), incomplete
