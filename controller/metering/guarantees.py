"""Guarantees of VNs, receiving or sending: which VNs get less than they are entitled to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray, reindex
from controller.metering import enforcement_native, measurement_native

# In a single interval TCP gets more or less than its rate by chance, and a raised limit takes effect after one or two
# intervals.
MEAN_S = 3.0
VIOLATED_BELOW = 0.95  # of the entitled rate
RESTORED_ABOVE = 0.97
MIN_ENTITLED_BPS = 1000.0  # a fading mean below this is no traffic
_THRESHOLDS = np.array([VIOLATED_BELOW, RESTORED_ABOVE, MIN_ENTITLED_BPS])  # the same as Promise of _budgets.c


class Guarantees(NamedTuple):
    """The guarantees of VNs in one direction, receiving or sending; columns of shape (vns,).

    ``entitled_bps`` is the offered rate within the VN's limit, and ``received_bps`` what passes the senders' meters,
    both as exponential means over MEAN_S. The guarantee of a VN that gets less than its entitled rate is ``violated``;
    ``violated_intervals`` is the total number of intervals in which it was.
    """

    entitled_bps: FloatArray
    received_bps: FloatArray
    violated: BoolArray
    violated_intervals: IntArray

    @classmethod
    def initial(cls, vns: int) -> Guarantees:
        """Return the state before any traffic."""
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
        """Return the state after one more interval of ``interval_s``; the VNs' rates and limits are (vns,) each."""
        share = min(interval_s / MEAN_S, 1.0)
        if measurement_native.library is not None:
            before = (self.entitled_bps, self.received_bps, self.violated, self.violated_intervals)
            columns = (_THRESHOLDS, offered_bps, received_bps, limit_bps, *before)
            (entitled_bps, mean_bps, violated, counts), changed = enforcement_native.track_guarantees(share, columns)
            # If no guarantee changed its state, the mask is the same array, so that callers need not compare.
            return Guarantees(entitled_bps, mean_bps, violated if changed else self.violated, counts)
        entitled_bps = self.entitled_bps + share * (np.minimum(offered_bps, limit_bps) - self.entitled_bps)
        mean_bps = self.received_bps + share * (received_bps - self.received_bps)
        threshold_bps = np.where(self.violated, RESTORED_ABOVE, VIOLATED_BELOW) * entitled_bps
        violated = (mean_bps < threshold_bps) & (entitled_bps >= MIN_ENTITLED_BPS)
        return Guarantees(entitled_bps, mean_bps, violated, self.violated_intervals + violated)


def sender_entitlements(
    sender: IntArray,
    receiver: IntArray,
    offered_bps: FloatArray,
    active: BoolArray,
    weight: FloatArray,
    receive_limit_bps: FloatArray,
) -> FloatArray:
    """Return (vns,) the rates that VNs offer within their parts of the receivers' receive limits.

    ``sender`` to ``active`` are columns of pairs, ``weight`` and ``receive_limit_bps`` columns of VNs. A guarantee
    needs both ends (hose model): a sender to a receiver with other senders is entitled to its part by weight, and no
    more.
    """
    active_weight = np.where(active, weight[sender], 0.0)
    receiver_weight = np.bincount(receiver, active_weight, minlength=len(weight))[receiver]
    part = np.divide(active_weight, receiver_weight, out=np.zeros(len(sender)), where=receiver_weight > 0)
    entitled_bps = np.minimum(offered_bps, receive_limit_bps[receiver] * part)
    return np.bincount(sender, entitled_bps, minlength=len(weight)).astype(np.float64)
