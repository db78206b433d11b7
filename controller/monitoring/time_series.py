"""Time series of the last five minutes, one row per second: of every VLAN, and of watched VNs."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.central.controller import CentralController
from controller.columns import FloatArray
from controller.fabric.vn_table import VnKey, VnTable
from controller.metering.measurement import sum_by_row
from controller.monitoring.traffic_totals import COLUMNS

SECONDS = 300
MAX_WATCHED = 64
WATCHED_S = 120.0
"""A VN that was not asked for in this time is no longer watched."""
SERIES_COLUMNS = ("offered", "received", "dropped", "granted", "send_offered", "sent", "send_limit_dropped", "flooded")
"""The columns with a series: for each second their mean and the maximum of its intervals."""
_ROWS = np.array([COLUMNS.index(name) for name in SERIES_COLUMNS], dtype=np.int64)


@dataclass(frozen=True)
class SeriesRows:
    """Rows of one VLAN or VN, oldest first: ``at_s`` (seconds,), mean and maximum (seconds, SERIES_COLUMNS).

    ``limit_bps`` (seconds,) is the receive limit; for a VLAN, the sum of its VNs' limits.
    """

    at_s: FloatArray
    mean_bps: FloatArray
    max_bps: FloatArray
    limit_bps: FloatArray


class _Ring:
    """Means and maxima of ``keys`` columns of rates, one row per second, for SECONDS seconds."""

    def __init__(self, keys: int) -> None:
        self.at_s = np.full(SECONDS, np.nan)
        # The second axis: the mean of a second, and its maximum.
        self.rows: NDArray[np.float32] = np.full((SECONDS, 2, len(SERIES_COLUMNS), keys), np.nan, dtype=np.float32)
        self.limit_bps: NDArray[np.float32] = np.zeros((SECONDS, keys), dtype=np.float32)
        self.next = 0

    def close(self, mean_bps: FloatArray, max_bps: FloatArray, limit_bps: FloatArray, now_s: float) -> None:
        """Add the mean and the maximum rates of a second, shape (SERIES_COLUMNS, keys)."""
        row = self.next
        self.at_s[row], self.limit_bps[row] = now_s, limit_bps
        self.rows[row, 0], self.rows[row, 1] = mean_bps, np.maximum(mean_bps, max_bps)
        self.next = (row + 1) % SECONDS

    def series(self, key: int) -> SeriesRows:
        """Return the rows of a key, oldest first."""
        order = np.roll(np.arange(SECONDS), -self.next)
        order = order[~np.isnan(self.at_s[order])]
        mean, most = (self.rows[order, which, :, key].astype(np.float64) for which in (0, 1))
        return SeriesRows(self.at_s[order], mean, most, self.limit_bps[order, key].astype(np.float64))


@dataclass
class _WatchedVn:
    """A watched VN: its row, when it was last asked for, and the maximum rates of this second."""

    row: int
    requested_s: float
    ring: _Ring
    max_bps: FloatArray


class TimeSeries:
    """The series of a fabric's VLANs, and of watched VNs.

    For a VLAN the maximum over intervals is known of the rates offered, received and dropped; for its other columns the
    mean is used instead.
    """

    def __init__(self, vns: VnTable) -> None:
        vids, self._vlan_of_vn = np.unique(vns.vlan_vid, return_inverse=True)
        self._vlan_at = {vid: at for at, vid in enumerate(vids.tolist())}
        self._vlans = _Ring(len(vids))
        self._max_bps = np.zeros((len(SERIES_COLUMNS), len(vids)))
        self._watched: OrderedDict[VnKey, _WatchedVn] = OrderedDict()

    def with_history(self, before: TimeSeries, vns: VnTable) -> TimeSeries:
        """Take over the watched VNs and the VLANs that still exist."""
        for key, one in before._watched.items():
            row = vns.row_of(*key)
            if row is not None:
                self._watched[key] = replace(one, row=row)
        both = sorted(self._vlan_at.keys() & before._vlan_at.keys())
        mine, other = ([one._vlan_at[vid] for vid in both] for one in (self, before))
        self._vlans.rows[..., mine] = before._vlans.rows[..., other]
        self._vlans.limit_bps[:, mine] = before._vlans.limit_bps[:, other]
        self._vlans.at_s[:], self._vlans.next = before._vlans.at_s, before._vlans.next
        return self

    def add(self, central: CentralController, rates_bps: FloatArray) -> None:
        """Add the rates of an interval, shape (COLUMNS, vns)."""
        # The loads are the first three SERIES_COLUMNS.
        sums_bps = sum_by_row(self._vlan_of_vn, central.fabric.receiver_loads_bps, len(self._vlan_at))
        most_bps = self._max_bps[: len(sums_bps)]
        np.maximum(most_bps, sums_bps, out=most_bps)
        for one in self._watched.values():
            np.fmax(one.max_bps, rates_bps[_ROWS, one.row], out=one.max_bps)

    def close(self, vns: VnTable, mean_bps: FloatArray, now_s: float) -> None:
        """End a second; ``mean_bps`` (COLUMNS, vns) is its mean."""
        known = mean_bps[_ROWS]
        known[np.isnan(known)] = 0.0
        vlans = len(self._vlan_at)
        sums_bps = np.stack([np.bincount(self._vlan_of_vn, column, vlans) for column in known]).astype(np.float64)
        limit_bps = np.bincount(self._vlan_of_vn, vns.receive_limit_bps, vlans).astype(np.float64)
        self._vlans.close(sums_bps, self._max_bps, limit_bps, now_s)
        self._max_bps[:] = 0.0
        for key, one in list(self._watched.items()):
            rows = slice(one.row, one.row + 1)
            one.ring.close(known[:, rows], one.max_bps[:, None], vns.receive_limit_bps[rows], now_s)
            one.max_bps[:] = 0.0
            if now_s - one.requested_s > WATCHED_S:
                del self._watched[key]

    def vlan_series(self, vlan_vid: int) -> SeriesRows:
        """Return the series of a VLAN of the fabric."""
        return self._vlans.series(self._vlan_at[vlan_vid])

    def vn_series(self, vns: VnTable, row: int, now_s: float) -> SeriesRows:
        """Return the series of a VN since it was first asked for, and keep watching it.

        Above MAX_WATCHED VNs, the one not asked for the longest is no longer watched.
        """
        key = vns.key(row)
        one = self._watched.pop(key, None) or _WatchedVn(row, now_s, _Ring(1), np.zeros(len(SERIES_COLUMNS)))
        self._watched[key] = replace(one, row=row, requested_s=now_s)
        if len(self._watched) > MAX_WATCHED:
            self._watched.popitem(last=False)
        return one.ring.series(0)
