"""What own senders and those of live peers have reported, as columns of the receivers' table: what policies see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.columns import FloatArray, IntArray
from controller.dets.messages import TrafficReport
from controller.dets.rate_allocator import Surroundings
from controller.fabric.vns import VnTable
from controller.loop.sender_side import SenderSide
from controller.loop.step import ControlState, ceilings
from controller.shards.frames import Report
from controller.shards.receiver_table import ReceiverTable

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True)
class Gathered:
    """``own`` are the rows of the shard's own entries in ``table``, ``here`` what these report, ``said`` what peers do.

    ``measured_bps`` and ``limit_bps`` have the rows of the table.
    """

    table: ReceiverTable
    own: IntArray
    senders: SenderSide
    here: TrafficReport
    said: Sequence[Report]
    measured_bps: FloatArray
    limit_bps: FloatArray

    @classmethod
    def of(
        cls, table: ReceiverTable, own: IntArray, senders: SenderSide, here: TrafficReport, said: Sequence[Report]
    ) -> Gathered:
        """Return it; ``said`` are in the order of the table's parts."""
        measured_bps = table.merged(here.measured_bps[own], [one.measured_bps for one in said])
        limit_bps = table.merged(here.limit_bps[own], [one.limit_bps for one in said])
        return cls(table, own, senders, here, said, measured_bps, limit_bps)

    def reports(self, under: IntArray) -> TrafficReport:
        """Return the Traffic Reports of the rows of the table that are ``under`` control."""
        here, said = self.here, self.said
        picked = slice(None) if len(under) == len(self.table.entries) else under
        return TrafficReport(
            under,
            self.measured_bps[picked],
            self._merged(here.dropped_bps, [one.refused_bps for one in said])[picked],
            self.limit_bps[picked],
            self._merged(here.available_bps, [one.available_bps for one in said])[picked],
            self._merged(here.active, [one.active for one in said])[picked],
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
            self._merged(self.senders.unread_intervals, [one.unread_intervals for one in self.said]),
            received_bps,
            self._merged(self.senders.measured.passed_bps, [one.last_bps for one in self.said]),
        )

    def of_network(self, seen: Surroundings, state: ControlState, vns: VnTable) -> Surroundings:
        """Return what policies see that look at all entries, under control or not."""
        used_bps = self._merged(self.senders.measured.measured_bps, [one.measured_bps for one in self.said])
        limit_bps, here = np.minimum(seen.limit_bps, ceilings(self.table.entries, vns)), self.table.places[0]
        if state.adopted_bps is not None:
            limit_bps[here] = np.minimum(limit_bps[here], state.adopted_bps[self.own])
        return replace(seen, used_bps=used_bps, limit_bps=limit_bps)

    def _merged(self, here: NDArray[_Scalar], said: Sequence[NDArray[_Scalar]]) -> NDArray[_Scalar]:
        return self.table.merged(here[self.own], said)
