"""The cost of a round by its switches and pairs: a plane through the measured sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class RoundCost:
    """CPU of a round: ``switch_us`` x switches + ``pair_ns`` x pairs + ``fixed_ms``.

    ``worst`` is the largest relative difference to a measured size.
    """

    switch_us: float
    pair_ns: float
    fixed_ms: float
    worst: float


def round_ms(row: dict[str, Any]) -> float:
    """Return the CPU of a round of one size, in ms: all CPU of the process, divided by its rounds."""
    return float(row["cpu_us_per_pair"]) * float(row["pairs"]) / 1e3


def fit(rows: Sequence[dict[str, Any]]) -> RoundCost | None:
    """Return the cost with the least relative squared error; None if the rows do not determine all three numbers.

    ``rows`` are those of ``bench`` under one share of varying receivers. The error is relative, since a round of
    200,000 pairs takes a hundred times as long as one of 1,000: in squared milliseconds the small sizes would not
    count.
    """
    measured_ms = np.array([round_ms(row) for row in rows])
    columns = np.array([(row["switches"], row["pairs"], 1.0) for row in rows], dtype=np.float64).reshape(-1, 3)
    if np.linalg.matrix_rank(columns) < columns.shape[1]:
        return None
    # Each equation is divided by its measured time, so that residuals are relative errors. The coefficients are ms per
    # switch, ms per pair, and fixed ms.
    coefficients, *_ = np.linalg.lstsq(columns / measured_ms[:, None], np.ones(len(rows)))
    largest_error = np.abs(columns @ coefficients / measured_ms - 1.0).max()
    return RoundCost(
        float(coefficients[0] * 1e3), float(coefficients[1] * 1e6), float(coefficients[2]), float(largest_error)
    )
