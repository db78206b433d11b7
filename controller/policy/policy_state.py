"""A policy's state between intervals: named columns that follow their VNs, pairs and links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from controller.columns import NEW_ROW, FloatArray, IntArray, columns_equal, reindex
from controller.errors import InvalidValueError

Columns = Mapping[str, FloatArray]
_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class PolicyState:
    """Columns of floats by name; NaN is unknown, and a missing column is unknown everywhere.

    ``by_vn`` columns have shape (vns,). ``by_entry`` columns are for the decided pairs, whose rows of the pair table
    are in ``rows``, ascending. ``by_link`` columns are for the links of these names. ``by_use`` columns are for pairs
    of a VN and a link, whose rows are in ``use_vn`` and ``use_link`` (uses,), sorted by VN, then link.

    ``derived`` is a cache of values that depend on pairs and links only: it is dropped when the pair table changes, and
    never recorded.
    """

    vns: int
    rows: IntArray = field(default_factory=_NONE.copy)
    links: tuple[str, ...] = ()
    use_vn: IntArray = field(default_factory=_NONE.copy)
    use_link: IntArray = field(default_factory=_NONE.copy)
    by_vn: Columns = field(default_factory=dict)
    by_entry: Columns = field(default_factory=dict)
    by_link: Columns = field(default_factory=dict)
    by_use: Columns = field(default_factory=dict)
    derived: object = None

    def vn_column(self, name: str) -> FloatArray:
        """Return a column by VN, (vns,)."""
        return _column(self.by_vn, name, self.vns)

    def pair_column(self, name: str) -> FloatArray:
        """Return a column by pair, (rows,)."""
        return _column(self.by_entry, name, len(self.rows))

    def link_column(self, name: str) -> FloatArray:
        """Return a column by link, (links,)."""
        return _column(self.by_link, name, len(self.links))

    def vn_link_column(self, name: str, vn: IntArray, link: IntArray) -> FloatArray:
        """Return a column for these pairs of a VN and a link, shape of ``vn``; NaN for new ones.

        If they are the same arrays as in the previous interval, which is usual, the column needs no search.
        """
        if vn is self.use_vn and link is self.use_link:
            return _column(self.by_use, name, len(vn))
        span = max(len(self.links), 1)  # one number for each VN and link: vn * span + link
        old = match_rows(self.use_vn * span + self.use_link, vn * span + link)
        return reindex(_column(self.by_use, name, len(self.use_vn)), old, np.nan)

    def updated(
        self,
        by_vn: Columns | None = None,
        by_entry: Columns | None = None,
        by_link: Columns | None = None,
        uses: tuple[IntArray, IntArray, Columns] | None = None,
        derived: object = None,
    ) -> PolicyState:
        """Return the state for the next interval: each kind of columns that is given replaces all columns of that kind.

        ``uses`` are VN and link rows, sorted by VN, then link, and their columns. The cache ``derived`` is lost unless
        it is given again. Raises InvalidValueError, naming the column, for a wrong shape or type.
        """
        vn, link, by_use = (self.use_vn, self.use_link, self.by_use) if uses is None else uses
        sizes = (("by_vn", by_vn, self.vns), ("by_entry", by_entry, len(self.rows)))
        for kind, columns, size in (*sizes, ("by_link", by_link, len(self.links)), ("by_use", by_use, len(vn))):
            for name, column in (columns or {}).items():
                if column.shape != (size,) or column.dtype != np.float64:
                    reason = f"must be float64 of shape ({size},)"
                    raise InvalidValueError(f"{kind}.{name}", f"{column.dtype}{column.shape}", reason)
        return PolicyState(
            self.vns,
            self.rows,
            self.links,
            vn,
            link,
            self.by_vn if by_vn is None else by_vn,
            self.by_entry if by_entry is None else by_entry,
            self.by_link if by_link is None else by_link,
            by_use,
            derived,
        )

    # -- what the loop does

    def aligned(self, rows: IntArray, links: tuple[str, ...] | None) -> PolicyState:
        """Return the state for these pairs (rows of the pair table) and names of links (None: as before).

        Pairs and links that remain keep their columns; new ones get NaN. Usually nothing has changed since the previous
        interval, and the state itself is returned.
        """
        memory = self
        if links is not None and links is not self.links and links != self.links:
            memory = memory._with_links(links)
        if columns_equal(rows, memory.rows):
            return memory
        old = match_rows(memory.rows, rows)
        by_entry = {name: reindex(column, old, np.nan) for name, column in memory.by_entry.items()}
        return replace(memory, rows=rows, by_entry=by_entry, derived=None)

    def reindexed(self, old_row: IntArray) -> PolicyState:
        """Return the state for a re-arranged pair table, with ``old_row`` as in ``columns.reindex``.

        Removed pairs are forgotten, and new pairs are not decided yet.
        """
        old = match_rows(self.rows, old_row)  # the position in ``self.rows`` of each new row's pair
        rows = np.flatnonzero((old_row != NEW_ROW) & (old != NEW_ROW))
        by_entry = {name: column[old[rows]] for name, column in self.by_entry.items()}
        return replace(self, rows=rows, by_entry=by_entry, derived=None)

    def reindexed_vns(self, old_vn: IntArray) -> PolicyState:
        """Return the state for a re-arranged VN table; removed VNs are forgotten."""
        by_vn = {name: reindex(column, old_vn, np.nan) for name, column in self.by_vn.items()}
        new_vn = match_rows(old_vn, np.arange(self.vns))  # the new row of each old VN
        memory = replace(self, vns=len(old_vn), by_vn=by_vn, derived=None)
        return memory._with_uses(new_vn[self.use_vn], self.use_link)

    def limited_to(self, vns: IntArray) -> PolicyState:
        """Return the state in which only the VNs of these rows have known values; those of pairs and links stay."""
        others = match_rows(vns, np.arange(self.vns)) == NEW_ROW
        by_vn = {name: np.where(others, np.nan, column) for name, column in self.by_vn.items()}
        memory = replace(self, by_vn=by_vn, derived=None)
        return memory._with_uses(np.where(others[self.use_vn], NEW_ROW, self.use_vn), self.use_link)

    def _with_links(self, links: tuple[str, ...]) -> PolicyState:
        row_of = {name: row for row, name in enumerate(self.links)}
        old = np.array([row_of.get(name, NEW_ROW) for name in links], dtype=np.int64)
        by_link = {name: reindex(column, old, np.nan) for name, column in self.by_link.items()}
        memory = replace(self, links=links, by_link=by_link, derived=None)
        new = match_rows(old, np.arange(len(self.links)))  # the new row of each old link
        return memory._with_uses(self.use_vn, new[self.use_link])

    def _with_uses(self, vn: IntArray, link: IntArray) -> PolicyState:
        """Return the state with the uses of these VNs and links; NEW_ROW marks removed ones."""
        # The rows of the uses that remain, sorted by VN, then link.
        next_state = np.flatnonzero((vn != NEW_ROW) & (link != NEW_ROW))
        next_state = next_state[np.lexsort((link[next_state], vn[next_state]))]
        by_use = {name: column[next_state] for name, column in self.by_use.items()}
        return replace(self, use_vn=vn[next_state], use_link=link[next_state], by_use=by_use)


def match_rows(old: IntArray, new: IntArray) -> IntArray:
    """Return the position in ``old`` of each value of ``new``, NEW_ROW where it is absent."""
    if not len(old):
        return np.full(len(new), NEW_ROW, dtype=np.int64)
    order = np.argsort(old, kind="stable")
    found = np.searchsorted(old, new, sorter=order)
    at = order[np.minimum(found, len(old) - 1)]  # ``found`` is len(old) for values above all of ``old``
    return np.where(old[at] == new, at, NEW_ROW)


def _column(columns: Columns, name: str, rows: int) -> FloatArray:
    column = columns.get(name)
    return np.full(rows, np.nan) if column is None else column
