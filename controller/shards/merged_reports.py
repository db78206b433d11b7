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

        ``left`` (a sum of OmittedColumns) are the groups of columns that a message about the local pairs could omit.
        A group that all peers omit, too, needs no merging: it is one constant.
        """
        seen = senders.seen
        # The names are those of ReportMessage, in the order of this class's fields: ``cls`` takes them by position.
        local_columns: dict[str, NDArray[Any]] = {
            "measured_bps": local_report.measured_bps,
            "limits": local_report.limit_bps,
            "available_bps": local_report.available_bps,
            "refused_bps": local_report.dropped_bps,
            "last_bps": seen.measured.passed_bps,
            "unread_intervals": seen.unread_intervals,
            "drops": local_report.drops,
            "active": local_report.active,
        }
        complete = dict[str, NDArray[Any]]()  # columns that need no merging
        effective_bps = _effective_grants(table, local_rows, local_report.limit_bps, peer_reports)
        if effective_bps is not None:
            complete["limits"] = effective_bps
        for which, column in (
            (OmittedColumns.AMOUNTS, table.no_rates),
            (OmittedColumns.UNREAD, table.zeros),
            (OmittedColumns.ACTIVE, table.trues),
        ):
            for name in LEFT[which]:
                if left & which and all(is_omitted(getattr(report, name)) for report in peer_reports):
                    complete[name] = column
        names = [name for name in local_columns if name not in complete]
        peer_columns = [
            [_column(report, name, rows) for name in names]
            for report, rows in zip(peer_reports, table.part_rows[1:], strict=True)
        ]
        if "unread_intervals" in names:
            local_columns["unread_intervals"] = seen.unread_intervals.astype(np.int64)
        merged = table.merged(local_rows, [local_columns[name] for name in names], peer_columns)
        columns = complete | dict(zip(names, merged, strict=True))
        return cls(table, local_rows, seen.measured, peer_reports, *(columns[name] for name in local_columns))

    def reports(self, controlled: IntArray) -> TrafficReport:
        """Return the Traffic Reports of the rows ``controlled`` of the table, which are ascending."""
        selection = slice(None) if len(controlled) == len(self.table.entries) else controlled  # all rows need none
        return TrafficReport(
            controlled,
            self.measured_bps[selection],
            self.refused_bps[selection],
            self.drops[selection],
            self.limit_bps[selection],
            self.available_bps[selection],
            self.active[selection],
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
        """Return the input of policies that use all pairs, under control or not.

        ``used_bps`` of local pairs is the measured rate itself, which a Traffic Report caps at the limit.
        """
        peer_bps = [[report.measured_bps] for report in self.peer_reports]
        (used_bps,) = self.table.merged(self.local_rows, [self.measured.measured_bps], peer_bps)
        limit_bps = np.minimum(context.limit_bps, ceilings(self.table.entries, vns))
        if state.adopted_bps is not None:
            positions = self.table.part_rows[0]  # of the local pairs
            limit_bps[positions] = np.minimum(limit_bps[positions], state.adopted_bps[self.local_rows])
        return context._replace(used_bps=used_bps, limit_bps=limit_bps)


def _column(report: ReportMessage, name: str, positions: IntArray) -> NDArray[Any]:
    """Return a column of a report, whose rows have the rows ``positions`` in the table.

    A report omits limits that equal the last grants. If these were for the same table, they are returned with the rows
    of the table, as ``ReceiverTable.merged`` accepts them.
    """
    if name != "limits":
        column: NDArray[Any] = getattr(report, name)
        return column
    limits = report.limits
    return limits.rate_bps if isinstance(limits, GrantRecord) and limits.rows is positions else report.limit_bps


def _effective_grants(
    table: ReceiverTable, local_rows: IntArray, local_bps: FloatArray, peer_reports: Sequence[ReportMessage]
) -> FloatArray | None:
    """Return the last grants of all rows of the table if they are the effective limits, as usually; otherwise None.

    They are if all reports refer to the same grants, and ``local_bps``, the limits of local pairs, equal them too.
    """
    grants = [report.limits for report in peer_reports if isinstance(report.limits, GrantRecord)]
    if not grants or len(grants) < len(peer_reports):
        return None
    rate_bps, peer_rows = grants[0].rate_bps, table.part_rows[1:]
    if not all(
        grant.rate_bps is rate_bps and grant.rows is rows for grant, rows in zip(grants, peer_rows, strict=True)
    ):
        return None
    positions = table.part_rows[0]
    if shard_native.library is not None:
        equal = shard_native.same(rate_bps, positions, local_bps, local_rows)
    else:
        equal = np.array_equal(rate_bps[positions], local_bps[local_rows])
    return rate_bps if equal else None


def add_loads(loads: ReceiverLoads, peer_reports: Sequence[ReportMessage]) -> None:
    """Add the peers' loads on receivers to the columns of ``loads``, in place."""
    sums = loads.passed_bps, loads.smoothed_bps, loads.dropped_bps
    parts = [(report.loaded, (report.passed_bps, report.smoothed_bps, report.dropped_bps)) for report in peer_reports]
    if shard_native.library is not None:
        shard_native.add_loads(sums, parts)
        return
    for rows, peer_loads in parts:
        for column, load in zip(sums, peer_loads, strict=True):
            column[rows] += load
