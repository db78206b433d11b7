"""Array types in use, and functions that make changed columns: with rows added, removed, reordered or replaced."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Int16Array = NDArray[np.int16]
"""Counts of intervals, which stop at MAX_COUNTED; comparisons need some tens at most."""

UInt32Array = NDArray[np.uint32]
"""Rates in whole kb/s or bursts in whole kb (1000 bits), as a meter's band carries them (OpenFlow 1.3.5, 7.3.4.4)."""

MAX_COUNTED = 2**15 - 1

_Scalar = TypeVar("_Scalar", bound=np.generic)

NEW_ROW = -1
"""In an index from new rows to old ones: a row that is new."""


@lru_cache(maxsize=4)
def nan_column(rows: int) -> FloatArray:
    """Return a shared, read-only column of ``rows`` NaN values."""
    column = np.full(rows, np.nan)
    column.flags.writeable = False
    return column


def incremented(counts: Int16Array) -> Int16Array:
    """Return the counts after one more interval, at most MAX_COUNTED."""
    incremented_counts: Int16Array = counts + (counts < MAX_COUNTED)
    return incremented_counts


def columns_equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two columns are equal, as ``np.array_equal`` does, in a tenth of the steps."""
    return one is other or (len(one) == len(other) and bool((one == other).all()))


def with_rows(column: NDArray[_Scalar], rows: IntArray, values: NDArray[_Scalar] | float) -> NDArray[_Scalar]:
    """Return a copy of a column with ``values`` at ``rows``; ``values`` is a scalar or one value per row."""
    changed = column.copy()
    changed[rows] = values
    return changed


def reindex(column: NDArray[_Scalar], old_row: IntArray, initial: Any) -> NDArray[_Scalar]:
    """Return a column in which row i has the value of row ``old_row[i]`` of ``column``, or ``initial``.

    ``old_row`` has one element per new row, NEW_ROW where there was none; ``initial`` is a scalar or one value per new
    row. The columns of all state follow the pair table by this one function.
    """
    new = np.flatnonzero(old_row == NEW_ROW)
    moved = column[old_row] if len(column) else np.empty(len(old_row), dtype=column.dtype)
    if len(new):  # NEW_ROW as an index gave them the last old row's value
        first = np.asarray(initial)
        moved[new] = first[new] if first.ndim else first
    return moved
