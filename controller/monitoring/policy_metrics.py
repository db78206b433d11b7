"""Further reports of policies: marks, losses, and bottlenecks of pairs."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from controller.central.fabric_state import FabricState
from controller.columns import FloatArray, IntArray, nan_column


class PolicyMetrics(NamedTuple):
    """The marked and lost shares of some pairs' traffic, NaN where unknown, and their bottlenecks as text."""

    marked: FloatArray
    lost: FloatArray
    bottleneck: list[str | None]


def policy_columns(fabric: FabricState, rows: IntArray) -> PolicyMetrics:
    """Return the last decisions' reports for these rows of the pair table, ascending."""
    marked, lost = np.full((2, len(rows)), np.nan)
    bottleneck: list[str | None] = [None] * len(rows)
    for decision in fabric.state.allocators.decisions:
        view = decision.view
        if view.entries is not fabric.state.entries:
            continue
        # ``mine`` are positions in ``rows``, ``at`` the positions of the same pairs in the decision.
        _, mine, at = np.intersect1d(rows, view.rows, assume_unique=True, return_indices=True)
        for column, reported in ((marked, decision.marked), (lost, decision.lost)):
            if reported is not None:
                column[mine] = reported[at]
        if decision.bottlenecks is not None:
            numbers, number = np.unique(decision.bottlenecks[at], return_inverse=True)
            names = [
                None if one < 0 else decision.bottleneck_name(one, fabric.location_name) for one in numbers.tolist()
            ]
            for index, one in zip(mine.tolist(), number.tolist(), strict=True):
                bottleneck[index] = names[one]
    return PolicyMetrics(marked, lost, bottleneck)


def busiest_entries(fabric: FabricState, vns: IntArray) -> IntArray:
    """Return the pair with the highest rate to each of these VNs, as a row of the pair table; -1: none."""
    entries = fabric.state.entries
    rows = np.flatnonzero(np.isin(entries.receiver, vns))
    order = rows[np.argsort(fabric.state.measured.passed_bps[rows], kind="stable")]
    busiest = np.full(len(fabric.vns), -1, dtype=np.int64)
    busiest[entries.receiver[order]] = order  # the last one of each receiver remains, which is the busiest
    return busiest[vns]


def marked_and_lost(fabric: FabricState) -> tuple[FloatArray, FloatArray]:
    """Return the marked and lost rates of the traffic to each VN: (vns,) each, in bit/s.

    NaN where the VN's policy does not report them, or they are unknown.
    """
    state, vns = fabric.control.state, len(fabric.control.vns)
    reporting = [one for one in state.allocators.decisions if one.marked is not None or one.lost is not None]
    if not reporting:
        return nan_column(vns), nan_column(vns)
    columns = np.full((2, vns), np.nan)
    for decision in reporting:
        view = decision.view
        if view.entries is not state.entries:
            continue
        for column, reported in zip(columns, (decision.marked, decision.lost), strict=True):
            if reported is None:
                continue
            known = np.flatnonzero(~np.isnan(reported))
            receiver, passed_bps = view.receiver[known], state.measured.passed_bps[view.rows[known]]
            sums_bps = np.bincount(receiver, reported[known] * passed_bps, minlength=vns)
            column[receiver] = sums_bps[receiver]
    return columns[0], columns[1]


def bottleneck_counts(fabric: FabricState) -> dict[str, int]:
    """Return the number of pairs at each bottleneck, by its name."""
    found: Counter[str] = Counter()
    for decision in fabric.state.allocators.decisions:
        if decision.view.entries is fabric.state.entries and decision.bottlenecks is not None:
            numbers, counts = np.unique(decision.bottlenecks, return_counts=True)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                if number >= 0:
                    found[decision.bottleneck_name(number, fabric.location_name)] += count
    return dict(found)
