"""The last five minutes, a row a second: of every VLAN, and of those VNs that somebody watches."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.columns import FloatArray, IntArray
from controller.fabric.vns import VnKey, VnTable
from controller.observed.traffic import COLUMNS

SECONDS = 300
MOST_WATCHED = 64
WATCHED_S = 120.0
"""A VN that nobody has asked for in so long is watched no more."""
KEPT = ("offered", "received", "dropped", "granted", "send_offered", "sent", "send_limit_dropped", "flooded")
"""Those of the columns of traffic that are kept, for each second their mean and the highest of its intervals."""
_ROWS = np.array([COLUMNS.index(name) for name in KEPT], dtype=np.int64)


@dataclass(frozen=True)
class SeriesRows:
    """Rows of one VLAN or VN, oldest first: ``at_s`` (seconds,), ``mean_bps`` and ``max_bps`` (seconds, KEPT).

    ``limit_bps`` (seconds,) is the receive limit, the sum of a VLAN's.
    """

    at_s: FloatArray
    mean_bps: FloatArray
    max_bps: FloatArray
    limit_bps: FloatArray


class _Ring:
    """Means and highest values of ``keys`` columns of rates, a row a second, SECONDS of them."""

    def __init__(self, keys: int) -> None:
        self._at_s = np.full(SECONDS, np.nan)
        self._rows: NDArray[np.float32] = np.full((SECONDS, 2, len(KEPT), keys), np.nan, dtype=np.float32)
        self._limit_bps: NDArray[np.float32] = np.zeros((SECONDS, keys), dtype=np.float32)
        self._sum, self._max = np.zeros((len(KEPT), keys)), np.zeros((len(KEPT), keys))
        self._count = self._next = 0

    def add(self, rates_bps: FloatArray) -> None:
        self._sum += rates_bps
        np.maximum(self._max, rates_bps, out=self._max)
        self._count += 1

    def close(self, limit_bps: FloatArray, now_s: float) -> None:
        row = self._next
        self._at_s[row], self._limit_bps[row] = now_s, limit_bps
        self._rows[row, 0], self._rows[row, 1] = self._sum / max(self._count, 1), self._max
        self._sum[:], self._max[:], self._count = 0.0, 0.0, 0
        self._next = (row + 1) % SECONDS

    def of(self, key: int) -> SeriesRows:
        order = np.roll(np.arange(SECONDS), -self._next)
        order = order[~np.isnan(self._at_s[order])]
        mean, most = (self._rows[order, which, :, key].astype(np.float64) for which in (0, 1))
        return SeriesRows(self._at_s[order], mean, most, self._limit_bps[order, key].astype(np.float64))


class Series:
    """The series of a fabric's VLANs, and of the VNs that are watched."""

    def __init__(self, vns: VnTable) -> None:
        vids, self._vlan_of_vn = np.unique(vns.vlan_vid, return_inverse=True)
        self._vlan_at = {vid: at for at, vid in enumerate(vids.tolist())}
        self._vlans = _Ring(len(vids))
        self._watched: OrderedDict[VnKey, tuple[int, float, _Ring]] = OrderedDict()

    def carried(self, before: Series, vns: VnTable) -> Series:
        """Take over the VNs that are watched and are still there."""
        for key, (_row, asked_s, ring) in before._watched.items():
            row = vns.row_of(*key)
            if row is not None:
                self._watched[key] = (row, asked_s, ring)
        for vid in self._vlan_at.keys() & before._vlan_at.keys():
            mine, other = self._vlan_at[vid], before._vlan_at[vid]
            self._vlans._rows[..., mine] = before._vlans._rows[..., other]
            self._vlans._limit_bps[:, mine] = before._vlans._limit_bps[:, other]
        self._vlans._at_s[:], self._vlans._next = before._vlans._at_s, before._vlans._next
        return self

    def add(self, rates_bps: FloatArray) -> None:
        """Take the rates of an interval, shape (COLUMNS, vns)."""
        known = np.nan_to_num(rates_bps[_ROWS])
        vlans = len(self._vlan_at)
        self._vlans.add(np.stack([np.bincount(self._vlan_of_vn, column, vlans) for column in known]))
        for row, _asked_s, ring in self._watched.values():
            ring.add(known[:, row : row + 1])

    def close(self, vns: VnTable, now_s: float) -> None:
        """A second is full."""
        self._vlans.close(
            np.bincount(self._vlan_of_vn, vns.receive_limit_bps, len(self._vlan_at)).astype(np.float64), now_s
        )
        for key, (row, asked_s, ring) in list(self._watched.items()):
            ring.close(vns.receive_limit_bps[row : row + 1], now_s)
            if now_s - asked_s > WATCHED_S:
                del self._watched[key]

    def of_vlan(self, vlan_vid: int) -> SeriesRows:
        """Return the series of a VLAN, which must be one of the fabric's."""
        return self._vlans.of(self._vlan_at[vlan_vid])

    def of_vn(self, vns: VnTable, row: int, now_s: float) -> SeriesRows:
        """Return the series of a VN, from when it was first asked for, and go on watching it.

        Of more VNs than MOST_WATCHED the one that nobody has asked for the longest is watched no more.
        """
        key = vns.key(row)
        _row, _asked_s, ring = self._watched.pop(key, (row, now_s, None))
        ring = ring or _Ring(1)
        self._watched[key] = (row, now_s, ring)
        if len(self._watched) > MOST_WATCHED:
            self._watched.popitem(last=False)
        return ring.of(0)

    @property
    def watched_rows(self) -> IntArray:
        """The rows of the VNs that are watched."""
        return np.array([row for row, _, _ in self._watched.values()], dtype=np.int64)
