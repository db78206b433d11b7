"""What policies report of entries next to their limits: marks, losses, and where an entry is held back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controller.central.state import FabricState
from controller.columns import FloatArray, IntArray


class PolicyColumns(NamedTuple):
    """Of some entries: shares of their traffic, NaN where unknown or not reported, and the bottleneck in words."""

    marked: FloatArray
    lost: FloatArray
    bottleneck: list[str | None]


def policy_columns(fabric: FabricState, rows: IntArray) -> PolicyColumns:
    """Return what the last decisions report of these rows of the entry table, ascending."""
    marked, lost = np.full((2, len(rows)), np.nan)
    bottleneck: list[str | None] = [None] * len(rows)
    for decision in fabric.state.allocators.decisions:
        view = decision.view
        if view.entries is not fabric.state.entries:
            continue
        _, mine, at = np.intersect1d(rows, view.rows, assume_unique=True, return_indices=True)
        for column, reported in ((marked, decision.marked), (lost, decision.lost)):
            if reported is not None:
                column[mine] = reported[at]
        for index, one in zip(mine.tolist(), at.tolist(), strict=True):
            bottleneck[index] = decision.bottleneck(one, fabric.place_name)
    return PolicyColumns(marked, lost, bottleneck)
