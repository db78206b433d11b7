"""Which VNs get less than they were promised, receiving or sending, although there is more to send."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray, reindex
from controller.metering import enforcement_native, measurement_native

# Over an interval TCP gets more or less than its rate by chance, and a raised limit is followed by an interval or two.
MEAN_S = 3.0
VIOLATED_BELOW = 0.95  # of what was promised and wanted
RESTORED_ABOVE = 0.97
MIN_OWED_BPS = 1000.0  # a mean that fades away is no traffic
_PROMISE = np.array([VIOLATED_BELOW, RESTORED_ABOVE, MIN_OWED_BPS])  # as Promise of _budgets.c


class Guarantees(NamedTuple):
    """How VNs fare one way, receiving or sending, each column of shape (vns,).

    ``entitled_bps`` is what is offered, as far as it is within the VN's limit, and ``received_bps`` what passes the
    senders' meters, both as exponential means over MEAN_S. A VN that gets less than it is owed is
    ``missing`` it; ``missed_intervals`` counts for how long in all.
    """

    entitled_bps: FloatArray
    received_bps: FloatArray
    violated: BoolArray
    violated_intervals: IntArray

    @classmethod
    def initial(cls, vns: int) -> Guarantees:
        """Return the state before anything was sent."""
        nothing = np.zeros(vns)
        return cls(nothing, nothing, np.zeros(vns, dtype=np.bool_), np.zeros(vns, dtype=np.int64))

    def reindexed(self, old_row: IntArray) -> Guarantees:
        """Return the state for a re-arranged VN table."""
        return Guarantees(
            reindex(self.entitled_bps, old_row, 0.0),
            reindex(self.received_bps, old_row, 0.0),
            reindex(self.violated, old_row, False),
            reindex(self.violated_intervals, old_row, 0),
        )

    def updated(
        self, offered_bps: FloatArray, received_bps: FloatArray, limit_bps: FloatArray, interval_s: float
    ) -> Guarantees:
        """Return the state after one more interval, in which each VN was offered and received so much."""
        share = min(interval_s / MEAN_S, 1.0)
        if measurement_native.library is not None:
            before = (self.entitled_bps, self.received_bps, self.violated, self.violated_intervals)
            columns = (_PROMISE, offered_bps, received_bps, limit_bps, *before)
            (owed, received, missing, missed), changed = enforcement_native.track_guarantees(share, columns)
            # Where nobody's state has changed it is the same column, so that callers need not compare.
            return Guarantees(owed, received, missing if changed else self.violated, missed)
        owed = self.entitled_bps + share * (np.minimum(offered_bps, limit_bps) - self.entitled_bps)
        received = self.received_bps + share * (received_bps - self.received_bps)
        least = np.where(self.violated, RESTORED_ABOVE, VIOLATED_BELOW) * owed
        missing = (received < least) & (owed >= MIN_OWED_BPS)
        return Guarantees(owed, received, missing, self.violated_intervals + missing)


def sender_entitlements(
    sender: IntArray,
    receiver: IntArray,
    offered_bps: FloatArray,
    active: BoolArray,
    weight: FloatArray,
    receive_limit_bps: FloatArray,
) -> FloatArray:
    """Return (vns,) what VNs offer to others, as far as it is within their parts of the others' receive limits.

    The first four are columns of entries; ``weight`` and limits (vns,). A guarantee is one of both ends (hose model):
    who sends to a receiver that others fill has its part by weight there, and no more.
    """
    weights = np.where(active, weight[sender], 0.0)
    sums = np.bincount(receiver, weights, minlength=len(weight))[receiver]
    part = np.divide(weights, sums, out=np.zeros(len(sender)), where=sums > 0)
    within_bps = np.minimum(offered_bps, receive_limit_bps[receiver] * part)
    return np.bincount(sender, within_bps, minlength=len(weight)).astype(np.float64)
