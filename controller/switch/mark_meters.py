"""The meters that count marks: phantom meters of receiving VNs, measuring meters of entries. What they are, and say.

They limit nothing. A *phantom meter* stands behind the output: what it drops has gone out already, and counts as too
much. A *measuring meter* has a rate that nothing reaches and counts the frames that come with a mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.columns import NEW_ROW, BoolArray, FloatArray, IntArray
from controller.fabric.entries import EntryTable
from controller.fabric.vns import VnTable
from controller.metering.counters import MeterCounters, MeterReadings, meter_rates
from controller.metering.enforcement import FRAME_BITS, RATE_STEP_BPS, whole_rates
from controller.metering.mark_readings import PHANTOM_BURST_S, PHANTOM_PART, MarkReadings
from controller.openflow.constants import COUNTER_UNAVAILABLE

NO_METER = 0
COUNTS_ONLY_BPS = 0xFFFF_FFFF * RATE_STEP_BPS
"""The highest rate that a band can have (OpenFlow 1.3.5, section 7.3.4.4): a meter has to have a band."""


@dataclass(frozen=True)
class MarkMeters:
    """Ids of the meters, NO_METER for none, with their counters: ``phantom_id`` (vns,), ``measuring_id`` (entries,).

    ``entries`` is the table that the measuring meters are of.
    """

    entries: EntryTable
    phantom_id: IntArray
    measuring_id: IntArray
    phantom_counters: MeterCounters
    measuring_counters: MeterCounters

    @classmethod
    def none(cls, vns: int) -> MarkMeters:
        """Return the state in which nobody has one."""
        nothing = np.empty(0, dtype=np.int64)
        ids = np.full(vns, NO_METER, dtype=np.int64)
        return cls(EntryTable.empty(), ids, nothing, MeterCounters.unknown(vns), MeterCounters.unknown(0))

    def __bool__(self) -> bool:
        return bool(self.phantom_id.any() or self.measuring_id.any())

    def with_entries(self, entries: EntryTable, old_row: IntArray) -> MarkMeters:
        """Return the state for another table of entries, which were the rows ``old_row`` of this one."""
        kept = old_row != NEW_ROW
        ids = np.full(len(entries), NO_METER, dtype=np.int64)
        ids[kept] = self.measuring_id[old_row[kept]]
        counters = self.measuring_counters.carried(old_row)
        return replace(self, entries=entries, measuring_id=ids, measuring_counters=counters)

    def with_phantom(self, row: int, meter_id: int) -> MarkMeters:
        """Return the state in which a VN has this phantom meter, of which nothing is known yet."""
        ids = self.phantom_id.copy()
        ids[row] = meter_id
        return replace(self, phantom_id=ids, phantom_counters=self.phantom_counters.forgotten(np.array([row])))

    def with_measuring(self, row: int, meter_id: int) -> MarkMeters:
        """Return the state in which an entry has this measuring meter, of which nothing is known yet."""
        ids = self.measuring_id.copy()
        ids[row] = meter_id
        return replace(self, measuring_id=ids, measuring_counters=self.measuring_counters.forgotten(np.array([row])))

    def modified(self, vns: IntArray, sent_s: float) -> MarkMeters:
        """Return the state after OFPMC_MODIFY was sent for the phantom meters of these VNs."""
        return replace(self, phantom_counters=self.phantom_counters.modified(vns, sent_s))

    def forgotten(self, dpid: int, vns: VnTable, meter_id: IntArray | None) -> MarkMeters:
        """Return the state in which nothing is known of the counters of a switch, of all or of some meters."""
        phantom, measuring = self._of_switch(dpid, vns)
        if meter_id is not None:
            phantom = phantom[np.isin(self.phantom_id[phantom], meter_id)]
            measuring = measuring[np.isin(self.measuring_id[measuring], meter_id)]
        return replace(
            self,
            phantom_counters=self.phantom_counters.forgotten(phantom),
            measuring_counters=self.measuring_counters.forgotten(measuring),
        )

    def ids_of(self, dpid: int, vns: VnTable) -> list[int]:
        """Return the ids of a switch's meters."""
        phantom, measuring = self._of_switch(dpid, vns)
        return [*self.phantom_id[phantom].tolist(), *self.measuring_id[measuring].tolist()]

    def settings(self, dpid: int, vns: VnTable) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return ids, rates and bursts of a switch's meters."""
        phantom, measuring = self._of_switch(dpid, vns)
        rate_bps, burst_bits = phantom_settings(vns.receive_limit_bps[phantom])
        return (
            np.concatenate([self.phantom_id[phantom], self.measuring_id[measuring]]),
            np.concatenate([rate_bps, np.full(len(measuring), COUNTS_ONLY_BPS)]),
            np.concatenate([burst_bits, np.full(len(measuring), RATE_STEP_BPS)]),
        )

    def read(
        self,
        vns: VnTable,
        stats: Mapping[int, NDArray[np.void]],
        received_s: Mapping[int, float],
        confirmed_s: Mapping[int, float],
    ) -> tuple[MarkMeters, MarkReadings]:
        """Return the state after one more interval, and what the meters say (``stats``: METER_STATS by switch)."""
        of_vns, of_entries = MeterReadings.none(len(vns)), MeterReadings.none(len(self.measuring_id))
        for dpid, meters in stats.items():
            phantom, measuring = self._of_switch(dpid, vns)
            times_s = received_s[dpid], confirmed_s.get(dpid, np.nan)
            order = np.argsort(meters["meter_id"], kind="stable")
            _read(of_vns, meters, order, phantom, self.phantom_id[phantom], times_s)
            _read(of_entries, meters, order, measuring, self.measuring_id[measuring], times_s)
        # What arrives is bounded by the senders' ports together, so that plausible is what all of a VLAN could send.
        most = int(vns.vlan_vid.max(initial=0)) + 1
        sums_bps = np.bincount(vns.vlan_vid, weights=vns.capacity_bps, minlength=most).astype(np.float64)
        phantom_rates, phantom_counters = meter_rates(
            self.phantom_counters.confirmed(of_vns.confirmed_s), of_vns, sums_bps[vns.vlan_vid]
        )
        marked_rates, measuring_counters = meter_rates(
            self.measuring_counters, of_entries, vns.capacity_bps[self.entries.sender]
        )
        readings = MarkReadings(marked_rates.offered_bps, phantom_rates.offered_bps, phantom_rates.dropped_bps)
        after = replace(self, phantom_counters=phantom_counters, measuring_counters=measuring_counters)
        return after, readings

    def _of_switch(self, dpid: int, vns: VnTable) -> tuple[IntArray, IntArray]:
        """Return the VNs and the entries that have a meter at a switch: the receivers' one."""
        there: BoolArray = vns.dpid == dpid
        phantom = np.flatnonzero(there & (self.phantom_id != NO_METER))
        measuring = np.flatnonzero(there[self.entries.receiver] & (self.measuring_id != NO_METER))
        return phantom, measuring


def phantom_settings(receive_limit_bps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rates and bursts of phantom meters of VNs with these limits: whole kb/s and kb."""
    rate_bps = whole_rates(PHANTOM_PART * receive_limit_bps)
    burst_bits = np.maximum(receive_limit_bps * PHANTOM_BURST_S, 3 * FRAME_BITS)
    return rate_bps, np.ceil(burst_bits / RATE_STEP_BPS) * RATE_STEP_BPS


def _read(
    readings: MeterReadings,
    meters: NDArray[np.void],
    order: IntArray,
    rows: IntArray,
    meter_id: IntArray,
    times_s: tuple[float, float],
) -> None:
    """Write what a switch says of these meters to these rows."""
    if not len(rows) or not len(meters):
        return
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


def missing(wanted: BoolArray, ids: IntArray) -> Iterator[int]:
    """Yield the rows that should have a meter and have none."""
    yield from np.flatnonzero(wanted & (ids == NO_METER)).tolist()


def spare(wanted: BoolArray, ids: IntArray) -> Iterator[int]:
    """Yield the rows that have a meter and should not."""
    yield from np.flatnonzero(~wanted & (ids != NO_METER)).tolist()
