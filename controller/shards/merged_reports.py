"""The merged reports of local senders and live peers, as columns of the receivers' table: the input of policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray
from controller.dets.messages import ReceiverLoads, TrafficReport
from controller.dets.rate_allocator import IntervalContext
from controller.fabric.vn_table import VnTable
from controller.loop.control_step import ControlState, ceilings
from controller.loop.sender_side import SenderSide
from controller.metering.measurement import Measurement
from controller.node_protocol.header import LEFT, is_omitted
from controller.node_protocol.message_types import GrantRecord, OmittedColumns, ReportMessage
from controller.shards import shard_native
from controller.shards.receiver_table import ReceiverTable


@dataclass(frozen=True)
class MergedReports:
    """Reports of local pairs (rows ``local_rows`` of ``table``, with ``measured``), and of peers (``peer_reports``).

    The columns have the rows of the table, and are as in ``ReportMessage``.
    """

    table: ReceiverTable
    local_rows: IntArray
    measured: Measurement
    peer_reports: Sequence[ReportMessage]
    measured_bps: FloatArray
    limit_bps: FloatArray
    available_bps: FloatArray
    refused_bps: FloatArray
    last_bps: FloatArray
    unread_intervals: IntArray
    drops: BoolArray
    active: BoolArray

    @classmethod
    def build(
        cls,
        table: ReceiverTable,
        local_rows: IntArray,
        senders: SenderSide,
        local_report: TrafficReport,
        peer_reports: Sequence[ReportMessage],
        left: int,
    ) -> MergedReports:
        """Merge the report of local pairs with ``peer_reports``, which are in the order of the table's parts.

        ``left`` are the columns of local pairs that a message could omit.
        """
        seen = senders.seen
        here_of: dict[str, NDArray[Any]] = {
            "measured_bps": local_report.measured_bps,
            "limits": local_report.limit_bps,
            "available_bps": local_report.available_bps,
            "refused_bps": local_report.dropped_bps,
            "last_bps": seen.measured.passed_bps,
            "unread_intervals": seen.unread_intervals,
            "drops": local_report.drops,
            "active": local_report.active,
        }
        kept = dict[str, NDArray[Any]]()
        in_force_bps = _in_force(table, local_rows, local_report.limit_bps, peer_reports)
        if in_force_bps is not None:
            kept["limits"] = in_force_bps
        for which, column in (
            (OmittedColumns.AMOUNTS, table.no_rates),
            (OmittedColumns.UNREAD, table.zeros),
            (OmittedColumns.ACTIVE, table.trues),
        ):
            for name in LEFT[which]:
                if left & which and all(is_omitted(getattr(one, name)) for one in peer_reports):
                    kept[name] = column
        names, places = [name for name in here_of if name not in kept], table.part_rows[1:]
        reported = [[_column(one, name, at) for name in names] for one, at in zip(peer_reports, places, strict=True)]
        if "unread_intervals" in names:
            here_of["unread_intervals"] = seen.unread_intervals.astype(np.int64)
        merged = table.merged(local_rows, [here_of[name] for name in names], reported)
        found = kept | dict(zip(names, merged, strict=True))
        return cls(table, local_rows, seen.measured, peer_reports, *(found[name] for name in here_of))

    def reports(self, controlled: IntArray) -> TrafficReport:
        """Return the Traffic Reports of the rows of the table that are ``controlled`` control."""
        at = slice(None) if len(controlled) == len(self.table.entries) else controlled
        return TrafficReport(
            controlled,
            self.measured_bps[at],
            self.refused_bps[at],
            self.drops[at],
            self.limit_bps[at],
            self.available_bps[at],
            self.active[at],
        )

    def interval_context(self, context: IntervalContext) -> IntervalContext:
        """Return the policies' further input: ``context`` without links and their readings, for all pairs of the table.

        Only network-wide policies use ``used_bps`` and ``limit_bps`` of pairs not under control (``network_context``).
        """
        return context._replace(
            links=None,
            observed=None,
            used_bps=self.measured_bps,
            limit_bps=self.limit_bps,
            unread_intervals=self.unread_intervals,
            passed_bps=self.last_bps,
        )

    def network_context(self, context: IntervalContext, state: ControlState, vns: VnTable) -> IntervalContext:
        """Return the input of policies that use all pairs, under control or not."""
        used = [self.measured.measured_bps], [[one.measured_bps] for one in self.peer_reports]
        (used_bps,) = self.table.merged(self.local_rows, *used)
        limit_bps, here = np.minimum(context.limit_bps, ceilings(self.table.entries, vns)), self.table.part_rows[0]
        if state.adopted_bps is not None:
            limit_bps[here] = np.minimum(limit_bps[here], state.adopted_bps[self.local_rows])
        return context._replace(used_bps=used_bps, limit_bps=limit_bps)


def _column(report: ReportMessage, name: str, positions: IntArray) -> NDArray[Any]:
    """Return a column of a report, its rows at ``positions`` of the table.

    A report omits limits that equal the last grants: then these grants are returned.
    """
    if name != "limits":
        column: NDArray[Any] = getattr(report, name)
        return column
    limits = report.limits
    return limits.rate_bps if isinstance(limits, GrantRecord) and limits.rows is positions else report.limit_bps


def _in_force(
    table: ReceiverTable, local_rows: IntArray, local_bps: FloatArray, peer_reports: Sequence[ReportMessage]
) -> FloatArray | None:
    """Return the grants of all rows of the table, if these are the effective limits, as they usually are.

    ``local_bps`` are those of local pairs.
    """
    granted = [one.limits for one in peer_reports if isinstance(one.limits, GrantRecord)]
    if not granted or len(granted) < len(peer_reports):
        return None
    rate_bps, places = granted[0].rate_bps, table.part_rows[1:]
    if not all(one.rate_bps is rate_bps and one.rows is at for one, at in zip(granted, places, strict=True)):
        return None
    at = table.part_rows[0]
    if shard_native.library is not None:
        same = shard_native.same(rate_bps, at, local_bps, local_rows)
    else:
        same = np.array_equal(rate_bps[at], local_bps[local_rows])
    return rate_bps if same else None


def add_loads(loads: ReceiverLoads, peer_reports: Sequence[ReportMessage]) -> None:
    """Add the peers' loads on receivers to ``loads``."""
    whole = loads.passed_bps, loads.smoothed_bps, loads.dropped_bps
    parts = [(one.loaded, (one.passed_bps, one.smoothed_bps, one.dropped_bps)) for one in peer_reports]
    if shard_native.library is not None:
        shard_native.add_loads(whole, parts)
        return
    for rows, brought in parts:
        for column, more in zip(whole, brought, strict=True):
            column[rows] += more
