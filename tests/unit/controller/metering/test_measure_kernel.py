"""The compiled form of measuring gives the same bits as the numpy form, whatever the counters say."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels import numpy_alone, same

from controller.compiled import load
from controller.metering import measure_kernel
from controller.metering.counters import MeterCounters, MeterReadings, meter_rates
from controller.metering.measurement import Measurement, measure, sums_by
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.meters import METER_STATS

pytestmark = pytest.mark.skipif(measure_kernel.library is None, reason="no C compiler was there when it was installed")


def counts(rng: np.random.Generator, entries: int) -> np.ndarray:
    """Counters, one in ten of them unknown."""
    return np.where(rng.random(entries) < 0.1, np.nan, rng.integers(0, 10**9, entries).astype(np.float64))


def times(rng: np.random.Generator, entries: int) -> np.ndarray:
    """Durations that are often hardly apart or in the wrong order, one in ten of them unknown."""
    return np.where(rng.random(entries) < 0.1, np.nan, np.round(rng.random(entries) * 0.1, 3))


@given(seed=st.integers(0, 2**32 - 1), entries=st.integers(0, 200))
def test_rates_and_measurement_are_the_same(seed: int, entries: int) -> None:
    rng = np.random.default_rng(seed)
    before = MeterCounters(*(make(rng, entries) for make in (counts, counts, times, times, times)))
    columns = {field.name: times(rng, entries) for field in fields(MeterReadings)}
    counted = {name: counts(rng, entries) for name in ("byte_in_count", "dropped_byte_count")}
    now = MeterReadings(**{**columns, **counted, "present": rng.random(entries) < 0.9})
    capacity_bps = rng.random(entries) * 1e10
    last = Measurement(*(rng.random(entries) * 1e8 for _ in range(4)), rng.integers(0, 20, entries))
    rates, counters = meter_rates(before, now, capacity_bps)
    measured = measure(last, rates)
    rows, sent_s = rng.permutation(entries)[: entries // 2], 0.05
    modified = before.modified(rows, sent_s)
    with numpy_alone():
        same(modified, before.modified(rows, sent_s))
        plain_rates, plain_counters = meter_rates(before, now, capacity_bps)
        same(measured, measure(last, plain_rates))
    same(rates, plain_rates)
    same(counters, plain_counters)


@given(seed=st.integers(0, 2**32 - 1), entries=st.integers(0, 200), columns=st.integers(0, 7), rows=st.integers(1, 9))
def test_sums_are_the_same(seed: int, entries: int, columns: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    row = rng.integers(0, rows, entries)
    row = np.sort(row) if seed % 2 else row
    added = tuple(rng.random(entries) * 10.0 ** rng.integers(0, 9, entries) for _ in range(columns))
    found = sums_by(row, added, rows)
    with numpy_alone():
        np.testing.assert_array_equal(found, sums_by(row, added, rows))


def test_what_a_switch_says_goes_to_its_entries() -> None:
    """Meters that are not asked for, and those whose counters are unavailable, leave no trace."""
    stats = np.zeros(4, METER_STATS)
    stats["byte_in_count"] = [5000, 1, COUNTER_UNAVAILABLE, 9]
    stats["band_byte_count"] = [2000, 1, 7, COUNTER_UNAVAILABLE]
    stats["duration_s"] = [1.5, 1.0, 2.5, 3.5]
    meter, switch = np.array([2, 3, -1, -1, 0], np.int32), np.zeros(5, np.int32)
    columns, present = measure_kernel.read(meter, switch, stats, (np.array([3.25]), np.array([3.5])), None)
    assert present.tolist() == [False] * 4 + [True]
    assert [column[4] for column in columns] == [5000.0, 2000.0, 1.5, 3.25, 3.5]
    assert all(np.isnan(column[:4]).all() for column in columns[:4])
    assert columns[4][[0, 1]].tolist() == [3.5, 3.5]


def test_a_library_that_was_built_of_other_sources_is_not_used() -> None:
    folder = Path(measure_kernel.__file__).parent
    assert load(folder, "_measure", {"dets_watch": ""}) is not None
    assert load(folder, "_measure", {"dets_watch": "", "dets_new": "i"}) is None
