"""Congestion marks of one interval: marked frames, and the excess at phantom meters."""

from __future__ import annotations

from dataclasses import dataclass

from controller.columns import FloatArray

PHANTOM_PART = 0.98
"""A phantom meter's rate, as a part of the receive limit (choice): it has excess before the queue behind it is full."""
PHANTOM_BURST_S = 0.006
"""Its burst: 20 % of a receiving queue of 30 ms, where the paper's switches mark."""


@dataclass(frozen=True)
class MarkReadings:
    """Rates of marks, NaN where unknown.

    ``marked_bps`` (pairs,) is the traffic that arrived at the receiver's switch with a CE mark, by counting meters.
    ``arrived_bps`` (vns,) is the traffic to a VN, and ``beyond_bps`` (vns,) the part of it above the rate of the VN's
    phantom meter. Both are from that meter, so that they cover the same time.
    """

    marked_bps: FloatArray
    arrived_bps: FloatArray
    beyond_bps: FloatArray
