"""What agents report, as columns that follow the pair table, and as readings like those of meters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controller.agents.control_frames import NO_RATE, ReportFlag
from controller.columns import BoolArray, FloatArray, IntArray, reindex
from controller.metering.counters import MeterReadings

# Maximum time between two reports of a pair; over a longer time they give no rate.
MAX_GAP_S = 2.0
BYTES_PER_KBPS_S = 125.0


@dataclass
class AgentCounters:
    """The last report of each pair; columns of shape (pairs,).

    ``octets_in`` and ``octets_dropped`` are rates times the agent's own clock, so that they count as a meter does;
    ``duration_s`` is the time of that clock since the first report. ``clock_s`` is that clock at the last report, NaN
    without one. ``limit_kbps`` is the rate that the agent applies, ``measured_kbps`` the rate that it measured
    in the last report that counted, ``flags`` are of ``ReportFlag``. ``received_s`` is the time of the last report,
    -inf for a pair without one. ``new_octets`` were reported, in ``new_s`` of the agent's clock, since the last
    ``override_readings``.
    """

    octets_in: FloatArray
    octets_dropped: FloatArray
    duration_s: FloatArray
    clock_s: FloatArray
    limit_kbps: IntArray
    measured_kbps: IntArray
    flags: IntArray
    received_s: FloatArray
    new_octets: FloatArray
    new_s: FloatArray

    @classmethod
    def initial(cls, entries: int) -> AgentCounters:
        """Return the columns of pairs without reports."""
        return cls(
            np.zeros(entries),
            np.zeros(entries),
            np.zeros(entries),
            np.full(entries, np.nan),
            np.full(entries, NO_RATE, dtype=np.int64),
            np.zeros(entries, dtype=np.int64),
            np.zeros(entries, dtype=np.int64),
            np.full(entries, -np.inf),
            np.zeros(entries),
            np.zeros(entries),
        )

    def reindexed(self, old_row: IntArray) -> AgentCounters:
        """Return the columns for a re-arranged pair table."""
        empty = AgentCounters.initial(1)
        return AgentCounters(
            *(reindex(getattr(self, name), old_row, getattr(empty, name)[0]) for name in self.__dataclass_fields__)
        )

    def update(self, rows: IntArray, entries: npt.NDArray[np.void], clock_s: FloatArray, now_s: float) -> None:
        """Store the reports of these rows, each once, in the order in which they were sent.

        ``clock_s`` are the agents' clocks.

        A report without a rate, and the first report of a pair, only begin a count.
        """
        elapsed_s = clock_s - self.clock_s[rows]
        flags = entries["flags"].astype(np.int64)
        counts = (elapsed_s > 0.0) & (elapsed_s <= MAX_GAP_S) & (flags & ReportFlag.RATE_UNKNOWN == 0)
        told_s = np.where(counts, elapsed_s, 0.0)
        measured, dropped = (entries[name].astype(np.float64) for name in ("measured_kbps", "dropped_kbps"))
        self.new_octets[rows] += measured * BYTES_PER_KBPS_S * told_s
        self.new_s[rows] += told_s
        self.octets_in[rows] += (measured + dropped) * BYTES_PER_KBPS_S * told_s
        self.octets_dropped[rows] += dropped * BYTES_PER_KBPS_S * told_s
        self.duration_s[rows] += told_s
        self.clock_s[rows] = clock_s
        self.limit_kbps[rows] = entries["limit_kbps"]
        self.measured_kbps[rows] = np.where(counts, entries["measured_kbps"], self.measured_kbps[rows])
        self.flags[rows] = flags
        self.received_s[rows] = now_s

    @property
    def mean_octets_per_s(self) -> FloatArray:
        """The rate of all reports that count since the last ``override_readings``, shape (pairs,).

        Without one, the rate of the last one that counted.
        """
        last = self.measured_kbps * BYTES_PER_KBPS_S
        mean: FloatArray = np.divide(self.new_octets, self.new_s, out=last, where=self.new_s > 0.0)
        return mean

    def override_readings(self, readings: MeterReadings, shaped: BoolArray) -> None:
        """Replace the meter readings of the ``shaped`` pairs by what agents reported.

        A reading is unknown where the report is old.
        """
        rows = np.flatnonzero(shaped)
        readings.byte_in_count[rows] = self.octets_in[rows]
        readings.dropped_byte_count[rows] = self.octets_dropped[rows]
        readings.duration_s[rows] = self.duration_s[rows]
        readings.received_s[rows] = self.received_s[rows]
        readings.present[rows] = self.new_s[rows] > 0.0
        readings.confirmed_s[rows] = np.nan
        self.new_octets[:] = self.new_s[:] = 0.0
