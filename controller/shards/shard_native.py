"""The native form of shard exchange (``_shard.c``): identical bytes and bits, each in one pass.

``library`` is None if it was not built, or if the machine is not little-endian, as messages are; callers check that
first.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, Int16Array, IntArray
from controller.dets.send_rate_controller import ControlArray
from controller.native_loader import load_native
from controller.node_protocol.codec_native import WIDE, Columns, check_widths

_PASSES = "dets_all_told", "dets_obey", "dets_bring", "dets_merge", "dets_granted", "dets_to_own", "dets_same"
library: Any = load_native("controller.shards._shard", *_PASSES) if sys.byteorder == "little" else None


def all_reportable(
    idle: int, idle_intervals: int, rows: IntArray, control: ControlArray, silent_intervals: Int16Array
) -> bool:
    """Return whether each row in state ``idle`` was silent for less than ``idle_intervals``."""
    reportable: int = library.dets_all_told((rows, control, silent_intervals), idle, idle_intervals)
    return reportable == 1


def apply_grants(
    states: tuple[int, int],
    before: tuple[BoolArray, IntArray, ControlArray, FloatArray, Int16Array],
    parts: Sequence[tuple[IntArray, IntArray, FloatArray]],
    unchanged_rows: Sequence[IntArray],
) -> tuple[FloatArray, Int16Array] | None:
    """Return limits and intervals since a message, with the granted rates; None if a machine needs the general path.

    ``states`` are idle and limited; ``before`` are the mask of receivers under control (vns,), and receivers, states,
    limits and intervals since a message of all pairs. A part consists of the rows to a peer, the rows that the peer
    grants a rate, and these rates. A machine needs the general path if a row to a peer is idle although its receiver is
    under control, or the reverse, or if a granted row is not limited. Where both rows are the same array, the caller
    has checked that all their receivers are under control. ``unchanged_rows`` are the other rows, as several arrays.
    """
    limit_bps, intervals = before[3:]
    if sum(len(rows) for _, rows, _ in parts) + sum(map(len, unchanged_rows)) == len(limit_bps):
        after = np.empty_like(limit_bps), np.empty_like(intervals)  # all rows are written
    else:
        after, unchanged_rows = (limit_bps.copy(), intervals.copy()), ()  # copied here, not by the native function
    columns = (*before, *after, *(column for part in parts for column in part), *unchanged_rows)
    applied: int = library.dets_obey(columns, *states, len(parts), len(unchanged_rows))
    return after if applied == 1 else None


def add_loads(whole: Sequence[FloatArray], parts: Sequence[tuple[IntArray, Sequence[FloatArray]]]) -> None:
    """Add each part's loads at these rows, ascending, to the three columns of ``whole`` (vns,)."""
    columns = (*whole, *(column for rows, loads in parts for column in (rows, *loads)))
    library.dets_bring(columns, len(parts))


def merge(
    part_rows: Sequence[IntArray], local_rows: IntArray, local_columns: Columns, peer_columns: Sequence[Columns]
) -> list[NDArray[Any]]:
    """Return columns of one table: the rows ``local_rows`` of ``local_columns``, and the ``peer_columns``.

    ``part_rows`` are the rows of the table to which they go, of the local part first. In each list columns with
    elements of eight bytes come before those of one byte. A peer's eight-byte column that is as long as the table is
    read at the same rows.
    """
    rows, eights = sum(map(len, part_rows)), sum(column.itemsize == WIDE for column in local_columns)
    for part in (local_columns, *peer_columns):
        check_widths(part[:eights], part[eights:])
    whole = [np.empty(rows, column.dtype) for column in local_columns]
    placed = zip(part_rows, (local_columns, *peer_columns), strict=True)
    parts = [one for place, part in placed for one in (place, *part)]
    library.dets_merge((local_rows, *whole, *parts), len(part_rows), eights, len(local_columns) - eights)
    return whole


def granted(effective_bps: FloatArray, rows: IntArray, rate_bps: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return the grants of all rows, and the mask of changed rows.

    ``rows``, ascending, get ``rate_bps``; all other rows keep their ``effective_bps``.
    """
    grants_bps, changed = np.empty(len(effective_bps)), np.empty(len(effective_bps), np.bool_)
    library.dets_granted((effective_bps, rows, rate_bps, grants_bps, changed))
    return grants_bps, changed


def select_local(
    rate_bps: FloatArray, changed: BoolArray, positions: IntArray, local_rows: IntArray
) -> tuple[IntArray, FloatArray, IntArray]:
    """Return the rows whose rate changed, their new rates, and the rows whose rate is the old one.

    ``local_rows[i]`` has the rate ``rate_bps[positions[i]]``, and ``changed[positions[i]]`` tells whether it is new.
    Rows without a rate (NaN) are in neither result.
    """
    size = len(local_rows) + 1
    changed_rows, changed_bps = np.empty(size, np.int64), np.empty(size)
    unchanged_rows, counts = np.empty(size, np.int64), np.empty(2, np.int64)
    library.dets_to_own((rate_bps, changed, positions, local_rows, changed_rows, changed_bps, unchanged_rows, counts))
    changed_count, unchanged_count = counts.tolist()
    return changed_rows[:changed_count], changed_bps[:changed_count], unchanged_rows[:unchanged_count]


def same(rate_bps: FloatArray, positions: IntArray, local_bps: FloatArray, local_rows: IntArray) -> bool:
    """Return whether ``rate_bps`` at ``positions`` equals ``local_bps`` at ``local_rows``; both indices ascend."""
    equal: int = library.dets_same((rate_bps, positions, local_bps, local_rows))
    return equal == 1
