"""When a round is to begin before it is due: traffic has begun that no sender is held back for.

Choice: DETS has no such thing (section V measures once an interval). A blast begins at any moment of an interval, and
the first reading shows a part of it alone, so that meters would hold it one interval later, or two (docs/adr/0261).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray
from controller.fabric.vns import VnTable
from controller.metering.counters import MIN_ELAPSED_S, PLAUSIBLE_LOAD
from controller.units import BITS_PER_BYTE

JUMP = 0.1
"""What a port has to carry more than before, as a part of its capacity."""
NEAR = 0.8
"""What it has to carry in all, as a part of the least limit of its VNs that are not congested."""
PORT_PAUSE_S = 1.0
"""A port is the reason for one early round in so long, whatever its hosts do."""
PER_S, AT_ONCE = 4.0, 4.0
"""All ports together are the reason for so many a second, and for so many on end."""


SOONEST_S = 1.2 * MIN_ELAPSED_S
"""An early round begins no sooner after the last one: counters could not be read again."""
_TICK_S = 1e-6  # two readings are never nearer


class PortCounters(NamedTuple):
    """What switches (``dpids``) say that their ports have sent, one switch's after the other's.

    ``port_no`` and ``sent_bytes`` have shape (ports,); those of each switch end at ``ends`` (dpids,).
    """

    dpids: list[int]
    port_no: IntArray
    sent_bytes: NDArray[np.uint64]
    ends: IntArray


class EarlyRounds:
    """Tells from the counters of receiving ports whether a round is to begin at once.

    A reason is worth two rounds: the first reading may show a part of what began alone, the next one does not.
    """

    def __init__(self) -> None:
        self._vn_dpid: NDArray[np.uint64] | None = None  # the column of the VN table that the ports are of
        self._ports = _Ports.behind(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0))
        self._tokens, self._filled_s = AT_ONCE, -np.inf
        self._once_more = False

    def look(
        self,
        vns: VnTable,
        congested: BoolArray,
        counters: PortCounters,
        now_s: float,
    ) -> bool:
        """Take the counters of switches' ports in; return whether a round is to begin.

        ``congested`` (vns,) are those whose senders are held already. A counter that is missing, went back or jumped is
        no reason.
        """
        if vns.dpid is not self._vn_dpid:
            self._vn_dpid, self._ports = vns.dpid, _Ports.behind(vns.dpid, vns.port_no, vns.capacity_bps)
        rows = self._ports.that_jumped(counters, now_s)
        if len(rows):
            limit_bps = self._ports.least_limit_bps(np.where(congested, np.inf, vns.receive_limit_bps))
            rows = rows[self._ports.rate_bps[rows] >= NEAR * limit_bps[rows]]
        once_more, self._once_more = self._once_more, False
        return self._granted(rows, now_s) or once_more

    def _granted(self, rows: IntArray, now_s: float) -> bool:
        """Return whether these ports are a reason for which there is an allowance."""
        if not len(rows):
            return False
        self._tokens = min(self._tokens + PER_S * (now_s - self._filled_s), AT_ONCE)
        self._filled_s = now_s
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        self._ports.reason_s[rows] = now_s
        self._once_more = True
        return True


@dataclass
class _Ports:
    """Ports behind which VNs are, each with its last reading; columns of shape (ports,), NaN where it is unknown.

    ``of_vn`` (vns,) is each VN's port, ``row_of`` the row of a port, ``reason_s`` when it was a reason last. ``found``
    is where the ports are in an answer, as long as that lists the same ones.
    """

    row_of: dict[tuple[int, int], int]
    of_vn: IntArray
    capacity_bps: FloatArray
    sent_bytes: FloatArray
    at_s: FloatArray
    rate_bps: FloatArray
    reason_s: FloatArray
    found: tuple[PortCounters, tuple[IntArray, IntArray]] | None = None

    @classmethod
    def behind(cls, dpid: NDArray[np.uint64], port_no: IntArray, capacity_bps: FloatArray) -> _Ports:
        """Return the ports of VNs, unread; columns of shape (vns,)."""
        row_of: dict[tuple[int, int], int] = {}
        of_vn = [row_of.setdefault(port, len(row_of)) for port in zip(dpid.tolist(), port_no.tolist(), strict=True)]
        unknown = np.full(len(row_of), np.nan)
        of_port = unknown.copy()
        of_port[of_vn] = capacity_bps
        never_s = np.full(len(row_of), -np.inf)
        return cls(row_of, np.array(of_vn, np.int64), of_port, unknown.copy(), unknown.copy(), unknown.copy(), never_s)

    def least_limit_bps(self, limit_bps: FloatArray) -> FloatArray:
        """Return the least of the limits (vns,) at each port."""
        least_bps = np.full(len(self.row_of), np.inf)
        np.minimum.at(least_bps, self.of_vn, limit_bps)
        return least_bps

    def that_jumped(self, counters: PortCounters, now_s: float) -> IntArray:
        """Take the counters in; return the ports that carry much more than at the reading before."""
        rows, places = self._places(counters)
        sent_bytes, capacity_bps = counters.sent_bytes[places].astype(np.float64), self.capacity_bps[rows]
        elapsed_s = np.maximum(now_s - self.at_s[rows], _TICK_S)
        rate_bps = (sent_bytes - self.sent_bytes[rows]) * (BITS_PER_BYTE / elapsed_s)
        rate_bps[~((rate_bps >= 0.0) & (rate_bps <= PLAUSIBLE_LOAD * capacity_bps))] = np.nan
        jumped = rate_bps - self.rate_bps[rows] >= JUMP * capacity_bps
        jumped &= now_s - self.reason_s[rows] >= PORT_PAUSE_S
        self.sent_bytes[rows], self.at_s[rows], self.rate_bps[rows] = sent_bytes, now_s, rate_bps
        return rows[jumped]

    def _places(self, counters: PortCounters) -> tuple[IntArray, IntArray]:
        """Return the rows of the ports in an answer that are known, and where they are in it."""
        dpids, port_no, _, ends = counters
        if self.found is not None:
            (of, theirs, _, until), known = self.found
            if of == dpids and np.array_equal(theirs, port_no) and np.array_equal(until, ends):
                return known
        dpid_of = np.repeat(np.array(dpids, np.uint64), np.diff(ends, prepend=0)).tolist()
        rows = np.array([self.row_of.get(port, -1) for port in zip(dpid_of, port_no.tolist(), strict=True)], np.int64)
        places = np.flatnonzero(rows >= 0)
        known = rows[places], places
        self.found = counters, known
        return known
