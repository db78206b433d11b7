"""The compiled form of what crosses between shards (``_shard.c``): the same bytes and bits, each in one pass.

``library`` is None when it was not built, and where numbers are not little-endian, as frames are; callers look before
they call.
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
    """Whether all these rows are in another state than ``idle``, or silent for less than ``idle_intervals``."""
    told: int = library.dets_all_told((rows, control, silent_intervals), idle, idle_intervals)
    return told == 1


def apply_grants(
    states: tuple[int, int],
    before: tuple[BoolArray, IntArray, ControlArray, FloatArray, Int16Array],
    parts: Sequence[tuple[IntArray, IntArray, FloatArray]],
    kept: Sequence[IntArray],
) -> tuple[FloatArray, Int16Array] | None:
    """Return limits and unheard intervals with the rates granted; None if machines are not as they mostly are.

    ``states`` are idle and limited; ``before`` are which receivers are wanted under control (vns,), and receivers,
    states, limits and unheard intervals of all entries. A part is the rows that lead to a peer, those it grants a rate,
    and these rates. All of the first have to be idle or not as is wanted, all of the second limited. Where both are the
    same array, all of their receivers have to be wanted. ``kept`` are the other rows, some arrays.
    """
    limit_bps, unheard = before[3:]
    if sum(len(rows) for _, rows, _ in parts) + sum(map(len, kept)) == len(limit_bps):
        after = np.empty_like(limit_bps), np.empty_like(unheard)
    else:
        after, kept = (limit_bps.copy(), unheard.copy()), ()
    columns = (*before, *after, *(column for part in parts for column in part), *kept)
    obeyed: int = library.dets_obey(columns, *states, len(parts), len(kept))
    return after if obeyed == 1 else None


def add_loads(whole: Sequence[FloatArray], parts: Sequence[tuple[IntArray, Sequence[FloatArray]]]) -> None:
    """Add to the columns of ``whole`` (vns,), three, what each part brings to these rows, ascending."""
    columns = (*whole, *(column for rows, brought in parts for column in (rows, *brought)))
    library.dets_bring(columns, len(parts))


def merge(places: Sequence[IntArray], own: IntArray, here: Columns, said: Sequence[Columns]) -> list[NDArray[Any]]:
    """Return columns of one table: of the rows ``own`` of ``here``, and of what others have ``said``, at ``places``.

    Columns of eight octets come before those of one, in each. One of eight that is as long as the table is picked from
    at these places, too.
    """
    rows, eights = sum(map(len, places)), sum(column.itemsize == WIDE for column in here)
    for part in (here, *said):
        check_widths(part[:eights], part[eights:])
    whole = [np.empty(rows, column.dtype) for column in here]
    parts = [one for place, part in zip(places, (here, *said), strict=True) for one in (place, *part)]
    library.dets_merge((own, *whole, *parts), len(places), eights, len(here) - eights)
    return whole


def granted(in_force_bps: FloatArray, rows: IntArray, rate_bps: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return what all rows are granted, and which have another rate: ``rows``, ascending; others what is in force."""
    whole_bps, changed = np.empty(len(in_force_bps)), np.empty(len(in_force_bps), np.bool_)
    library.dets_granted((in_force_bps, rows, rate_bps, whole_bps, changed))
    return whole_bps, changed


def select_local(
    rate_bps: FloatArray, changed: BoolArray, place: IntArray, own: IntArray
) -> tuple[IntArray, FloatArray, IntArray]:
    """Return which rows ``own`` have another rate at ``place``, that rate, and which have the one that they had."""
    size = len(own) + 1
    moved, moved_bps, stay, counts = (
        np.empty(size, np.int64),
        np.empty(size),
        np.empty(size, np.int64),
        np.empty(2, np.int64),
    )
    library.dets_to_own((rate_bps, changed, place, own, moved, moved_bps, stay, counts))
    moving, staying = counts.tolist()
    return moved[:moving], moved_bps[:moving], stay[:staying]


def same(rate_bps: FloatArray, place: IntArray, own_bps: FloatArray, own: IntArray) -> bool:
    """Whether the rates at ``place`` are those of the rows ``own``, both ascending."""
    are: int = library.dets_same((rate_bps, place, own_bps, own))
    return are == 1
