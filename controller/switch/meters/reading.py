"""Meters that limit nothing and are there for their counters: what switches say of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from controller.columns import IntArray, carry
from controller.fabric.vns import VnTable
from controller.metering.counters import MeterCounters, MeterReadings
from controller.openflow.constants import COUNTER_UNAVAILABLE


@dataclass(frozen=True)
class ReadMeters(ABC):
    """The ids of meters of receivers' switches, and their counters as last read; columns of shape (meters,)."""

    meter_id: IntArray
    counters: MeterCounters

    @abstractmethod
    def of_switch(self, dpid: int, vns: VnTable) -> IntArray:
        """Return the rows of a switch's meters."""

    def ids_of(self, dpid: int, vns: VnTable) -> list[int]:
        """Return the ids of a switch's meters."""
        ids: list[int] = self.meter_id[self.of_switch(dpid, vns)].tolist()
        return ids

    def forgotten(self, dpid: int, vns: VnTable, meter_id: IntArray | None) -> Self:
        """Return the state in which nothing is known of the counters of a switch, of all or of some meters."""
        rows = self.of_switch(dpid, vns)
        if meter_id is not None:
            rows = rows[np.isin(self.meter_id[rows], meter_id)]
        return replace(self, counters=self.counters.forgotten(rows)) if len(rows) else self

    def remembering(self, before: Self, old_row: IntArray) -> Self:
        """Return the state with what was known ``before`` of those whose meter is that of their ``old_row`` there."""
        same = carry(before.meter_id, old_row, -1) == self.meter_id
        columns = zip(self.counters, before.counters.carried(old_row), strict=True)
        return replace(self, counters=MeterCounters(*(np.where(same, was, now) for now, was in columns)))

    def readings(
        self,
        vns: VnTable,
        stats: Mapping[int, NDArray[np.void]],
        received_s: Mapping[int, float],
        confirmed_s: Mapping[int, float],
    ) -> MeterReadings:
        """Return what switches say (``stats``: METER_STATS by switch), a row for each meter."""
        readings = MeterReadings.none(len(self.meter_id))
        for dpid, meters in stats.items():
            rows = self.of_switch(dpid, vns)
            if len(rows) and len(meters):
                times_s = received_s[dpid], confirmed_s.get(dpid, np.nan)
                _read_switch(readings, meters, rows, self.meter_id[rows], times_s)
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
