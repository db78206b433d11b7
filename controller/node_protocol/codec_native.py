"""The native form of encoding and decoding node messages (``_node_codec.c``), with identical bytes and bits.

``library`` is None if it was not built, or if the machine is not little-endian, as messages are; callers check that
first.
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
"""bytes of a number in a column"""


def write_columns(to: NDArray[np.uint8], rows: IntArray, eights: Columns, fours: Columns, ones: Columns) -> None:
    """Write these rows of columns into ``to``, column by column.

    ``eights`` are doubles, ``fours`` int64 of which the lower half is written, ``ones`` bool; the names are the bytes
    per row.
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
    """Return whether ``rates`` (columns, entries) and ``flags`` are valid, and rows equal the previous ones.

    Rates are 0 to ``most_bps``; those of the column ``unlimited`` (-1: none) may be infinite. ``flags`` are some
    columns, ``pairs`` columns of rows, each with the previous one.
    """
    columns = (rates, *(column for both in pairs for column in both), *flags)
    found: int = library.dets_as_before(columns, unlimited, len(pairs), len(flags), most_bps)
    return found == 1


def is_valid_table(
    rates: FloatArray, most_bps: float, rows: NDArray[np.uint32], bound: int, flags: Sequence[NDArray[np.bool_]]
) -> bool:
    """Return whether ``rates`` (columns, rows) are at most ``most_bps``, and ``rows`` ascending and below ``bound``.

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
    """Check a message that omits its pairs: return 0 if it is invalid, 2 if its first rows equal ``before``, else 1.

    ``first`` has the offset of the first table, and its numbers of rows, rate columns, row columns and flag columns;
    its rows are ascending and below ``bound``. ``entries`` has the same for the second table; ``unlimited`` is as in
    ``matches_previous``.
    """
    found: int = library.dets_right((octets, before), *first, *entries, bound, unlimited, most_bps)
    return found


def check_widths(eights: Columns, ones: Columns) -> None:
    """Raise TypeError for columns with another element size than the decoder reads."""
    for columns, octets in ((eights, WIDE), (ones, 1)):
        for column in columns:
            if column.itemsize != octets:
                raise TypeError(f"a column of {column.dtype} is read as one of {octets} octets a row")
