"""Arithmetic on pairs grouped by receiver, without a Python loop: sums, and filling up to a common level."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from controller.allocation.interface import BoolArray, FloatArray, IntArray

Values = TypeVar("Values", FloatArray, BoolArray, IntArray)


class Segments:
    """Groups of consecutive rows, given by offsets (groups + 1,); any of them may be empty."""

    __slots__ = ("_filled", "_starts", "offsets", "sizes")

    def __init__(self, offsets: IntArray) -> None:
        self.offsets = offsets
        self.sizes = np.diff(offsets)
        # np.add.reduceat gives the row at the offset, not 0, for an empty group: leave those out, and put 0 there.
        self._filled = np.flatnonzero(self.sizes) if (self.sizes == 0).any() else None
        self._starts = offsets[:-1] if self._filled is None else offsets[:-1][self._filled]

    def __len__(self) -> int:
        return len(self.sizes)

    def sum(self, rows: FloatArray | BoolArray) -> FloatArray:
        """Return (groups,) the sum of each group's rows."""
        if len(self._starts) == 0:
            return np.zeros(len(self))
        sums: FloatArray = np.add.reduceat(rows, self._starts, dtype=np.float64)
        if self._filled is None:
            return sums
        spread = np.zeros(len(self))
        spread[self._filled] = sums
        return spread

    def broadcast(self, values: Values) -> Values:
        """Return (rows,) each group's value at each of its rows."""
        return np.repeat(values, self.sizes)

    def index(self) -> IntArray:
        """Return (rows,) the group that each row belongs to."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def subset(self, chosen: IntArray) -> tuple[Segments, IntArray]:
        """Return some of the segments as new segments, and the rows that they contain."""
        sizes = self.sizes[chosen]
        offsets = np.zeros(len(chosen) + 1, dtype=np.int64)
        np.cumsum(sizes, out=offsets[1:])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][chosen] - offsets[:-1], sizes)
        return Segments(offsets), rows


def safe_divide(numerator: FloatArray, denominator: FloatArray, otherwise: float) -> FloatArray:
    """Return the quotient, and ``otherwise`` where the denominator is not above 0."""
    result = np.full(len(numerator), otherwise)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


def fill_level(groups: Segments, amount: FloatArray, weight: FloatArray, room: FloatArray) -> FloatArray:
    """Return (groups,) the level l at which ``min(weight * l, room)`` sums to the group's amount.

    This is weighted max-min sharing of an amount among rows with an upper bound (``room``) ("the extra rate is fairly
    distributed among other sending nodes with available sending capacity", section III.A). Infinite where the amount
    fills all.

    1. Begin with the level that would result without bounds; it is at most the solution.
    2. Rows with a ``room`` below their share at this level get their ``room``; the other rows share the rest, at a
       higher level.
    3. Repeat for the groups whose level rose, until no level rises.

    Step 2 is Newton's method on a concave piecewise linear function: the level rises to the exact solution and does not
    pass it, and each round divides (remaining amount) * (weight of open rows) by at least four, so that doubles need
    about 40 rounds at most; 2 to 5 are usual. Nothing is sorted.
    """
    level = np.full(len(groups), np.inf)
    # A group with room left has a finite level; a group without is full, and finished.
    pending = np.flatnonzero(groups.sum(room) > amount)
    if len(pending) == len(groups):
        part, part_weight, part_room, left = groups, weight, room, amount
    else:
        part, rows = groups.subset(pending)
        part_weight, part_room, left = weight[rows], room[rows], amount[pending]
    guess = safe_divide(left, part.sum(np.where(part_room > 0, part_weight, 0.0)), np.inf)  # 1
    while len(pending):
        held = part_room <= part_weight * part.broadcast(guess)
        missing = left - part.sum(np.where(held, part_room, 0.0))
        better = safe_divide(missing, part.sum(np.where(held, 0.0, part_weight)), 0.0)  # 2
        rising = better > guess
        level[pending] = np.maximum(guess, better)
        if not rising.any():
            break
        if rising.all():
            guess = better
            continue
        kept = np.flatnonzero(rising)
        pending, left, guess = pending[kept], left[kept], better[kept]
        part, rows = part.subset(kept)
        part_weight, part_room = part_weight[rows], part_room[rows]  # 3
    return level


def fill(groups: Segments, amount: FloatArray, weight: FloatArray, room: FloatArray) -> FloatArray:
    """Return (rows,) each row's part of its group's amount: by weight, up to ``room``."""
    level = fill_level(groups, amount, weight, room)
    result: FloatArray = np.minimum(groups.broadcast(level) * weight, room)
    return result
