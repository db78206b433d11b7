"""Phantom meters of receiving VNs: what they are set to, and what they say.

A *phantom meter* stands behind the output and limits nothing: what it drops has gone out already, and counts as too
much for the receiver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controller.columns import FloatArray, IntArray
from controller.fabric.vns import VnTable
from controller.metering.counters import MeterCounters, MeterReadings, meter_rates
from controller.metering.enforcement import FRAME_BITS, RATE_STEP_BPS, whole_rates
from controller.metering.mark_readings import PHANTOM_BURST_S, PHANTOM_PART, MarkReadings
from controller.openflow.constants import COUNTER_UNAVAILABLE

NO_METER = 0


@dataclass(frozen=True)
class PhantomMeters:
    """The ids of the meters, (vns,), NO_METER for none, and their counters as last read."""

    meter_id: IntArray
    counters: MeterCounters

    @classmethod
    def none(cls, vns: int) -> PhantomMeters:
        """Return the state in which nobody has one."""
        return cls(np.full(vns, NO_METER, dtype=np.int64), MeterCounters.unknown(vns))

    def __bool__(self) -> bool:
        return self._any

    @cached_property
    def _any(self) -> bool:
        return bool(self.meter_id.any())

    def given(self, rows: IntArray, meter_id: IntArray) -> PhantomMeters:
        """Return the state in which VNs have these meters, of which nothing is known yet; NO_METER takes them away."""
        ids = self.meter_id.copy()
        ids[rows] = meter_id
        return PhantomMeters(ids, self.counters.forgotten(rows))

    def forgotten(self, dpid: int, vns: VnTable, meter_id: IntArray | None) -> PhantomMeters:
        """Return the state in which nothing is known of the counters of a switch, of all or of some meters."""
        rows = self._of_switch(dpid, vns)
        if meter_id is not None:
            rows = rows[np.isin(self.meter_id[rows], meter_id)]
        return replace(self, counters=self.counters.forgotten(rows)) if len(rows) else self

    def ids_of(self, dpid: int, vns: VnTable) -> list[int]:
        """Return the ids of a switch's meters."""
        ids: list[int] = self.meter_id[self._of_switch(dpid, vns)].tolist()
        return ids

    def settings(self, dpid: int, vns: VnTable) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return ids, rates and bursts of a switch's meters."""
        rows = self._of_switch(dpid, vns)
        return self.meter_id[rows], *phantom_settings(vns.receive_limit_bps[rows])

    def read(
        self,
        vns: VnTable,
        marked_bps: FloatArray,
        stats: Mapping[int, NDArray[np.void]],
        received_s: Mapping[int, float],
        confirmed_s: Mapping[int, float],
    ) -> tuple[PhantomMeters, MarkReadings]:
        """Return the state after one more interval, and what the meters say (``stats``: METER_STATS by switch).

        ``marked_bps`` (entries,) is what measuring meters say.
        """
        rows_by_switch = {dpid: self._of_switch(dpid, vns) for dpid in stats}
        now = read_meters(self.meter_id, rows_by_switch, stats, received_s, confirmed_s)
        # What arrives is bounded by what all of a VLAN can send.
        most = int(vns.vlan_vid.max(initial=0)) + 1
        sums_bps = np.bincount(vns.vlan_vid, weights=vns.capacity_bps, minlength=most).astype(np.float64)
        rates, counters = meter_rates(self.counters, now, sums_bps[vns.vlan_vid])
        readings = MarkReadings(marked_bps, rates.offered_bps, rates.dropped_bps)
        return replace(self, counters=counters), readings

    def _of_switch(self, dpid: int, vns: VnTable) -> IntArray:
        return np.flatnonzero((vns.dpid == dpid) & (self.meter_id != NO_METER))


def phantom_settings(receive_limit_bps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rates and bursts of phantom meters of VNs with these limits: whole kb/s and kb."""
    rate_bps = whole_rates(PHANTOM_PART * receive_limit_bps)
    burst_bits = np.maximum(receive_limit_bps * PHANTOM_BURST_S, 3 * FRAME_BITS)
    return rate_bps, np.ceil(burst_bits / RATE_STEP_BPS) * RATE_STEP_BPS


def read_meters(
    meter_id: IntArray,
    rows_by_switch: Mapping[int, IntArray],
    stats: Mapping[int, NDArray[np.void]],
    received_s: Mapping[int, float],
    confirmed_s: Mapping[int, float],
) -> MeterReadings:
    """Return what switches say of meters, a row for each id; ``rows_by_switch`` says which rows are a switch's."""
    readings = MeterReadings.none(len(meter_id))
    for dpid, meters in stats.items():
        rows = rows_by_switch[dpid]
        if len(rows) and len(meters):
            _read_switch(readings, meters, rows, meter_id[rows], (received_s[dpid], confirmed_s.get(dpid, np.nan)))
    return readings


def _read_switch(
    readings: MeterReadings,
    meters: NDArray[np.void],
    rows: IntArray,
    meter_id: IntArray,
    times_s: tuple[float, float],
) -> None:
    """Write what a switch says of these meters to these rows."""
    order = np.argsort(meters["meter_id"], kind="stable")
    ids = meters["meter_id"][order]
    at = np.minimum(np.searchsorted(ids, meter_id), len(ids) - 1)
    found = ids[at] == meter_id
    rows, at = rows[found], order[at[found]]
    byte_in, dropped = meters["byte_in_count"][at], meters["band_byte_count"][at]
    known = (byte_in != COUNTER_UNAVAILABLE) & (dropped != COUNTER_UNAVAILABLE)
    rows, at = rows[known], at[known]
    readings.byte_in_count[rows], readings.dropped_byte_count[rows] = byte_in[known], dropped[known]
    readings.duration_s[rows] = meters["duration_s"][at]
    readings.received_s[rows], readings.confirmed_s[rows] = times_s
    readings.present[rows] = True
