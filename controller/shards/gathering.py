"""What own senders and those of live peers have reported, as columns of the receivers' table: what policies see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.dets.messages import TrafficReport
from controller.dets.rate_allocator import Surroundings
from controller.fabric.vns import VnTable
from controller.loop.sender_side import SenderSide
from controller.loop.step import ControlState, ceilings
from controller.metering.measurement import Measurement
from controller.shards.frames import Report
from controller.shards.receiver_table import ReceiverTable

_MERGED = ("measured_bps", "refused_bps", "limit_bps", "available_bps", "last_bps", "unread_intervals", "active")


@dataclass(frozen=True)
class Gathered:
    """``own`` are the rows in ``table`` of the shard's own entries, ``measured`` theirs, ``said`` what peers report.

    The columns have the rows of the table, and are as in ``Report``.
    """

    table: ReceiverTable
    own: IntArray
    measured: Measurement
    said: Sequence[Report]
    measured_bps: FloatArray
    refused_bps: FloatArray
    limit_bps: FloatArray
    available_bps: FloatArray
    last_bps: FloatArray
    unread_intervals: IntArray
    active: BoolArray

    @classmethod
    def of(
        cls, table: ReceiverTable, own: IntArray, senders: SenderSide, here: TrafficReport, said: Sequence[Report]
    ) -> Gathered:
        """Return it; ``here`` is what own entries report, ``said`` are in the order of the table's parts."""
        seen, rates = senders.seen, (here.measured_bps, here.dropped_bps, here.limit_bps, here.available_bps)
        unread = seen.unread_intervals.astype(np.int64)
        columns = (*rates, seen.measured.passed_bps, unread, here.active)
        reported = [[getattr(one, name) for name in _MERGED] for one in said]
        return cls(table, own, seen.measured, said, *table.merged(own, columns, reported))

    def reports(self, under: IntArray) -> TrafficReport:
        """Return the Traffic Reports of the rows of the table that are ``under`` control."""
        at = slice(None) if len(under) == len(self.table.entries) else under
        return TrafficReport(
            under,
            self.measured_bps[at],
            self.refused_bps[at],
            self.limit_bps[at],
            self.available_bps[at],
            self.active[at],
        )

    def surroundings(self, state: ControlState, received_bps: FloatArray, now_s: float) -> Surroundings:
        """Return what else policies see; ``received_bps`` (vns,) is what all meters bring to a VN.

        Only policies that see the whole network look at ``used_bps`` and ``limit_bps`` of entries not under control
        (``of_network``).
        """
        return Surroundings(
            now_s,
            0.0 if np.isnan(state.decided_s) else now_s - state.decided_s,
            None,
            self.measured_bps,
            self.limit_bps,
            self.unread_intervals,
            received_bps,
            self.last_bps,
        )

    def of_network(self, seen: Surroundings, state: ControlState, vns: VnTable) -> Surroundings:
        """Return what policies see that look at all entries, under control or not."""
        used = [self.measured.measured_bps], [[one.measured_bps] for one in self.said]
        (used_bps,) = self.table.merged(self.own, *used)
        limit_bps, here = np.minimum(seen.limit_bps, ceilings(self.table.entries, vns)), self.table.places[0]
        if state.adopted_bps is not None:
            limit_bps[here] = np.minimum(limit_bps[here], state.adopted_bps[self.own])
        return replace(seen, used_bps=used_bps, limit_bps=limit_bps)
