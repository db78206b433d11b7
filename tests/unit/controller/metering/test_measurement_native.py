"""The compiled form of measuring gives the same bits as the numpy form, whatever the counters say."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.native_comparison import numpy_alone, same

from controller.columns import MAX_COUNTED
from controller.metering import measurement_native
from controller.metering.counters import NOT_LISTED, ListedReadings, MeterCounters, MeterReadings, meter_rates
from controller.metering.measurement import Measurement, MeterObservation, evaluate_readings, sum_by_row
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.meters import METER_STATS

pytestmark = pytest.mark.skipif(
    measurement_native.library is None, reason="no C compiler was there when it was installed"
)


def octets(rng: np.random.Generator, entries: int) -> np.ndarray:
    """Counters, half of them the same, as those of senders that have sent nothing since."""
    return np.where(rng.random(entries) < 0.5, 4 * 10**8, rng.integers(0, 10**9, entries))


def counts(rng: np.random.Generator, entries: int) -> np.ndarray:
    """Counters, one in ten of them unknown."""
    return np.where(rng.random(entries) < 0.1, np.nan, octets(rng, entries).astype(np.float64))


def times(rng: np.random.Generator, entries: int) -> np.ndarray:
    """Durations that are often hardly apart or in the wrong order, one in ten of them unknown."""
    return np.where(rng.random(entries) < 0.1, np.nan, np.round(rng.random(entries) * 0.1, 3))


def counters(rng: np.random.Generator, entries: int) -> MeterCounters:
    """Last readings in any order."""
    return MeterCounters(*(make(rng, entries) for make in (counts, counts, times, times, times)))


def columns(rng: np.random.Generator, entries: int) -> MeterReadings:
    """Readings as columns."""
    told = {field.name: times(rng, entries) for field in fields(MeterReadings)}
    counted = {name: counts(rng, entries) for name in ("byte_in_count", "dropped_byte_count")}
    return MeterReadings(**{**told, **counted, "present": rng.random(entries) < 0.9})


def listed(rng: np.random.Generator, entries: int) -> ListedReadings:
    """Readings where three switches have listed them; some meters are not listed, or have no counters."""
    switch, meter = rng.integers(0, 3, entries).astype(np.int32), rng.permutation(entries).astype(np.int32)
    meter[rng.random(entries) < 0.1] = NOT_LISTED
    stats = np.zeros(entries, METER_STATS)
    stats["duration_s"] = np.round(rng.random(entries) * 0.1, 3)
    for name in ("byte_in_count", "band_byte_count"):
        stats[name] = np.where(rng.random(entries) < 0.1, COUNTER_UNAVAILABLE, octets(rng, entries))
    modified_s = np.round(rng.random(entries) * 0.1, 2)
    return ListedReadings(meter, switch, stats, rng.random(3), np.array([0.05, np.nan, 0.1]), modified_s)


def intervals(rng: np.random.Generator, entries: int) -> np.ndarray:
    """Counts of intervals, some of them the most that are counted."""
    return rng.choice([0, 1, 9, 10, MAX_COUNTED - 1, MAX_COUNTED], entries).astype(np.int16)


@given(seed=st.integers(0, 2**32 - 1), entries=st.integers(0, 700), lists=st.booleans())
def test_what_a_reading_shows_is_the_same(seed: int, entries: int, lists: bool) -> None:
    rng = np.random.default_rng(seed)
    before, vns = counters(rng, entries), 5
    readings = listed(rng, entries) if lists else columns(rng, entries)
    capacity_bps = rng.random(vns) * 1e10
    ends = rng.integers(0, vns, entries), np.sort(rng.integers(0, vns, entries))
    last = Measurement(*(rng.random(entries) * 1e8 for _ in range(4)), intervals(rng, entries))
    unread = intervals(rng, entries)
    seen = evaluate_readings(ends, before, last, unread, readings, capacity_bps)
    with numpy_alone():
        plain = evaluate_readings(ends, before, last, unread, readings, capacity_bps)
    same(seen.counters, plain.counters)
    same(seen.measured, plain.measured)
    for name in MeterObservation._fields[2:]:
        np.testing.assert_array_equal(getattr(seen, name), getattr(plain, name), err_msg=name)


@given(seed=st.integers(0, 2**32 - 1), entries=st.integers(0, 200))
def test_rates_and_modified_counters_are_the_same(seed: int, entries: int) -> None:
    rng = np.random.default_rng(seed)
    before, now, capacity_bps = counters(rng, entries), columns(rng, entries), rng.random(entries) * 1e10
    rates, after = meter_rates(before, now, capacity_bps)
    rows, sent_s = rng.permutation(entries)[: entries // 2], 0.05
    modified = before.modified(rows, sent_s)
    with numpy_alone():
        same(modified, before.modified(rows, sent_s))
        plain_rates, plain_after = meter_rates(before, now, capacity_bps)
    same(rates, plain_rates)
    same(after, plain_after)


@given(seed=st.integers(0, 2**32 - 1), entries=st.integers(0, 200), columns=st.integers(0, 7), rows=st.integers(1, 9))
def test_sums_are_the_same(seed: int, entries: int, columns: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    row = rng.integers(0, rows, entries)
    row = np.sort(row) if seed % 2 else row
    added = tuple(rng.random(entries) * 10.0 ** rng.integers(0, 9, entries) for _ in range(columns))
    found = sum_by_row(row, added, rows)
    with numpy_alone():
        np.testing.assert_array_equal(found, sum_by_row(row, added, rows))


def test_what_a_switch_says_goes_to_its_entries() -> None:
    """Meters that are not asked for, and those whose counters are unavailable, leave no trace."""
    stats = np.zeros(4, METER_STATS)
    stats["byte_in_count"] = [5000, 1, COUNTER_UNAVAILABLE, 9]
    stats["band_byte_count"] = [2000, 1, 7, COUNTER_UNAVAILABLE]
    stats["duration_s"] = [1.5, 1.0, 2.5, 3.5]
    meter, switch = np.array([2, 3, NOT_LISTED, NOT_LISTED, 0], np.int32), np.zeros(5, np.int32)
    readings = ListedReadings(meter, switch, stats, np.array([3.25]), np.array([3.5]), None)
    found = readings.columns
    assert found.present.tolist() == [False] * 4 + [True]
    counted = (found.byte_in_count, found.dropped_byte_count, found.duration_s, found.received_s)
    assert [column[4] for column in counted] == [5000.0, 2000.0, 1.5, 3.25]
    assert all(np.isnan(column[:4]).all() for column in counted)
    assert found.confirmed_s[[0, 1, 4]].tolist() == [3.5] * 3
    with numpy_alone():
        same(found, ListedReadings(meter, switch, stats, np.array([3.25]), np.array([3.5]), None).columns)
