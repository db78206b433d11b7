"""Measuring meters: they limit nothing, and count what came to a receiver's switch with a congestion mark, by pair."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.columns import NEW_ROW, BoolArray, FloatArray, IntArray
from controller.fabric.pair_table import PairTable, find_pairs
from controller.fabric.vn_table import VnTable
from controller.metering.counters import MeterCounters, MeterReadings, meter_rates
from controller.switch.meters.counter_meters import CounterMeters
from controller.switch.meters.meter_settings import MeterSetting, MeterSettingsTable

# A meter needs a band to drop by (OpenFlow 1.3.5, section 7.3.4.4): one that never does has the greatest rate there is.
UNLIMITED = MeterSetting(2**32 - 1, 2**32 - 1)


@dataclass(frozen=True)
class CountingMeters(CounterMeters):
    """The pairs that have one, by (receiver, sender), rows of the VN table; columns of shape (meters,)."""

    sender: IntArray
    receiver: IntArray

    @classmethod
    def empty(cls) -> CountingMeters:
        """Return the state in which no pair has one."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, MeterCounters.initial(0), nothing, nothing)

    def __len__(self) -> int:
        return len(self.meter_id)

    def kept(self, kept: BoolArray) -> CountingMeters:
        """Return the state with some of the meters only."""
        return self._rows(np.flatnonzero(kept))

    def added(self, sender: IntArray, receiver: IntArray, meter_id: IntArray) -> CountingMeters:
        """Return the state with more meters, of which nothing is known yet."""
        senders, receivers = np.concatenate([self.sender, sender]), np.concatenate([self.receiver, receiver])
        more = np.concatenate([np.arange(len(self)), np.full(len(sender), -1)])
        counters = self.counters.reindexed(more)
        order = np.lexsort((senders, receivers))
        ids = np.concatenate([self.meter_id, meter_id])
        return CountingMeters(ids, counters, senders, receivers)._rows(order)

    def settings(self, dpid: int, vns: VnTable) -> MeterSettingsTable:
        """Return what a switch's meters are set to."""
        ids = self.meter_id[self.of_switch(dpid, vns)]
        return MeterSettingsTable(ids, *(np.full(len(ids), value) for value in UNLIMITED))

    def rows_in(self, entries: PairTable) -> tuple[IntArray, BoolArray]:
        """Return the row of each meter's pair in an pair table, and whether it is there."""
        rows = find_pairs(entries, self.sender, self.receiver)
        return rows, rows != NEW_ROW

    def read(
        self,
        vns: VnTable,
        entries: PairTable,
        now: MeterReadings,
    ) -> tuple[CountingMeters, FloatArray]:
        """Return the state after one more interval, and what came with a mark, (entries,); NaN where unknown."""
        rates, counters = meter_rates(self.counters, now, vns.capacity_bps[self.sender])
        marked_bps = np.full(len(entries), np.nan)
        at, there = self.rows_in(entries)
        marked_bps[at[there]] = rates.offered_bps[there]
        return replace(self, counters=counters), marked_bps

    def dpid(self, vns: VnTable) -> NDArray[np.uint64]:
        """Return whose meters they are."""
        return vns.dpid[self.receiver]

    def _rows(self, rows: IntArray) -> CountingMeters:
        counters = self.counters.reindexed(rows)
        return CountingMeters(self.meter_id[rows], counters, self.sender[rows], self.receiver[rows])
