"""Meter counters to rates. Missing, reset, jumped or stale counters are unknown (NaN), never zero."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray, reindex, with_rows
from controller.metering import measurement_native
from controller.native_loader import choose
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.units import BITS_PER_BYTE

# A counter that grew faster than this many times the capacity of the sender's port did not count packets.
PLAUSIBLE_LOAD = 20.0
# Over a shorter time a few packets decide the rate; the reading is skipped, and the next one covers both.
MIN_ELAPSED_S = 0.010

RowArray = NDArray[np.int32]
NOT_LISTED = -1  # the position of a meter in no reply


@dataclass(frozen=True)
class MeterReadings:
    """The switches' counters of the pairs' meters, aligned with the pair table; columns of shape (pairs,).

    ``byte_in_count`` counts what arrived at the meter, before the drop; ``dropped_byte_count`` what its band dropped.
    ``duration_s`` is the time since the meter was added, by the switch's clock, which is more precise than the arrival
    time. ``received_s`` is the controller's clock when the reply arrived. A meter in no reply has ``present`` false.
    ``confirmed_s`` is the controller's clock when the switch had executed its last messages; NaN where unknown.
    """

    byte_in_count: FloatArray
    dropped_byte_count: FloatArray
    duration_s: FloatArray
    received_s: FloatArray
    present: BoolArray
    confirmed_s: FloatArray

    @classmethod
    def initial(cls, entries: int) -> MeterReadings:
        """Return empty readings, to be filled in place."""
        byte_in, dropped, duration, received, confirmed = (np.full(entries, np.nan) for _ in range(5))
        return cls(byte_in, dropped, duration, received, np.zeros(entries, dtype=np.bool_), confirmed)

    @property
    def in_order(self) -> tuple[NDArray[np.generic], ...]:
        """Return the columns in the order of ``measurement_native``."""
        counts = (self.byte_in_count, self.dropped_byte_count, self.duration_s, self.received_s)
        return (*counts, self.present, self.confirmed_s)


@dataclass(frozen=True)
class ListedReadings:
    """Readings as references into the switches' replies.

    Row i has ``stats[meter[i]]`` (METER_STATS; NOT_LISTED: none) of the switch ``switch[i]``. ``received_s``
    (switches,) is when they arrived, ``confirmed_s`` (switches,) when the switch had executed its last messages, NaN:
    unknown.

    ``confirmed_s`` applies only to meters with the switch's latest ``modified_s`` (rows,). For meters that an earlier
    message modified, it would move the start of their counts again and again, and none of their readings would ever
    count. None: no meter is ever modified.
    """

    meter: RowArray
    switch: RowArray
    stats: NDArray[np.void]
    received_s: FloatArray
    confirmed_s: FloatArray
    modified_s: FloatArray | None

    @property
    def native_columns(self) -> tuple[NDArray[np.generic], ...]:
        """The columns for ``measurement_native.read``; the last is its buffer of (switches,) modify times."""
        modified_s = self.received_s if self.modified_s is None else self.modified_s  # None: the values are not read
        latest_modify_s = np.empty(len(self.received_s))
        latest_modify_s.fill(-np.inf)
        return (self.meter, self.switch, self.stats, self.received_s, self.confirmed_s, modified_s, latest_modify_s)

    @property
    def never_modified(self) -> ListedReadings:
        """The readings with ``modified_s`` set to never, for meters whose times of modification are not tracked."""
        never_s = np.empty(len(self.meter))
        never_s.fill(-np.inf)
        return ListedReadings(self.meter, self.switch, self.stats, self.received_s, self.confirmed_s, never_s)

    @cached_property
    def columns(self) -> MeterReadings:
        """The readings as one row per meter (``MeterReadings``)."""
        if measurement_native.library is not None:
            floats, present = measurement_native.read(self.native_columns, self.modified_s is not None)
            byte_in, dropped, duration_s, received_s, confirmed_s = floats
            return MeterReadings(byte_in, dropped, duration_s, received_s, present, confirmed_s)
        readings = MeterReadings.initial(len(self.meter))
        listed_rows = np.flatnonzero(self.meter != NOT_LISTED)
        switch, meter_stats = self.switch[listed_rows], self.stats[self.meter[listed_rows]]
        readings.confirmed_s[listed_rows] = self.confirmed_s[switch]
        if self.modified_s is not None:
            modified_s, latest_modify_s = self.modified_s[listed_rows], np.full(len(self.received_s), -np.inf)
            np.maximum.at(latest_modify_s, switch, modified_s)
            modified_earlier = modified_s < latest_modify_s[switch]
            readings.confirmed_s[listed_rows[modified_earlier]] = np.nan
        byte_in, dropped = meter_stats["byte_in_count"], meter_stats["band_byte_count"]
        counted = (byte_in != COUNTER_UNAVAILABLE) & (dropped != COUNTER_UNAVAILABLE)
        rows = listed_rows[counted]
        readings.byte_in_count[rows] = byte_in[counted]
        readings.dropped_byte_count[rows] = dropped[counted]
        readings.duration_s[rows] = meter_stats["duration_s"][counted]
        readings.received_s[rows] = self.received_s[switch[counted]]
        readings.present[rows] = True
        return readings


Readings = MeterReadings | ListedReadings


def columns_of(readings: Readings) -> MeterReadings:
    """Return readings as columns."""
    return readings.columns if isinstance(readings, ListedReadings) else readings


class MeterCounters(NamedTuple):
    """The last readings, with which the next ones are compared; columns of shape (pairs,).

    ``epoch_s`` is the time, on the meter's own clock, at which its counters had the values ``byte_in_count`` and
    ``dropped_byte_count``; NaN before the first reading.
    """

    byte_in_count: FloatArray
    dropped_byte_count: FloatArray
    duration_s: FloatArray
    epoch_s: FloatArray
    received_s: FloatArray

    @classmethod
    def initial(cls, entries: int) -> MeterCounters:
        """Return the state before the first reading."""
        nan = np.full(entries, np.nan)
        return cls(nan, nan, nan, nan, nan)

    @property
    def columns(self) -> tuple[FloatArray, ...]:
        """Return the columns in the order of ``measurement_native``."""
        return (self.byte_in_count, self.dropped_byte_count, self.duration_s, self.epoch_s, self.received_s)

    def reindexed(self, old_row: IntArray, *, added_s: float | None = None) -> MeterCounters:
        """Return the state for a re-arranged pair table.

        The meter of a new pair is either added at ``added_s`` on the controller's clock, and counts from zero at its
        duration zero, or was installed before (None) and is unknown until its second reading.
        """
        initial = np.nan if added_s is None else 0.0
        return MeterCounters(
            reindex(self.byte_in_count, old_row, initial),
            reindex(self.dropped_byte_count, old_row, initial),
            reindex(self.duration_s, old_row, initial),
            reindex(self.epoch_s, old_row, initial),
            reindex(self.received_s, old_row, np.nan if added_s is None else added_s),
        )

    def invalidated(self, rows: IntArray) -> MeterCounters:
        """Return the state in which the counters of ``rows`` are unknown."""
        return MeterCounters(*(with_rows(column, rows, np.nan) for column in self))

    def modified(self, rows: IntArray, sent_s: float, *, in_place: bool = False) -> MeterCounters:
        """Return the state after OFPMC_MODIFY was sent for ``rows`` at ``sent_s`` on the controller's clock.

        With ``in_place`` the columns are not shared, and are written in place.

        Open vSwitch zeroes a meter's counters at every modify while its duration goes on, so the next count begins at
        the modify: the last reading's duration plus the time since its arrival, by the controller's clock.
        """
        counts = (self.byte_in_count, self.dropped_byte_count, self.epoch_s)
        byte_in, dropped, epoch = counts if in_place else (column.copy() for column in counts)
        if measurement_native.library is not None:
            measurement_native.reset_counters((rows, self.duration_s, self.received_s, byte_in, dropped, epoch), sent_s)
            return MeterCounters(byte_in, dropped, self.duration_s, epoch, self.received_s)
        byte_in[rows] = 0.0
        dropped[rows] = 0.0
        epoch[rows] = self.duration_s[rows] + np.maximum(sent_s - self.received_s[rows], 0.0)
        return self._replace(byte_in_count=byte_in, dropped_byte_count=dropped, epoch_s=epoch)

    def confirmed(self, confirmed_s: FloatArray) -> MeterCounters:
        """Return the state in which a modified meter counts from the time when its switch executed the modify.

        ``confirmed_s`` (pairs,) is that time by the controller's clock; NaN: unknown. On a busy switch it is later than
        the modify was sent.
        """
        executed_s = self.duration_s + (confirmed_s - self.received_s)  # by the meter's own clock
        was_modified = self.epoch_s > self.duration_s  # ``modified`` moves the epoch beyond the last reading
        late = was_modified & (executed_s > self.epoch_s)
        return self._replace(epoch_s=np.where(late, executed_s, self.epoch_s)) if late.any() else self


class MeterRates(NamedTuple):
    """The meters' rates since the last reading, shape (pairs,), NaN where unknown.

    ``offered_bps`` arrived, ``dropped_bps`` was dropped, ``passed_bps`` is the difference. All are means over the
    ``seen_s`` seconds since the last reading, or since a later modify. ``implausible`` marks impossible counter
    changes.
    """

    offered_bps: FloatArray
    dropped_bps: FloatArray
    passed_bps: FloatArray
    implausible: BoolArray
    seen_s: FloatArray


def _plain_meter_rates(
    before: MeterCounters, now: MeterReadings, capacity_bps: FloatArray
) -> tuple[MeterRates, MeterCounters]:
    """Return the rates between the readings ``before`` and ``now``, and the counters for the next comparison.

    ``capacity_bps`` (pairs,) is the capacity of the sender's edge port.

    1) A modified meter counts from the time when its switch executed the modify, where known.
    2) A meter whose duration decreased was added again: it has counted from zero since then.
    3) Elapsed time is by the switch's clock; a reading that is hardly newer than the last one is ignored.
    4) A count below the last one, or a rate above PLAUSIBLE_LOAD times the capacity, makes the rate unknown.
    """
    # 1
    before = before.confirmed(now.confirmed_s)
    # 2
    added_again = now.duration_s < before.duration_s
    start_s = np.where(added_again, 0.0, before.epoch_s)
    start_in = np.where(added_again, 0.0, before.byte_in_count)
    start_dropped = np.where(added_again, 0.0, before.dropped_byte_count)
    # 3
    elapsed_s = now.duration_s - start_s
    newer = now.present & (elapsed_s >= MIN_ELAPSED_S)
    per_second = BITS_PER_BYTE / np.where(newer, elapsed_s, np.nan)
    offered_bps = (now.byte_in_count - start_in) * per_second
    dropped_bps = (now.dropped_byte_count - start_dropped) * per_second
    # 4
    with np.errstate(invalid="ignore"):
        implausible = (offered_bps < 0.0) | (dropped_bps < 0.0) | (offered_bps > PLAUSIBLE_LOAD * capacity_bps)
    offered_bps[implausible] = np.nan
    dropped_bps[implausible] = np.nan
    passed_bps = np.maximum(offered_bps - dropped_bps, 0.0)
    seen_s = np.where(np.isnan(offered_bps), np.nan, elapsed_s)
    rates = MeterRates(offered_bps, dropped_bps, passed_bps, implausible, seen_s)
    accepted = newer | (now.present & np.isnan(elapsed_s))  # NaN: this is the meter's first reading
    counters = MeterCounters(
        byte_in_count=np.where(accepted, now.byte_in_count, before.byte_in_count),
        dropped_byte_count=np.where(accepted, now.dropped_byte_count, before.dropped_byte_count),
        duration_s=np.where(accepted, now.duration_s, before.duration_s),
        epoch_s=np.where(accepted, now.duration_s, before.epoch_s),
        received_s=np.where(accepted, now.received_s, before.received_s),
    )
    return rates, counters


def _compiled_meter_rates(
    before: MeterCounters, now: MeterReadings, capacity_bps: FloatArray
) -> tuple[MeterRates, MeterCounters]:
    """Return what ``_plain_meter_rates`` returns, by the native function."""
    settings = (MIN_ELAPSED_S, PLAUSIBLE_LOAD, float(BITS_PER_BYTE))
    (offered_bps, dropped_bps, passed_bps, seen_s), implausible, after = measurement_native.meter_rates(
        settings, before.columns, (*now.in_order, capacity_bps)
    )
    return MeterRates(offered_bps, dropped_bps, passed_bps, implausible, seen_s), MeterCounters(*after)


meter_rates = choose(measurement_native, _compiled_meter_rates, _plain_meter_rates)
