"""Meters that limit nothing and are read for their counters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from controller.columns import IntArray, reindex
from controller.fabric.vn_table import VnTable
from controller.metering.counters import MeterCounters

NO_METER = 0


@dataclass(frozen=True)
class CounterMeters(ABC):
    """The ids of meters of receivers' switches, and their counters as last read; columns of shape (meters,).

    NO_METER is no meter.
    """

    meter_id: IntArray
    counters: MeterCounters

    @abstractmethod
    def dpid(self, vns: VnTable) -> NDArray[np.uint64]:
        """Return the dpid of each meter's switch, shape (meters,)."""

    def rows_at(self, dpid: int, vns: VnTable) -> IntArray:
        """Return the rows of a switch's meters."""
        return np.flatnonzero((self.dpid(vns) == dpid) & (self.meter_id != NO_METER))

    def ids_of(self, dpid: int, vns: VnTable) -> list[int]:
        """Return the ids of a switch's meters."""
        ids: list[int] = self.meter_id[self.rows_at(dpid, vns)].tolist()
        return ids

    def invalidated(self, dpid: int, vns: VnTable, meter_id: IntArray | None) -> Self:
        """Return the state in which all or some counters of a switch are unknown."""
        rows = self.rows_at(dpid, vns)
        if meter_id is not None:
            rows = rows[np.isin(self.meter_id[rows], meter_id)]
        return replace(self, counters=self.counters.invalidated(rows)) if len(rows) else self

    def remembering(self, before: Self, old_row: IntArray) -> Self:
        """Return the state with the counters of ``before`` for rows whose ``old_row`` there had the same meter."""
        same = reindex(before.meter_id, old_row, -1) == self.meter_id
        columns = zip(self.counters, before.counters.reindexed(old_row), strict=True)
        return replace(self, counters=MeterCounters(*(np.where(same, was, now) for now, was in columns)))
