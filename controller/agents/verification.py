"""Checks agents: compares what backstop meters count with what was granted and what was reported."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray, reindex

WINDOW_INTERVALS = 20
TOLERANCE = 0.05
# Tolerance: meters and agents are not read at the same time, up to an interval apart, and frames are whole. A lower
# rate reaches an agent after the reading, so that the highest grant of the window and of the interval before counts.
SLACK_INTERVALS = 1
SLACK_BYTES = 3 * 1522


@dataclass
class Verification:
    """Sums over the current window, in bytes and seconds; columns of shape (pairs,).

    ``metered`` is what arrived at the meter, in ``metered_s`` of the meter's own time; ``last`` and ``last_s`` are the
    meter's counter and clock, NaN where unknown. ``reported`` and ``granted`` cover ``covered_s``; ``highest`` is the
    highest grant of an interval, including the one before the window.
    """

    metered: FloatArray
    metered_s: FloatArray
    reported: FloatArray
    granted: FloatArray
    highest: FloatArray
    covered_s: FloatArray
    last: FloatArray
    last_s: FloatArray
    intervals: IntArray

    @classmethod
    def initial(cls, entries: int) -> Verification:
        """Return the state before the first comparison."""
        metered, metered_s, reported, granted, highest, covered_s = np.zeros((6, entries))
        last, last_s = np.full((2, entries), np.nan)
        intervals = np.zeros(entries, dtype=np.int64)
        return cls(metered, metered_s, reported, granted, highest, covered_s, last, last_s, intervals)

    def reindexed(self, old_row: IntArray) -> Verification:
        """Return the state for a re-arranged pair table."""
        empty = Verification.initial(1)
        return Verification(
            *(reindex(getattr(self, name), old_row, getattr(empty, name)[0]) for name in self.__dataclass_fields__)
        )

    def updated(
        self,
        watched: BoolArray,
        byte_in_count: FloatArray,
        duration_s: FloatArray,
        reported_octets: FloatArray,
        limit_bps: FloatArray,
        interval_s: float,
    ) -> BoolArray:
        """Add an interval; return the mask of pairs with a full window and a false report, shape (pairs,).

        A window begins and ends with a reading of the meter: ``byte_in_count``, which begins at zero again when a meter
        is modified, and ``duration_s``, its clock. Both are NaN where the meter was not read. A busy switch replies
        late and at irregular times, so the window lasts as long as the meter's own clock shows. ``reported_octets`` is
        what was reported since the last call. A report is false if the meter counted clearly more; so is one from a
        sender that sent clearly more than ``limit_bps`` (pairs,), whatever it reported.
        """
        new_bytes, passed_s = byte_in_count - self.last, duration_s - self.last_s
        new_bytes, passed_s = (
            np.where(new_bytes < 0.0, byte_in_count, new_bytes),
            np.where(passed_s < 0.0, duration_s, passed_s),
        )
        has_change, read = watched & ~np.isnan(new_bytes), ~np.isnan(byte_in_count)
        begins = watched & read & np.isnan(self.last)
        self.last = np.where(watched, np.where(read, byte_in_count, self.last), np.nan)
        self.last_s = np.where(watched, np.where(read, duration_s, self.last_s), np.nan)
        granted = limit_bps * interval_s / 8
        self.metered = np.where(watched, self.metered + np.where(has_change, new_bytes, 0.0), 0.0)
        self.metered_s = np.where(watched, self.metered_s + np.where(has_change, passed_s, 0.0), 0.0)
        self.reported = np.where(watched, self.reported + reported_octets, 0.0)
        self.granted = np.where(watched, self.granted + granted, 0.0)
        self.highest = np.where(watched, np.maximum(self.highest, granted), 0.0)
        self.covered_s = np.where(watched, self.covered_s + interval_s, 0.0)
        self.intervals = np.where(watched, self.intervals + 1, 0)
        full = has_change & (self.intervals >= WINDOW_INTERVALS)
        slack = SLACK_INTERVALS * self.highest + SLACK_BYTES
        # The factor from bytes of the covered time to the most that the meter may count in its own time.
        maximum = (1 + TOLERANCE) * self.metered_s / np.maximum(self.covered_s, interval_s)
        above = [self.metered > maximum * addressed + slack for addressed in (self.granted, self.reported)]
        lied: BoolArray = full & (above[0] | above[1])
        for column in (self.metered, self.metered_s, self.reported, self.granted, self.covered_s, self.intervals):
            column[full | begins] = 0
        self.highest = np.where(full | begins, granted, self.highest)
        return lied
