"""One question to many switches: what they answer goes into columns, without an object for an answer.

What comes is read so only where it is the answer that is awaited, with nothing before it: meters, as many as the switch
had the last time, in one message or in several parts, or a barrier's reply. That is once for each request, so that it
takes nothing of a peer's allowance. All else is the connection's own business, as before (docs/adr/0150).

The compiled form of reading sockets fills the columns (``_sockets.c``). Without it nobody is called: everybody is asked
as usual.
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
    """Who was called last to confirm what was sent, by barriers, and who has; the next call ends it.

    By number, in the order of calling: ``xid`` of the request, and ``at_s``, when the answer came, NaN for whoever has
    not answered so. ``index_of`` leads from a socket to the number, as long as an answer may come; ``left`` is how many
    may (1,). ``columns`` are all of these.
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
        """Await answers at these sockets, to requests with these xids."""
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
        """Return who is called."""
        return self.index_of, self.xid, self.at_s, self.pending_count

    @property
    def is_over(self) -> bool:
        """Whether no answer is awaited any more."""
        return not self.pending_count[0]

    def cancel(self, fileno: int) -> bool:
        """Await no answer at a socket any more; return whether one was awaited."""
        if self._number(fileno) == _NOBODY:
            return False
        self.index_of[fileno] = _NOBODY
        self.pending_count[0] -= 1
        self.notify_if_done()
        return True

    def partial_reply(self, fileno: int) -> tuple[NDArray[np.void], bytes]:
        """Return what has come of the answer that is awaited at a socket: METER_STATS, and a part that is not whole."""
        return np.empty(0, METER_STATS), b""

    def notify_if_done(self) -> None:
        """Wake whoever waits for the answers once none is awaited any more."""
        if not self.pending_count[0]:
            self._all_in.end()

    def wait(self, timeout_s: float) -> bool:
        """Return whether, within so long, no answer is awaited any more."""
        if not self.is_over and timeout_s > 0.0:
            self._all_in.wait(timeout_s)
        return self.is_over

    def _number(self, fileno: int) -> int:
        return int(self.index_of[fileno]) if 0 <= fileno < len(self.index_of) else _NOBODY


class BulkMeterStats(BulkBarrier):
    """Who was called last for the counters of its meters: in ``stats`` (METER_STATS), where each's end at ``ends``.

    Their ids are in ``meter_id`` as well. Of each ``filled`` meters have come. Of those with more than fit into one
    message, ``kept`` octets have come of the next part; they are in row ``slot`` of ``parts``.
    """

    def __init__(self) -> None:
        self._meters: list[int] | None = None
        self.ends: IntArray = np.empty(0, np.int64)
        self.filled: IntArray = np.empty(0, np.int64)
        self.kept: IntArray = np.empty(0, np.int64)
        self.parts: NDArray[np.uint8] = np.empty((1, _MAX_MESSAGE_BYTES), np.uint8)
        self.expect([])
        super().__init__()

    def expect(self, meters: list[int]) -> None:
        """Say how many meters each of those who are called has."""
        if meters != self._meters:
            self._meters, self.ends = meters, np.cumsum(meters, dtype=np.int64)
            self.filled, self.kept = np.empty((2, len(meters)), np.int64)
            in_parts = np.array(meters, np.int64) > _MAX_METERS
            self.slot: IntArray = np.where(in_parts, np.cumsum(in_parts) - 1, _NOBODY)
            if np.count_nonzero(in_parts) > len(self.parts):
                self.parts = np.empty((np.count_nonzero(in_parts), _MAX_MESSAGE_BYTES), np.uint8)
        self.filled.fill(0)
        self.kept.fill(0)
        in_all = int(self.ends[-1]) if meters else 0
        self.stats: NDArray[np.void] = np.empty(in_all, METER_STATS)  # others keep the last ones
        self.meter_id: NDArray[np.uint32] = np.empty(in_all, np.uint32)

    def _columns(self) -> tuple[NDArray[np.generic], ...]:
        of_answers = (self.ends, self.stats, self.meter_id, self.filled, self.kept, self.slot, self.parts)
        return *super()._columns(), *of_answers

    def partial_reply(self, fileno: int) -> tuple[NDArray[np.void], bytes]:
        """Return what has come of the answer that is awaited at a socket: METER_STATS, and a part that is not whole."""
        number = self._number(fileno)
        if number == _NOBODY:
            return super().partial_reply(fileno)
        first = self._first(number)
        return self.stats[first : first + int(self.filled[number])].copy(), self._kept(number)

    def _first(self, number: int) -> int:
        return int(self.ends[number - 1]) if number else 0

    def _kept(self, number: int) -> bytes:
        kept = int(self.kept[number])
        return self.parts[self.slot[number], :kept].tobytes() if kept else b""
