"""Flood rates: what VNs flood, and what receivers get of it, from the counters of the flood meters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import FloatArray, IntArray, reindex
from controller.metering.counters import MIN_ELAPSED_S, PLAUSIBLE_LOAD
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.meters import PACKETS_UNAVAILABLE
from controller.units import BITS_PER_BYTE

READ_S = 0.5
"""Minimum interval of readings: floods are small next to the traffic under control."""
STEP = 0.005
"""A receiver's limit follows its floods in steps of this part of it, so that small changes have no effect."""
MIN_FRAME_BYTES = 14
"""of a frame that a meter counts: an Ethernet header"""
FORGET_S = 5.0
"""A VN without drops for this time is within its flood limit again."""


class _Counters(NamedTuple):
    """Counters of VNs' meters, shape (3, vns): rows for floods, discovery and packet-ins; NaN: not in the reply."""

    passed_bytes: FloatArray
    dropped_bytes: FloatArray
    dropped_packets: FloatArray  # the low 32 bits
    duration_s: FloatArray

    @classmethod
    def read(cls, stats: NDArray[np.void], positions: NDArray[np.int32]) -> _Counters:
        """Return the counters of the meters at ``positions`` (3, vns) of ``stats`` (METER_STATS); below 0: no meter."""
        columns, is_listed = [], positions >= 0
        listed_positions = positions[is_listed]
        for name in ("byte_in_count", "band_byte_count", "band_packet_count", "duration_s"):
            values = stats[name][listed_positions]
            unavailable = PACKETS_UNAVAILABLE if name == "band_packet_count" else COUNTER_UNAVAILABLE
            column = np.full(positions.shape, np.nan)
            column[is_listed] = np.where(values == unavailable, np.nan, values)
            columns.append(column)
        entered, dropped, packets, duration_s = columns
        return cls(entered - dropped, dropped, packets, duration_s)


