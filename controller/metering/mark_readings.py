"""What was seen of marks in one interval: frames that came with one, and what phantom meters counted."""

from __future__ import annotations

from dataclasses import dataclass

from controller.columns import FloatArray

PHANTOM_PART = 0.98
"""A phantom meter's rate, as a part of the receive limit (choice): it is beyond before the queue behind it is full."""
PHANTOM_BURST_S = 0.006
"""And its burst: 20 % of a receiving queue of 30 ms, where the paper has its switches mark."""


@dataclass(frozen=True)
class MarkReadings:
    """Rates of marks, NaN where unknown.

    ``marked_bps`` (entries,) came to the receiver's switch with a CE mark, by measuring meters. ``arrived_bps``
    (vns,) is what a VN was sent, and ``beyond_bps`` (vns,) what of it was more than its phantom meter lets through:
    both of one meter, so that they are of the same time.
    """

    marked_bps: FloatArray
    arrived_bps: FloatArray
    beyond_bps: FloatArray
