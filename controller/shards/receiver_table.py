"""The pairs of a receivers' side, in one table: local pairs, and pairs that peers report.

Local pairs have rows of the shard's pair table, reported pairs have rows of a report. ``merged`` assembles columns of
all of them. The table stays while the pairs do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.columns import NEW_ROW, BoolArray, FloatArray, IntArray
from controller.fabric.pair_table import NO_METER, PairColumns, PairTable, find_pairs
from controller.shards import shard_native

Pairs = tuple[IntArray, IntArray]
"""senders and receivers, rows of the VN table, sorted by receiver, then sender"""


@dataclass
class ReceiverTable:
    """``parts`` are the assembled pairs, the shard's own first; ``part_rows`` are their rows in the table.

    ``_of_all`` caches the result of ``senders`` for all rows.
    """

    entries: PairTable
    parts: tuple[Pairs, ...]
    part_rows: tuple[IntArray, ...]
    _of_all: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def from_parts(cls, parts: Sequence[Pairs]) -> ReceiverTable:
        """Return the table of these pairs, each of which is in exactly one part."""
        nothing = np.empty(0, dtype=np.int64)
        sender, receiver = (np.concatenate([nothing, *(part[end] for part in parts)]) for end in (0, 1))
        order = np.lexsort((sender, receiver))
        position = np.empty(len(order), dtype=np.int64)  # in the table, of each pair of the parts
        position[order] = np.arange(len(order))
        ends = np.cumsum([len(part[0]) for part in parts], dtype=np.int64)[:-1]
        entries = PairTable(sender[order], receiver[order], np.full(len(order), NO_METER))
        return cls(entries, tuple(parts), tuple(np.split(position, ends)))

    def is_of(self, parts: Sequence[Pairs]) -> bool:
        """Return whether the table has exactly these pairs. Usually they are the same arrays."""
        return len(parts) == len(self.parts) and all(
            column is before or np.array_equal(column, before)
            for part, old in zip(parts, self.parts, strict=True)
            for column, before in zip(part, old, strict=True)
        )

    def old_rows(self, before: ReceiverTable) -> IntArray:
        """Return for each row the row of the same pair in another table, NEW_ROW if it has none."""
        return find_pairs(before.entries, self.entries.sender, self.entries.receiver)

    def senders(self, rows: IntArray, vns: int) -> IntArray:
        """Return how many of the ``rows`` have each VN as receiver, (vns,)."""
        if len(rows) < len(self.entries):
            return np.bincount(self.entries.receiver[rows], minlength=vns)
        if len(self._of_all) != vns:
            self._of_all = np.bincount(self.entries.receiver, minlength=vns)
        return self._of_all

    def controlled_rows(self, receivers_mask: BoolArray) -> IntArray:
        """Return the rows with receivers in ``receivers_mask`` (vns,), ascending; usually all, as the same array."""
        if receivers_mask[self._receivers].all():
            return self._rows
        return np.flatnonzero(receivers_mask[self.entries.receiver])

    @cached_property
    def trues(self) -> BoolArray:
        """A column of True."""
        return np.ones(len(self.entries), dtype=np.bool_)

    @cached_property
    def falses(self) -> BoolArray:
        """A column of False."""
        return np.zeros(len(self.entries), dtype=np.bool_)

    @cached_property
    def no_rates(self) -> FloatArray:
        """A column of 0.0."""
        return np.zeros(len(self.entries))

    @cached_property
    def zeros(self) -> IntArray:
        """A column of 0."""
        return np.zeros(len(self.entries), dtype=np.int64)

    @cached_property
    def _receivers(self) -> IntArray:
        return np.unique(self.entries.receiver)

    @cached_property
    def _rows(self) -> IntArray:
        return np.arange(len(self.entries))

    def merged(
        self,
        local_rows: IntArray,
        local_columns: Sequence[NDArray[Any]],
        peer_columns: Sequence[Sequence[NDArray[Any]]],
    ) -> list[NDArray[Any]]:
        """Return columns of all pairs, by row of the table: of the shard's own pairs, and of those of each report.

        The shard's own are the rows ``local_rows`` of ``local_columns``. ``peer_columns`` has a list of the same
        columns for each report, in the order of ``parts``. In each list columns with elements of eight bytes come
        before those of one byte. A report's column that is as long as the table has each pair's value at the pair's
        row of the table.
        """
        if shard_native.library is not None:
            return shard_native.merge(self.part_rows, local_rows, local_columns, peer_columns)
        merged = []
        for number, local_column in enumerate(local_columns):
            whole = np.empty(len(self.entries), dtype=local_column.dtype)
            parts = (local_column[local_rows], *(columns[number] for columns in peer_columns))
            for rows, part in zip(self.part_rows, parts, strict=True):
                whole[rows] = part[rows] if len(part) == len(whole) else part
            merged.append(whole)
        return merged


def match_pairs(pairs: PairColumns, searched: PairColumns) -> tuple[IntArray, IntArray]:
    """Return the rows of the pairs that are in both tables: in ``pairs``, and in ``searched``."""
    row = find_pairs(pairs, searched.sender, searched.receiver)
    searched_rows = np.flatnonzero(row != NEW_ROW)
    return row[searched_rows], searched_rows
