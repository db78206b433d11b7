"""The compiled form of what crosses between shards (``_crossing.c``): the same bytes and bits, each in one pass.

``library`` is None when it was not built, and where numbers are not little-endian, as frames are; callers look before
they call.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray, ShortArray
from controller.compiled import call, load
from controller.dets.send_rate_controller import ControlArray

_FUNCTIONS = {
    "dets_say": "iii",
    "dets_all_told": "ii",
    "dets_obey": "iii",
    "dets_as_before": "iiid",
    "dets_listed": "iid",
    "dets_right": "iiiiiiiiiiid",
    "dets_bring": "i",
    "dets_merge": "iii",
}
library = load(Path(__file__).parent, "_crossing", _FUNCTIONS) if sys.byteorder == "little" else None
_Columns = Sequence[NDArray[Any]]
_WIDE = 8


def say(to: NDArray[np.uint8], rows: IntArray, eights: _Columns, fours: _Columns, ones: _Columns) -> None:
    """Write these rows of columns into ``to``, each column as a whole, of so many octets a row.

    ``eights`` are doubles, ``fours`` int64 of which the lower half counts, ``ones`` bool.
    """
    _check_widths([*eights, *fours], ones)
    counts = len(eights), len(fours), len(ones)
    call(library, "dets_say", (rows, to, *eights, *fours, *ones), *counts)


def all_told(
    idle: int, idle_intervals: int, rows: IntArray, control: ControlArray, silent_intervals: ShortArray
) -> bool:
    """Whether all these rows are in another state than ``idle``, or silent for less than ``idle_intervals``."""
    return call(library, "dets_all_told", (rows, control, silent_intervals), idle, idle_intervals) == 1


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
    return call(library, "dets_obey", columns, *states, len(parts)) == 1


def as_before(
    rates: FloatArray,
    unlimited: int,
    most_bps: float,
    flags: Sequence[NDArray[np.bool_]],
    pairs: Sequence[tuple[NDArray[np.uint32], IntArray]],
) -> bool:
    """Whether ``rates`` (columns, entries) that were read are rates, ``flags`` flags, and rows those from before.

    Rates are 0 to ``most_bps``; those of the column ``unlimited`` (-1: none) may be infinite. ``flags`` are one column,
    or none, ``pairs`` columns of rows that were read, each with the one from before.
    """
    columns = (rates, *(column for both in pairs for column in both), *flags)
    return call(library, "dets_as_before", columns, unlimited, len(pairs), len(flags), most_bps) == 1


def listed(
    rates: FloatArray, most_bps: float, rows: NDArray[np.uint32], bound: int, flags: Sequence[NDArray[np.bool_]]
) -> bool:
    """Whether ``rates`` (columns, rows) are rates up to ``most_bps``, ``rows`` ascending and below ``bound``.

    ``flags`` are one column, or none.
    """
    return call(library, "dets_listed", (rates, rows, *flags), bound, len(flags), most_bps) == 1


def right(
    octets: NDArray[np.uint8],
    first: tuple[int, int, int, int, int],
    entries: tuple[int, int, int, int],
    bound: int,
    unlimited: int,
    most_bps: float,
    before: IntArray,
) -> int:
    """Whether a whole frame is right that does not name its pairs: 0 if not, 2 if its first rows are those ``before``.

    ``first`` is where its first table begins, and how many rows, columns of rates, of rows and of flags that has; its
    rows are ascending and below ``bound``. ``entries`` are those of its second table; ``unlimited`` is as above.
    """
    return call(library, "dets_right", (octets, before), *first, *entries, bound, unlimited, most_bps)


def bring(whole: Sequence[FloatArray], parts: Sequence[tuple[IntArray, Sequence[FloatArray]]]) -> None:
    """Add to the columns of ``whole`` (vns,), three, what each part brings to these rows, ascending."""
    columns = (*whole, *(column for rows, brought in parts for column in (rows, *brought)))
    call(library, "dets_bring", columns, len(parts))


def merge(places: Sequence[IntArray], own: IntArray, here: _Columns, said: Sequence[_Columns]) -> list[NDArray[Any]]:
    """Return columns of one table: of the rows ``own`` of ``here``, and of what others have ``said``, at ``places``.

    Columns of eight octets come before those of one, in each. One of eight that is as long as the table is picked from
    at these places, too.
    """
    rows, eights = sum(map(len, places)), sum(column.itemsize == _WIDE for column in here)
    for part in (here, *said):
        _check_widths(part[:eights], part[eights:])
    whole = [np.empty(rows, column.dtype) for column in here]
    parts = [one for place, part in zip(places, (here, *said), strict=True) for one in (place, *part)]
    call(library, "dets_merge", (own, *whole, *parts), len(places), eights, len(here) - eights)
    return whole


def _check_widths(eights: _Columns, ones: _Columns) -> None:
    """Raise TypeError for columns of another width than they are read with."""
    for columns, octets in ((eights, _WIDE), (ones, 1)):
        for column in columns:
            if column.itemsize != octets:
                raise TypeError(f"a column of {column.dtype} is read as one of {octets} octets a row")
