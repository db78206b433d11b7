"""The compiled form of writing and reading frames (``_node_codec.c``): the same bytes and bits, each in one pass.

``library`` is None when it was not built, and where numbers are not little-endian, as frames are; callers look before
they call.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from controller.columns import FloatArray, IntArray
from controller.native_loader import load_native

_PASSES = "dets_say", "dets_as_before", "dets_listed", "dets_right"
library: Any = load_native("controller.node_protocol._node_codec", *_PASSES) if sys.byteorder == "little" else None
Columns: TypeAlias = Sequence[NDArray[Any]]
WIDE = 8
"""octets of a number in a column"""


def write_columns(to: NDArray[np.uint8], rows: IntArray, eights: Columns, fours: Columns, ones: Columns) -> None:
    """Write these rows of columns into ``to``, each column as a whole, of so many octets a row.

    ``eights`` are doubles, ``fours`` int64 of which the lower half counts, ``ones`` bool.
    """
    check_widths([*eights, *fours], ones)
    counts = len(eights), len(fours), len(ones)
    library.dets_say((rows, to, *eights, *fours, *ones), *counts)


def matches_previous(
    rates: FloatArray,
    unlimited: int,
    most_bps: float,
    flags: Sequence[NDArray[np.bool_]],
    pairs: Sequence[tuple[NDArray[np.uint32], IntArray]],
) -> bool:
    """Whether ``rates`` (columns, entries) that were read are rates, ``flags`` flags, and rows those from before.

    Rates are 0 to ``most_bps``; those of the column ``unlimited`` (-1: none) may be infinite. ``flags`` are some
    columns, ``pairs`` columns of rows that were read, each with the one from before.
    """
    columns = (rates, *(column for both in pairs for column in both), *flags)
    found: int = library.dets_as_before(columns, unlimited, len(pairs), len(flags), most_bps)
    return found == 1


def is_valid_table(
    rates: FloatArray, most_bps: float, rows: NDArray[np.uint32], bound: int, flags: Sequence[NDArray[np.bool_]]
) -> bool:
    """Whether ``rates`` (columns, rows) are rates up to ``most_bps``, ``rows`` ascending and below ``bound``.

    ``flags`` are some columns.
    """
    found: int = library.dets_listed((rates, rows, *flags), bound, len(flags), most_bps)
    return found == 1


def is_valid_message(
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
    found: int = library.dets_right((octets, before), *first, *entries, bound, unlimited, most_bps)
    return found


def check_widths(eights: Columns, ones: Columns) -> None:
    """Raise TypeError for columns of another width than they are read with."""
    for columns, octets in ((eights, WIDE), (ones, 1)):
        for column in columns:
            if column.itemsize != octets:
                raise TypeError(f"a column of {column.dtype} is read as one of {octets} octets a row")
