"""The congested receiving VNs, as operators see them, under every algorithm."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray, reindex
from controller.dets.rate_allocator import CALM_INTERVALS, CONGESTED_ABOVE
from controller.fabric.vn_table import VnTable
from controller.loop.control_step import ControlState

_NO_ROWS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Congestion:
    """Congested VNs; columns of shape (vns,).

    ``since_s`` is NaN for a VN without congestion, or with congestion since the start.

    In most VLANs the rate allocator (DETS, section II) or the policy declares congestion. A policy that always controls
    senders acts before a receiver gets too much. Choice: under such a policy, unless the policy declares congestion
    itself, a VN is congested while a sender offers more than its grant because of the receiver's limit or a link on the
    path, and not because of the sender's own limit. Congestion ends after CALM_INTERVALS intervals without such a
    sender.
    """

    congested: BoolArray
    since_s: FloatArray
    calm_intervals: IntArray

    @classmethod
    def initial(cls, vns: int) -> Congestion:
        """Return the state without congestion."""
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
        """Return the state after an interval, the rows of VNs where congestion began, and the rows where it ended.

        The interval led from ``before`` to ``state``, with ``limit_bps`` (pairs,) effective after it. ``declared``
        (vns,) is the mask of the VNs for which the policy declares congestion itself. For VNs that always control their
        senders, and are not ``declared``, congestion is inferred from senders that offer more than their grants.
        """
        was_congested, congested = before.allocators.congested, state.allocators.congested
        calm_intervals = self.calm_intervals
        inferred_mask = vns.always_controlled & ~declared if vns.some_always_controlled else None
        if inferred_mask is not None and inferred_mask.any():
            pairs = state.entries
            bound_by_sender = CONGESTED_ABOVE * limit_bps >= vns.send_max_bps[pairs.sender]
            held_back = (state.measured.offered_bps > CONGESTED_ABOVE * limit_bps) & ~bound_by_sender
            has_held_back_sender = np.bincount(pairs.receiver[held_back], minlength=len(vns)) > 0
            calm_intervals = np.where(has_held_back_sender, 0, self.calm_intervals + 1)
            inferred = has_held_back_sender | (self.congested & (calm_intervals < CALM_INTERVALS))
            was_congested = np.where(inferred_mask, self.congested, was_congested)
            congested = np.where(inferred_mask, inferred, congested)
        elif congested is was_congested or np.array_equal(congested, was_congested):
            after = self if congested is self.congested else replace(self, congested=congested)
            return after, _NO_ROWS, _NO_ROWS
        began, ended = congested & ~was_congested, was_congested & ~congested
        since_s = np.where(began, now_s, np.where(ended, np.nan, self.since_s))
        return Congestion(congested, since_s, calm_intervals), np.flatnonzero(began), np.flatnonzero(ended)
