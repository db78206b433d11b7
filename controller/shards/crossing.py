"""Where a shard's own entries lead: to its own VNs, or to which peer's. It stays while entries and owners do.

So what an interval says to each peer is one gather over all of them, cut into slices, and grants find their rows at
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from controller.columns import BoolArray, IntArray
from controller.dets.send_rate_controller import Control
from controller.fabric.entries import EntryTable
from controller.metering.measurement import IDLE_INTERVALS
from controller.shards import crossing_kernel
from controller.shards.frames import Grants
from controller.shards.receiver_table import Pairs, found_pairs


@dataclass(frozen=True)
class Crossing:
    """``own`` are the rows of ``entries`` whose receivers are the shard's own, ``own_pairs`` their ends.

    ``rows`` are those that lead to peers, one peer after another, ascending for each; ``starts`` says where each peer's
    begin. ``crosses`` (entries,) marks them.
    """

    entries: EntryTable
    own: IntArray
    own_pairs: Pairs
    crosses: BoolArray
    rows: IntArray
    starts: Mapping[int, int]
    _found: dict[int, tuple[Grants, IntArray, IntArray | slice]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: EntryTable, mine: BoolArray, owns: Mapping[int, BoolArray]) -> Crossing:
        """Return it for the VNs that are ``mine`` and those that each peer ``owns``, (vns,) each."""
        own = np.flatnonzero(mine[entries.receiver])
        of_peers = [np.flatnonzero(theirs[entries.receiver]) for theirs in owns.values()]
        ends = np.cumsum([0, *map(len, of_peers)])
        rows = np.concatenate([np.empty(0, dtype=np.int64), *of_peers])
        pairs = entries.sender[own], entries.receiver[own]
        return cls(entries, own, pairs, ~mine[entries.receiver], rows, dict(zip(owns, ends.tolist(), strict=False)))

    def told(self, control: IntArray, silent_intervals: IntArray) -> tuple[IntArray, dict[int, slice]]:
        """Return the rows that lead to peers and are told of, and which of them are each peer's.

        They are those under control, and those with traffic (``Control``, ``Measurement``; (entries,) each).
        """
        rows, starts = self.rows, list(self.starts.values())
        if crossing_kernel.library is None or not crossing_kernel.all_told(
            Control.IDLE, IDLE_INTERVALS, rows, control, silent_intervals
        ):
            at = np.flatnonzero((control[rows] != Control.IDLE) | (silent_intervals[rows] < IDLE_INTERVALS))
            rows, starts = rows[at], np.searchsorted(at, starts).tolist()
        return rows, dict(zip(self.starts, map(slice, starts, [*starts[1:], len(rows)]), strict=True))

    @cached_property
    def all_rows(self) -> IntArray:
        """The rows of all entries."""
        return np.arange(len(self.entries))

    def of_peer(self, peer: int) -> IntArray:
        """Return the rows that lead to a peer, ascending."""
        starts = [*self.starts.values(), len(self.rows)]
        number = list(self.starts).index(peer)
        return self.rows[starts[number] : starts[number + 1]]

    def granted(self, peer: int, grants: Grants, vns: int) -> tuple[IntArray, IntArray | slice]:
        """Return the rows that a peer grants a rate, and the rows of ``grants``; entries may have gone meanwhile."""
        last = self._found.get(peer)
        if last is None or last[0].sender is not grants.sender or last[0].receiver is not grants.receiver:
            own, entries = self.of_peer(peer), self.entries
            theirs = EntryTable(entries.sender[own], entries.receiver[own], entries.meter_id[own])
            rows, at = found_pairs(theirs, grants, vns)
            last = self._found[peer] = grants, own[rows], at if len(at) < len(grants.sender) else slice(None)
        return last[1], last[2]
