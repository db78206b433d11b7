"""Columns summed up by a row that each of their rows belongs to: what senders bring to receivers, for example."""

from __future__ import annotations

import numpy as np

from controller.columns import FloatArray, IntArray
from controller.metering import measure_kernel


def sums_by(row: IntArray, columns: tuple[FloatArray, ...], rows: int) -> tuple[FloatArray, ...]:
    """Return each of ``columns`` (entries,) summed up by ``row`` (entries,), shape (rows,) each, in the entries' order."""
    if measure_kernel.library is not None:
        return tuple(measure_kernel.sums(row, columns, rows))
    return tuple(np.bincount(row, weights=column, minlength=rows).astype(np.float64) for column in columns)
