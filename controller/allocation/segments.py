"""Arithmetic on pairs grouped by receiver, without a Python loop: sums, and filling up to a common level."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from controller.allocation.interface import BoolArray, FloatArray, IntArray

Values = TypeVar("Values", FloatArray, BoolArray, IntArray)


class Segments:
    """Groups of consecutive rows, given by offsets (groups + 1,); any group may be empty."""

    __slots__ = ("_filled", "_starts", "offsets", "sizes")

    def __init__(self, offsets: IntArray) -> None:
        self.offsets = offsets
        self.sizes = np.diff(offsets)
        # For an empty group np.add.reduceat returns the row at its offset, not 0: sums leave empty groups out.
        self._filled = np.flatnonzero(self.sizes) if (self.sizes == 0).any() else None
        self._starts = offsets[:-1] if self._filled is None else offsets[:-1][self._filled]

    def __len__(self) -> int:
        return len(self.sizes)

    def sum(self, rows: FloatArray | BoolArray) -> FloatArray:
        """Return the sum of each group's ``rows``, (groups,); 0 for an empty group."""
        if len(self._starts) == 0:
            return np.zeros(len(self))
        sums: FloatArray = np.add.reduceat(rows, self._starts, dtype=np.float64)
        if self._filled is None:
            return sums
        all_sums = np.zeros(len(self))
        all_sums[self._filled] = sums
        return all_sums

    def broadcast(self, values: Values) -> Values:
        """Return the ``values`` (groups,) repeated at each of the group's rows, (rows,)."""
        return np.repeat(values, self.sizes)

    def index(self) -> IntArray:
        """Return the group of each row, (rows,)."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def subset(self, chosen: IntArray) -> tuple[Segments, IntArray]:
        """Return the ``chosen`` groups as new segments, and their rows in these ones."""
        sizes = self.sizes[chosen]
        offsets = np.zeros(len(chosen) + 1, dtype=np.int64)
        np.cumsum(sizes, out=offsets[1:])
        shift = self.offsets[:-1][chosen] - offsets[:-1]  # from a group's rows in the subset to its rows here
        rows = np.arange(offsets[-1]) + np.repeat(shift, sizes)
        return Segments(offsets), rows


def safe_divide(numerator: FloatArray, denominator: FloatArray, otherwise: float) -> FloatArray:
    """Return the quotient, and ``otherwise`` where the denominator is not above 0."""
    result = np.full(len(numerator), otherwise)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


def fill_level(groups: Segments, amount: FloatArray, weight: FloatArray, room: FloatArray) -> FloatArray:
    """Return the level l of each group, (groups,), at which ``min(weight * l, room)`` sums to the group's amount.

    ``amount`` (groups,) is shared by weighted max-min among the group's rows, each with a ``weight`` and an upper bound
    ``room``, (rows,) each ("the extra rate is fairly distributed among other sending nodes with available sending
    capacity", section III.A). The level is infinite where the amount fills all rows.

    1. Begin with the level that would result without bounds; it is at most the solution.
    2. Rows with a ``room`` below their share at this level get their ``room``; the other rows share the rest, at a
       higher level.
    3. Repeat for the groups whose level rose, until no level rises.

    Step 2 is Newton's method on a concave piecewise linear function: the level rises to the exact solution and does not
    pass it, and each round divides (remaining amount) * (weight of open rows) by at least four, so that doubles need
    about 40 rounds at most; 2 to 5 are usual. Nothing is sorted.
    """
    level = np.full(len(groups), np.inf)
    # A group with more room than its amount has a finite level; any other group is filled, and finished.
    pending = np.flatnonzero(groups.sum(room) > amount)
    if len(pending) == len(groups):
        part, part_weight, part_room, part_amount = groups, weight, room, amount
    else:
        part, rows = groups.subset(pending)
        part_weight, part_room, part_amount = weight[rows], room[rows], amount[pending]
    # 1
    guess = safe_divide(part_amount, part.sum(np.where(part_room > 0, part_weight, 0.0)), np.inf)
    while len(pending):
        # 2
        at_bound = part_room <= part_weight * part.broadcast(guess)
        open_amount = part_amount - part.sum(np.where(at_bound, part_room, 0.0))
        next_guess = safe_divide(open_amount, part.sum(np.where(at_bound, 0.0, part_weight)), 0.0)
        rising = next_guess > guess
        level[pending] = np.maximum(guess, next_guess)
        if not rising.any():
            break
        if rising.all():
            guess = next_guess
            continue
        # 3
        kept = np.flatnonzero(rising)
        pending, part_amount, guess = pending[kept], part_amount[kept], next_guess[kept]
        part, rows = part.subset(kept)
        part_weight, part_room = part_weight[rows], part_room[rows]
    return level


def fill(groups: Segments, amount: FloatArray, weight: FloatArray, room: FloatArray) -> FloatArray:
    """Return each row's part of its group's ``amount``, (rows,): by ``weight``, up to ``room``.

    ``amount`` has shape (groups,), ``weight`` and ``room`` have shape (rows,).
    """
    level = fill_level(groups, amount, weight, room)
    result: FloatArray = np.minimum(groups.broadcast(level) * weight, room)
    return result
