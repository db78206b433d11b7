"""Updates a table of flow entries from a switch's complete reply, in batches.

Usually the table is unchanged: then nothing is sorted or allocated.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray
from controller.forwarding.flow_table import FlowTable, FlowTemplate, KeyArray, Row, find

# Rows sorted per batch, about; and the distance of the sampled keys from which the bounds of the batches are taken.
_MERGE_BATCH, _SAMPLED = 2_000, 50


class FlowColumns(NamedTuple):
    """Flow entries in columns: packed keys, meters (0: none) and effect indices."""

    key: KeyArray
    meter_id: NDArray[np.uint32]
    template_index: NDArray[np.uint32]

    def at(self, rows: BoolArray | NDArray[np.int64] | slice) -> FlowColumns:
        """Return some of the rows."""
        return FlowColumns(self.key[rows], self.meter_id[rows], self.template_index[rows])

    def sorted(self) -> FlowColumns:
        """Return the rows in the order of keys; of equal keys the last one only."""
        order = np.argsort(self.key, kind="stable")
        key = self.key[order]
        last = np.append(key[1:] != key[:-1], np.ones(min(len(key), 1), dtype=np.bool_))
        return self.at(order[last])

    @classmethod
    def concatenate(cls, parts: list[FlowColumns]) -> FlowColumns:
        """Return the rows of all ``parts``, one after the other."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class FlowTableRefresh:
    """Collects all flow entries of a reply, and compares them with the table ``before``.

    The last one of equal keys counts.

    ``changed`` are the packed keys of flow entries that were added, removed or changed, once ``batches`` is exhausted.
    """

    def __init__(self, before: FlowTable) -> None:
        self.changed: set[bytes] = set()
        self._before, self._effects = before, before.copy()  # the copy is for its effect indices only
        self._rows = FlowColumns(*before.rows)
        # (rows,) masks of the old rows: the reply has the key; it has the key with another meter or effect.
        self._seen = np.zeros(len(self._rows.key), dtype=np.bool_)
        self._replaced = self._seen.copy()
        self._new: list[FlowColumns] = []  # flow entries of the reply that are not in the old rows
        self._long: dict[bytes, Row] = {}

    def template_index(self, effect: FlowTemplate) -> int:
        """Return the index of an effect."""
        return self._effects.template_index(effect)

    def add(self, listed: FlowColumns) -> None:
        """Add flow entries with effect indices of ``template_index``."""
        listed, before = listed.sorted(), self._rows
        positions, was_there = find(before.key, listed.key)
        old_row = positions[was_there]
        same_meter = before.meter_id[old_row] == listed.meter_id[was_there]
        same = was_there.copy()
        same[was_there] = same_meter & (before.template_index[old_row] == listed.template_index[was_there])
        # The reply has the key twice: the earlier entry differed from the old row, this later one counts and equals it.
        restored = same.copy()
        restored[was_there] &= self._replaced[old_row]
        self._seen[old_row] = True
        self._replaced[positions[was_there & ~same]] = True
        if not same.all():
            self.changed.update(listed.key[~same].tolist())
        if restored.any():
            self.changed.difference_update(listed.key[restored].tolist())
        if not (same & ~restored).all():
            self._new.append(listed.at(~same | restored))

    def add_long(self, packed: bytes, meter_id: int, effect: FlowTemplate) -> None:
        """Add a flow entry with a key that is too long for columns."""
        self._long[packed] = Row(meter_id, self.template_index(effect))

    def batches(self) -> Iterator[None]:
        """Build ``table`` and ``changed`` from all added flow entries, yielding after each batch."""
        # Rows that the reply lacks were removed.
        self.changed.update(self._rows.key[~self._seen].tolist())
        # Oversized keys are compared one by one: they are few.
        before = self._before.oversized
        self.changed.update(key for key in before.keys() | self._long.keys() if before.get(key) != self._long.get(key))
        yield
        if self._new or not self._seen.all():
            merged = []
            for part in self._merged([self._rows.at(self._seen & ~self._replaced), *self._new]):
                merged.append(part)
                yield
            self._rows = FlowColumns.concatenate(merged)

    @property
    def table(self) -> FlowTable:
        """The flow entries of the reply: ``before`` itself if nothing has changed."""
        return self._effects.with_rows(self._rows, self._long) if self.changed else self._before

    def _merged(self, runs: list[FlowColumns]) -> Iterator[FlowColumns]:
        """Yield the rows of ``runs`` merged by key.

        Each run is sorted, and of equal keys the one of the last run remains.
        """
        # All runs are cut at the same keys, so that each range of keys can be merged alone.
        samples = np.sort(np.concatenate([run.key[::_SAMPLED] for run in runs]))
        pivots = samples[_MERGE_BATCH // _SAMPLED :: _MERGE_BATCH // _SAMPLED]
        cuts = [[0, *np.searchsorted(run.key, pivots).tolist(), len(run.key)] for run in runs]
        for ranges in zip(*map(pairwise, cuts), strict=True):
            yield FlowColumns.concatenate(
                [run.at(slice(*limits)) for run, limits in zip(runs, ranges, strict=True)]
            ).sorted()
