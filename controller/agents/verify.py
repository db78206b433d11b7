"""Whether agents keep their word: what the backstop meters count against what was granted and what was reported."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray, carry

WINDOW_INTERVALS = 20
TOLERATED = 0.05
# Meters and agents are not read in the same instant, so that an interval more or less is seen; and frames are whole.
SLACK_INTERVALS = 1
SLACK_OCTETS = 3 * 1522


@dataclass
class Verification:
    """Sums over the window that is going on, in octets; columns of shape (entries,).

    ``metered`` is what came to the meter, ``last`` its counter; NaN where it is not known.
    """

    metered: FloatArray
    reported: FloatArray
    granted: FloatArray
    last: FloatArray
    intervals: IntArray

    @classmethod
    def none(cls, entries: int) -> Verification:
        """Return the state in which nothing has been compared."""
        metered, reported, granted = np.zeros(entries), np.zeros(entries), np.zeros(entries)
        return cls(metered, reported, granted, np.full(entries, np.nan), np.zeros(entries, dtype=np.int64))

    def carried(self, old_row: IntArray) -> Verification:
        """Return the state for a re-arranged entry table."""
        return Verification(
            carry(self.metered, old_row, 0.0),
            carry(self.reported, old_row, 0.0),
            carry(self.granted, old_row, 0.0),
            carry(self.last, old_row, np.nan),
            carry(self.intervals, old_row, 0),
        )

    def after(
        self,
        watched: BoolArray,
        byte_in_count: FloatArray,
        reported_octets: FloatArray,
        limit_bps: FloatArray,
        interval_s: float,
    ) -> BoolArray:
        """Add an interval; return the entries whose window is full and whose agent lied, shape (entries,).

        ``byte_in_count`` is the meters' (NaN: not read), which begins at zero again when one is modified.
        ``reported_octets`` is what was reported since the last call.
        """
        came = byte_in_count - self.last
        came = np.where(came < 0.0, byte_in_count, came)
        known = watched & ~np.isnan(came)
        self.last = np.where(watched, np.where(np.isnan(byte_in_count), self.last, byte_in_count), np.nan)
        granted = limit_bps * interval_s / 8
        self.metered = np.where(watched, self.metered + np.where(known, came, 0.0), 0.0)
        self.reported = np.where(watched, self.reported + reported_octets, 0.0)
        self.granted = np.where(watched, self.granted + granted, 0.0)
        self.intervals = np.where(watched, self.intervals + 1, 0)
        full = self.intervals >= WINDOW_INTERVALS
        slack = SLACK_INTERVALS * granted + SLACK_OCTETS
        above = [self.metered > (1 + TOLERATED) * told + slack for told in (self.granted, self.reported)]
        lied: BoolArray = full & (above[0] | above[1])
        for column in (self.metered, self.reported, self.granted, self.intervals):
            column[full] = 0
        return lied
