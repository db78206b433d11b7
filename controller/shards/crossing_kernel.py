"""The compiled form of what crosses between shards (``_crossing.c``): the same bytes and bits, each in one pass.

``library`` is None when it was not built, and where numbers are not little-endian, as frames are; callers look before
they call.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray, ShortArray
from controller.compiled import load
from controller.dets.send_rate_controller import ControlArray
from controller.frames.frames_kernel import WIDE, Columns, check_widths

_PASSES = "dets_all_told", "dets_obey", "dets_bring", "dets_merge"
library: Any = load("controller.shards._crossing", *_PASSES) if sys.byteorder == "little" else None


def all_told(
    idle: int, idle_intervals: int, rows: IntArray, control: ControlArray, silent_intervals: ShortArray
) -> bool:
    """Whether all these rows are in another state than ``idle``, or silent for less than ``idle_intervals``."""
    told: int = library.dets_all_told((rows, control, silent_intervals), idle, idle_intervals)
    return told == 1


def obey(
    states: tuple[int, int],
    before: tuple[BoolArray, IntArray, ControlArray],
    after: tuple[FloatArray, ShortArray],
    parts: Sequence[tuple[IntArray, IntArray, FloatArray]],
) -> bool:
    """Write granted rates into ``after``, limits and unheard intervals; return whether machines are as they mostly are.

    ``states`` are idle and limited; ``before`` are which receivers are wanted under control (vns,), and receivers and
    states of all entries. A part is the rows that lead to a peer, those it grants a rate, and these rates. All of the
    first have to be idle or not as is wanted, all of the second limited; if not, what was written is to be thrown away.
    Where both are the same array, all of their receivers have to be wanted.
    """
    columns = (*before, *after, *(column for part in parts for column in part))
    obeyed: int = library.dets_obey(columns, *states, len(parts))
    return obeyed == 1


def bring(whole: Sequence[FloatArray], parts: Sequence[tuple[IntArray, Sequence[FloatArray]]]) -> None:
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
