"""Feedback from a receiving node to a sending node that decides its own rate: a sixth message next to DETS's five.

Deviation: DETS (section II.A) has five messages, and rates go from the receiver to the sender. In Gatekeeper, Seawall
and HyGenICC the sender decides on what the receiver observed, so that the message carries observations. The policy
names the columns. Here only Gatekeeper's policy sends such messages, with ``floor_bps`` and ``room_bps``; the policies
of Seawall and HyGenICC read the counters of links and meters instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from controller.columns import FloatArray, IntArray
from controller.errors import InvalidValueError


@dataclass(frozen=True, slots=True)
class CongestionFeedback:
    """Receiving to sending node: observations of the sender's traffic. One value per message in each column.

    ``entry`` are ascending rows of the pair table, which has both ends. ``columns`` has the policy's names, each of the
    shape of ``entry``; NaN is unknown. Raises InvalidValueError if they do not fit each other.
    """

    entry: IntArray
    columns: Mapping[str, FloatArray]

    def __post_init__(self) -> None:
        if (self.entry[1:] <= self.entry[:-1]).any() or (self.entry[:1] < 0).any():
            raise InvalidValueError("feedback.entry", self.entry.tolist(), "are not ascending rows of the pair table")
        for name, column in self.columns.items():
            if column.shape != self.entry.shape or column.dtype != np.float64:
                reason = f"is not one float for each of {len(self.entry)} messages"
                raise InvalidValueError(f"feedback.{name}", f"{column.shape} of {column.dtype}", reason)

    def __len__(self) -> int:
        return len(self.entry)

    def column_for(self, name: str, rows: IntArray) -> FloatArray:
        """Return one column of the pairs' messages, shape of ``rows`` (any rows); NaN for pairs without one."""
        if not len(self.entry):
            return np.full(len(rows), np.nan)
        # A column over the rows of the pair table, as long as needed.
        notified = np.full(max(int(rows.max(initial=0)), int(self.entry[-1])) + 1, np.nan)
        notified[self.entry] = self.columns[name]
        return notified[rows]
