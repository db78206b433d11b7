"""The entries of a receivers' side, in one table: the shard's own that send there, and those that peers report.

Own ones come with their rows of the shard's entry table, reported ones with their rows of a report. Columns of all of
them are put together by ``merged``. The table stays while the pairs do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from controller.columns import NEW_ROW, FloatArray, IntArray
from controller.fabric.entries import NO_METER, EntryTable


class HasPairs(Protocol):
    """Whatever has pairs: ``sender`` and ``receiver``, rows of the VN table, sorted by receiver, then sender."""

    @property
    def sender(self) -> IntArray:
        """Who sends."""

    @property
    def receiver(self) -> IntArray:
        """Who receives."""


Pairs = tuple[IntArray, IntArray]
"""senders and receivers, rows of the VN table, sorted by receiver, then sender"""


@dataclass(frozen=True)
class ReceiverTable:
    """``parts`` are the pairs that were put together, the shard's own first; ``places`` where their rows are now."""

    entries: EntryTable
    parts: tuple[Pairs, ...]
    places: tuple[IntArray, ...]

    @classmethod
    def of(cls, parts: Sequence[Pairs]) -> ReceiverTable:
        """Return the table of these pairs, each of which is in one part alone."""
        sender, receiver = (np.concatenate([part[end] for part in parts]) for end in (0, 1))
        order = np.lexsort((sender, receiver))
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        ends = np.cumsum([len(part[0]) for part in parts])[:-1]
        entries = EntryTable(sender[order], receiver[order], np.full(len(order), NO_METER))
        return cls(entries, tuple(parts), tuple(np.split(place, ends)))

    def is_of(self, parts: Sequence[Pairs]) -> bool:
        """Whether these are the pairs of the table."""
        return len(parts) == len(self.parts) and all(
            one is other or (np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1]))
            for one, other in zip(parts, self.parts, strict=True)
        )

    def old_rows(self, before: ReceiverTable, vns: int) -> IntArray:
        """Return for each row the one of the same pair in another table, NEW_ROW if it has none."""
        return rows_of_pairs(before.entries, self.entries, vns)

    def merged(self, columns: Sequence[NDArray[np.generic]]) -> FloatArray:
        """Return one column of all entries from one for each part."""
        whole = np.empty(len(self.entries))
        for place, column in zip(self.places, columns, strict=True):
            whole[place] = column
        return whole


def rows_of_pairs(pairs: HasPairs, wanted: HasPairs, vns: int) -> IntArray:
    """Return the row of ``pairs`` for each of the ``wanted`` ones, NEW_ROW for those that are not there."""
    keys, sought = (one.receiver * vns + one.sender for one in (pairs, wanted))
    if not len(keys):
        return np.full(len(sought), NEW_ROW)
    at = np.minimum(np.searchsorted(keys, sought), len(keys) - 1)
    return np.where(keys[at] == sought, at, NEW_ROW)
