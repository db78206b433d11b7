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

from controller.columns import FloatArray, IntArray
from controller.compiled import call, load

_FUNCTIONS = {"dets_say": "iii", "dets_as_before": "id", "dets_merge": "iii"}
library = load(Path(__file__).parent, "_crossing", _FUNCTIONS) if sys.byteorder == "little" else None
_Columns = Sequence[NDArray[Any]]
_EIGHT = np.dtype(np.float64).itemsize


def say(rows: IntArray, eights: _Columns, fours: _Columns, ones: _Columns) -> NDArray[np.uint8]:
    """Return the bytes of these rows of columns, each column as a whole, of so many octets a row.

    ``eights`` are doubles, ``fours`` int64 of which the lower half counts, ``ones`` bool.
    """
    counts = len(eights), len(fours), len(ones)
    assert all(column.itemsize == _EIGHT for column in (*eights, *fours)), "columns are read by their widths"
    to = np.empty(len(rows) * (8 * len(eights) + 4 * len(fours) + len(ones)), np.uint8)
    call(library, "dets_say", (rows, to, *eights, *fours, *ones), *counts)
    return to


def as_before(
    rates: FloatArray,
    unlimited: int,
    most_bps: float,
    pairs: tuple[NDArray[np.uint32], NDArray[np.uint32]],
    before: tuple[IntArray, IntArray],
    flags: NDArray[np.bool_],
) -> bool:
    """Whether entries that were read are the pairs ``before``, ``rates`` (columns, entries) rates, and ``flags`` flags.

    Rates are 0 to ``most_bps``; those of the column ``unlimited`` (-1: none) may be infinite.
    """
    columns = (rates, *pairs, *before, flags)
    return call(library, "dets_as_before", columns, unlimited, most_bps) == 1


def merge(places: Sequence[IntArray], own: IntArray, here: _Columns, said: Sequence[_Columns]) -> list[NDArray[Any]]:
    """Return columns of one table: of the rows ``own`` of ``here``, and of what others have ``said``, at ``places``.

    Columns of eight octets come before those of one, in each.
    """
    rows, eights = sum(map(len, places)), sum(column.itemsize == _EIGHT for column in here)
    assert all(column.itemsize == 1 for column in here[eights:]), "columns are read by their widths"
    whole = [np.empty(rows, column.dtype) for column in here]
    parts = [one for place, part in zip(places, (here, *said), strict=True) for one in (place, *part)]
    call(library, "dets_merge", (own, *whole, *parts), len(places), eights, len(here) - eights)
    return whole
