"""Counting meters: they limit nothing, and count the marked frames of a pair that arrive at the receiver's switch."""

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

# A meter needs a drop band (OpenFlow 1.3.5, section 7.3.4.4): one that never drops has the maximum rate.
UNLIMITED = MeterSetting(2**32 - 1, 2**32 - 1)


@dataclass(frozen=True)
class CountingMeters(CounterMeters):
    """The pairs with a counting meter, by (receiver, sender), rows of the VN table; columns of shape (meters,)."""

    sender: IntArray
    receiver: IntArray

    @classmethod
    def empty(cls) -> CountingMeters:
        """Return the state without counting meters."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, MeterCounters.initial(0), nothing, nothing)

    def __len__(self) -> int:
        return len(self.meter_id)

    def subset(self, kept: BoolArray) -> CountingMeters:
        """Return the state with the ``kept`` meters only."""
        return self._rows(np.flatnonzero(kept))

    def added(self, sender: IntArray, receiver: IntArray, meter_id: IntArray) -> CountingMeters:
        """Return the state with more meters, whose counters are unknown yet."""
        senders, receivers = np.concatenate([self.sender, sender]), np.concatenate([self.receiver, receiver])
        more = np.concatenate([np.arange(len(self)), np.full(len(sender), -1)])
        counters = self.counters.reindexed(more)
        order = np.lexsort((senders, receivers))
        ids = np.concatenate([self.meter_id, meter_id])
        return CountingMeters(ids, counters, senders, receivers)._rows(order)

    def settings(self, dpid: int, vns: VnTable) -> MeterSettingsTable:
        """Return the settings of a switch's meters."""
        ids = self.meter_id[self.rows_at(dpid, vns)]
        return MeterSettingsTable(ids, *(np.full(len(ids), value) for value in UNLIMITED))

    def rows_in(self, entries: PairTable) -> tuple[IntArray, BoolArray]:
        """Return the row of each meter's pair in a pair table, and whether it has one."""
        rows = find_pairs(entries, self.sender, self.receiver)
        return rows, rows != NEW_ROW

    def read(
        self,
        vns: VnTable,
        entries: PairTable,
        now: MeterReadings,
    ) -> tuple[CountingMeters, FloatArray]:
        """Return the state after one more interval, and the marked rates, (pairs,); NaN where unknown."""
        rates, counters = meter_rates(self.counters, now, vns.capacity_bps[self.sender])
        marked_bps = np.full(len(entries), np.nan)
        row, has_pair = self.rows_in(entries)
        marked_bps[row[has_pair]] = rates.offered_bps[has_pair]
        return replace(self, counters=counters), marked_bps

    def dpid(self, vns: VnTable) -> NDArray[np.uint64]:
        """Return the dpid of each meter's switch."""
        return vns.dpid[self.receiver]

    def _rows(self, rows: IntArray) -> CountingMeters:
        counters = self.counters.reindexed(rows)
        return CountingMeters(self.meter_id[rows], counters, self.sender[rows], self.receiver[rows])
