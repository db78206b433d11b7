"""Which receiving VNs are congested, as operators see it, under every algorithm."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray, reindex
from controller.dets.rate_allocator import CALM_INTERVALS, CONGESTED_ABOVE
from controller.fabric.vn_table import VnTable
from controller.loop.control_step import ControlState

_NOBODY = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Congestion:
    """Congested VNs; columns of shape (vns,). ``since_s`` is NaN where a VN is not, or was at the start.

    In most VLANs a VN is congested as its rate allocator (DETS, section II) or its policy declares. One that always has
    its senders under control does so before a receiver gets too much. Choice: there, if the policy does not say, a VN
    is congested while a sender offers more than it is granted, because of the receiver's limit or a link on the way
    and not because of the sender's own limit, and until that has not been so for as many intervals as in section II.
    """

    congested: BoolArray
    since_s: FloatArray
    calm_intervals: IntArray

    @classmethod
    def initial(cls, vns: int) -> Congestion:
        """Return the state in which nothing is congested."""
        return cls(np.zeros(vns, dtype=np.bool_), np.full(vns, np.nan), np.zeros(vns, dtype=np.int64))

    def reindexed(self, old_row: IntArray) -> Congestion:
        """Return the state for a re-arranged VN table."""
        return Congestion(
            reindex(self.congested, old_row, False),
            reindex(self.since_s, old_row, np.nan),
            reindex(self.calm_intervals, old_row, 0),
        )

    def updated(
        self,
        before: ControlState,
        state: ControlState,
        vns: VnTable,
        declared: BoolArray,
        limit_bps: FloatArray,
        now_s: float,
    ) -> tuple[Congestion, IntArray, IntArray]:
        """Return the state after an interval, and the rows of the VN table where congestion began, and where it ended.

        The interval led from ``before`` to ``state``, with ``limit_bps`` (entries,) in force after it. ``declared``
        (vns,) are the VNs whose policy says by itself whether they are congested.
        """
        was, congested, calm_intervals = before.allocators.congested, state.allocators.congested, self.calm_intervals
        held_back_counts = vns.always_controlled & ~declared if vns.some_always_controlled else None
        if held_back_counts is not None and held_back_counts.any():
            entries = state.entries
            own_limit = CONGESTED_ABOVE * limit_bps >= vns.send_max_bps[entries.sender]
            held_back = (state.measured.offered_bps > CONGESTED_ABOVE * limit_bps) & ~own_limit
            held = np.bincount(entries.receiver[held_back], minlength=len(vns)) > 0
            calm_intervals = np.where(held, 0, self.calm_intervals + 1)
            since = held | (self.congested & (calm_intervals < CALM_INTERVALS))
            was = np.where(held_back_counts, self.congested, was)
            congested = np.where(held_back_counts, since, congested)
        elif congested is was or np.array_equal(congested, was):
            after = self if congested is self.congested else replace(self, congested=congested)
            return after, _NOBODY, _NOBODY
        began, ended = congested & ~was, was & ~congested
        since_s = np.where(began, now_s, np.where(ended, np.nan, self.since_s))
        return Congestion(congested, since_s, calm_intervals), np.flatnonzero(began), np.flatnonzero(ended)