@dataclass
class FloodRates:
    """Rates of VNs' floods, (vns,). NaN: not known yet, or the switch has no such meter.

    ``passed_bps`` is the VN's flood rate, ``dropped_bps`` what its flood meters dropped, ``received_bps`` the other
    VNs' floods that it receives. ``reports_dropped`` counts frames that its packet-in meter kept from the controller.
    ``dropping`` is the mask of the VNs that flood beyond their limits.
    """

    passed_bps: FloatArray
    dropped_bps: FloatArray
    received_bps: FloatArray
    reports_dropped: FloatArray
    dropping: NDArray[np.bool_]
    _dropped_s: FloatArray  # when a reading last had drops of floods
    _last: _Counters
    _last_s: FloatArray  # when the last counters arrived
    _modified_s: FloatArray  # when the flood and discovery meters were last modified
    _read_s: float = -math.inf

    @classmethod
    def initial(cls, vns: int) -> FloodRates:
        """Return the rates of VNs before the first reading."""
        unknown, zeros = np.full(vns, np.nan), np.zeros(vns)
        never_s, dropping = np.full((3, vns), -np.inf), np.zeros(vns, dtype=np.bool_)
        last = _Counters(*[np.full((3, vns), np.nan)] * len(_Counters._fields))
        return cls(unknown, unknown.copy(), zeros, zeros.copy(), dropping, never_s[0], last, *never_s[1:])

    def reindexed(self, old_row: IntArray) -> FloodRates:
        """Return the rates for a re-arranged VN table."""

        def times(column: FloatArray) -> FloatArray:
            return reindex(column, old_row, -np.inf)

        last = [np.stack([reindex(kind, old_row, np.nan) for kind in column]) for column in self._last]
        return FloodRates(
            reindex(self.passed_bps, old_row, np.nan),
            reindex(self.dropped_bps, old_row, np.nan),
            reindex(self.received_bps, old_row, 0.0),
            reindex(self.reports_dropped, old_row, 0.0),
            reindex(self.dropping, old_row, False),
            times(self._dropped_s),
            _Counters(*last),
            times(self._last_s),
            times(self._modified_s),
            self._read_s,
        )

    def modified(self, rows: IntArray, sent_s: float) -> None:
        """Record that OFPMC_MODIFY was sent for these VNs' flood meters: Open vSwitch counts from zero from then on."""
        self._modified_s[rows] = sent_s

    def invalidated(self, rows: IntArray) -> None:
        """Discard the counters of these VNs."""
        last = [column.copy() for column in self._last]
        for column in last:
            column[:, rows] = np.nan
        self._last = _Counters(*last)

    def due(self, now_s: float) -> bool:
        """Return whether READ_S have passed since the counters were last read; if so, record a reading at ``now_s``."""
        due = now_s - self._read_s >= READ_S
        if due:
            self._read_s = now_s
        return due

    def read(
        self,
        stats: NDArray[np.void],
        positions: NDArray[np.int32],
        answered: NDArray[np.bool_],
        capacity_bps: FloatArray,
        now_s: float,
    ) -> None:
        """Store the counters (METER_STATS) of the VNs whose switches have ``answered``, shape (vns,).

        ``positions`` (3, vns) are the rows in ``stats`` of each VN's meters of floods, discovery and packet-ins; below
        0: no such meter. A meter that was modified since the last reading has counted from zero since its modification.
        A counter that fell without a modification was reset, and one that grew faster than PLAUSIBLE_LOAD times
        ``capacity_bps`` (vns,) did not count frames: the rate of its VN stays.
        """
        last, now = self._last, _Counters.read(stats, positions)
        modified, last_s = self._modified_s > self._last_s, self._last_s
        self._last = _Counters(*(np.where(answered, *columns) for columns in zip(now, last, strict=True)))
        self._last_s = np.where(answered, now_s, last_s)
        with np.errstate(invalid="ignore", divide="ignore"):
            # Rows 0 and 1: the meters of floods and of discovery, (2, vns); their rates are added in the end.
            uncounted_s = np.where(modified, self._modified_s - last_s, 0.0)
            elapsed_s = now.duration_s[:2] - (last.duration_s[:2] + uncounted_s)
            passed_bytes = now.passed_bytes[:2] - np.where(modified, 0.0, last.passed_bytes[:2])
            dropped_bytes = now.dropped_bytes[:2] - np.where(modified, 0.0, last.dropped_bytes[:2])
            passed_bps = passed_bytes * BITS_PER_BYTE / elapsed_s
            dropped_bps = dropped_bytes * BITS_PER_BYTE / elapsed_s
            known = ((passed_bps >= 0) & (dropped_bps >= 0) & (elapsed_s >= MIN_ELAPSED_S)).all(axis=0) & answered
            known &= (passed_bps + dropped_bps <= PLAUSIBLE_LOAD * capacity_bps).all(axis=0)
            # Row 2: the packet-in meter. The low 32 bits of its count may have wrapped around, if the bytes of so many
            # packets were dropped; otherwise the meter was modified, and has counted from zero.
            lost_packets = now.dropped_packets[2] - last.dropped_packets[2]
            wrapped_packets = lost_packets + PACKETS_UNAVAILABLE + 1
            has_bytes = now.dropped_bytes[2] - last.dropped_bytes[2] >= MIN_FRAME_BYTES * wrapped_packets
            lost_packets = np.where((lost_packets < 0) & has_bytes, wrapped_packets, lost_packets)
        self.passed_bps[known] = passed_bps[:, known].sum(axis=0)
        self.dropped_bps[known] = dropped_bps[:, known].sum(axis=0)
        self.reports_dropped += np.where(answered & (lost_packets > 0), lost_packets, 0.0)
        self._dropped_s[known & (dropped_bps.sum(axis=0) > 0)] = now_s

    def update(self, vlan: IntArray, receive_limit_bps: FloatArray, now_s: float) -> tuple[IntArray, IntArray]:
        """Update ``received_bps`` and ``dropping``; return the rows that began to drop, and the rows that stopped.

        ``vlan`` (vns,) is each VN's VLAN index (``VnTable.vlan``). ``received_bps`` changes in steps of STEP.
        """
        passed_bps = np.where(np.isnan(self.passed_bps), 0.0, self.passed_bps)
        # A VN receives the floods of all other VNs of its VLAN.
        arriving_bps = np.maximum(np.bincount(vlan, passed_bps)[vlan] - passed_bps, 0.0)
        arriving_bps = np.where(arriving_bps < STEP * receive_limit_bps, 0.0, arriving_bps)
        changed = np.abs(arriving_bps - self.received_bps) > STEP * receive_limit_bps
        changed |= (arriving_bps == 0.0) & (self.received_bps > 0.0)
        if changed.any():
            self.received_bps = np.where(changed, arriving_bps, self.received_bps)
        before, self.dropping = self.dropping, now_s - self._dropped_s < FORGET_S
        return np.flatnonzero(self.dropping & ~before), np.flatnonzero(before & ~self.dropping)
