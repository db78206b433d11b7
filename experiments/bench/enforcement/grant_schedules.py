"""Grants over time, interval by interval: the schedules of ``dets bench enforcement``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.errors import InvalidValueError

PATTERNS = {
    "constant": "constant",
    "walk-1": "changes by 1 % in every interval",
    "walk-30": "changes by 30 % in every interval",
    "step": "steps down to a tenth, and back",
}
WALK_FLOOR = 2.2  # a walk stays between the nominal rate and the nominal rate divided by this
STEP_INTERVALS = 40  # on each side of a step: 2.2 s of intervals of 55 ms
STEP = 10  # divides the grant


def grants_bps(pattern: str, nominal_bps: int, intervals: int, seed: int) -> NDArray[np.int64]:
    """Return the grant of each interval, (intervals,), in bit/s but whole kb/s; ``nominal_bps`` is the largest.

    A walk goes up or down by one step in every interval, and turns back at its bounds. Raises InvalidValueError for an
    unknown pattern.
    """
    if pattern not in PATTERNS:
        raise InvalidValueError("pattern", pattern, f"is not one of {', '.join(PATTERNS)}")
    index = np.arange(intervals)
    if pattern == "constant":
        grants = np.full(intervals, float(nominal_bps))
    elif pattern == "step":
        grants = np.where(index // STEP_INTERVALS % 2 == 0, nominal_bps, nominal_bps / STEP)
    else:
        factor = 1.0 + int(pattern.partition("-")[2]) / 100
        levels = int(np.log(WALK_FLOOR) / np.log(factor))
        grants = nominal_bps / factor ** _walk(levels, intervals, np.random.default_rng(seed))
    return (grants // 1000 * 1000).astype(np.int64)


def _walk(levels: int, intervals: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the level of each interval, (intervals,), 0 to ``levels``: from the middle on, one up or down in each."""
    level, level_of_interval = levels // 2, np.empty(intervals, dtype=np.int64)
    for interval, up in enumerate(generator.random(intervals) < 0.5):
        level += 1 if (up and level < levels) or level == 0 else -1
        level_of_interval[interval] = level
    return level_of_interval
