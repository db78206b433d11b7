"""Measuring meters: they limit nothing, and count what came to a receiver's switch with a congestion mark, by pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray
from controller.fabric.entries import EntryTable
from controller.fabric.vns import VnTable
from controller.metering.counters import MeterCounters, meter_rates
from controller.switch.meter_settings import MeterColumns, MeterSetting
from controller.switch.phantom_meters import read_meters

# A meter needs a band to drop by (OpenFlow 1.3.5, section 7.3.4.4): one that never does has the greatest rate there is.
UNLIMITED = MeterSetting(2**32 - 1, 2**32 - 1)


@dataclass(frozen=True)
class MeasuringMeters:
    """The pairs that have one, by (receiver, sender), rows of the VN table; columns of shape (meters,).

    ``meter_id`` is a meter of the receiver's switch, ``counters`` are as last read.
    """

    sender: IntArray
    receiver: IntArray
    meter_id: IntArray
    counters: MeterCounters

    @classmethod
    def none(cls) -> MeasuringMeters:
        """Return the state in which no pair has one."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, nothing, nothing, MeterCounters.unknown(0))

    def __len__(self) -> int:
        return len(self.meter_id)

    def kept(self, kept: BoolArray) -> MeasuringMeters:
        """Return the state with some of the meters only."""
        return self._rows(np.flatnonzero(kept))

    def given(self, sender: IntArray, receiver: IntArray, meter_id: IntArray) -> MeasuringMeters:
        """Return the state with more meters, of which nothing is known yet."""
        senders, receivers = np.concatenate([self.sender, sender]), np.concatenate([self.receiver, receiver])
        more = np.concatenate([np.arange(len(self)), np.full(len(sender), -1)])
        counters = self.counters.carried(more)
        order = np.lexsort((senders, receivers))
        ids = np.concatenate([self.meter_id, meter_id])
        return MeasuringMeters(senders, receivers, ids, counters)._rows(order)

    def forgotten(self, dpid: int, vns: VnTable, meter_id: IntArray | None) -> MeasuringMeters:
        """Return the state in which nothing is known of the counters of a switch, of all or of some meters."""
        rows = self._of_switch(dpid, vns)
        if meter_id is not None:
            rows = rows[np.isin(self.meter_id[rows], meter_id)]
        return replace(self, counters=self.counters.forgotten(rows)) if len(rows) else self

    def ids_of(self, dpid: int, vns: VnTable) -> list[int]:
        """Return the ids of a switch's meters."""
        ids: list[int] = self.meter_id[self._of_switch(dpid, vns)].tolist()
        return ids

    def settings(self, dpid: int, vns: VnTable) -> MeterColumns:
        """Return what a switch's meters are set to."""
        ids = self.meter_id[self._of_switch(dpid, vns)]
        return MeterColumns(ids, *(np.full(len(ids), value) for value in UNLIMITED))

    def rows_in(self, entries: EntryTable, vns: int) -> tuple[IntArray, BoolArray]:
        """Return the row of each meter's pair in an entry table, and whether it is there."""
        keys, mine = entries.receiver * vns + entries.sender, self.receiver * vns + self.sender
        if not len(keys):
            return np.zeros(len(self), dtype=np.int64), np.zeros(len(self), dtype=np.bool_)
        rows = np.minimum(np.searchsorted(keys, mine), len(keys) - 1)
        return rows, keys[rows] == mine

    def read(
        self,
        vns: VnTable,
        entries: EntryTable,
        stats: Mapping[int, NDArray[np.void]],
        received_s: Mapping[int, float],
        confirmed_s: Mapping[int, float],
    ) -> tuple[MeasuringMeters, FloatArray]:
        """Return the state after one more interval, and what came with a mark, (entries,); NaN where unknown."""
        rows_by_switch = {dpid: self._of_switch(dpid, vns) for dpid in stats}
        now = read_meters(self.meter_id, rows_by_switch, stats, received_s, confirmed_s)
        rates, counters = meter_rates(self.counters, now, vns.capacity_bps[self.sender])
        marked_bps = np.full(len(entries), np.nan)
        at, there = self.rows_in(entries, len(vns))
        marked_bps[at[there]] = rates.offered_bps[there]
        return replace(self, counters=counters), marked_bps

    def _of_switch(self, dpid: int, vns: VnTable) -> IntArray:
        return np.flatnonzero(vns.dpid[self.receiver] == dpid)

    def _rows(self, rows: IntArray) -> MeasuringMeters:
        counters = self.counters.carried(rows)
        return MeasuringMeters(self.sender[rows], self.receiver[rows], self.meter_id[rows], counters)
