"""The compiled forms of measuring, enforcement and accounts give the same bits as their numpy forms."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.native_comparison import names, numpy_alone, same

from controller.columns import MAX_COUNTED
from controller.metering import measurement_native
from controller.metering.counters import NOT_LISTED, ListedReadings, MeterCounters, MeterReadings, meter_rates
from controller.metering.enforcement import (
    MAX_UNREAD_S,
    MIN_BURST_BITS,
    RATE_STEP_BPS,
    RESPONSIVE_DROP,
    UNRESPONSIVE_DROP,
    Enforcement,
    burst_for,
    enforce,
    passed_bits_by,
    to_kilo,
    whole_rates,
)
from controller.metering.guarantees import Guarantees
from controller.metering.measurement import Measurement, MeterObservation, evaluate_readings, sum_by_row
from controller.metering.receive_budgets import ReceiveBudgets, RemainingBudget
from controller.metering.send_limit_meters import SendLimitMeters
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.meters import METER_STATS

pytestmark = pytest.mark.skipif(
    measurement_native.library is None, reason="no C compiler was there when it was installed"
)


def rates(rng: np.random.Generator, entries: int) -> np.ndarray:
    """Rates from a kilobit to a gigabit, one in ten of them nothing."""
    return np.where(rng.random(entries) < 0.1, 0.0, 10.0 ** rng.uniform(3.0, 9.0, entries))


def enforcement(rng: np.random.Generator, entries: int, now_s: float) -> Enforcement:
    """Meters in any state: modified since they were read or not, full or empty, in credit or in debt.

    Some are just twice as deep as they are to be for senders that do not respond.
    """
    bits = [rates(rng, entries) * 0.3 for _ in range(3)]
    bits[2] *= rng.choice([-1.0, 1.0], entries)
    modified_s, updated_s = (now_s - rng.choice([0.0, 0.055, 0.11, MAX_UNREAD_S, 0.3], entries) for _ in range(2))
    granted_bps = (rates(rng, entries) + 1e3, rates(rng, entries))
    deepest_bits = 2.0 * burst_for(whole_rates(granted_bps[0]), np.ones(entries, dtype=np.bool_))
    burst_bits = np.where(rng.random(entries) < 0.1, deepest_bits, np.ceil(bits[0] / RATE_STEP_BPS) * RATE_STEP_BPS)
    settings = to_kilo(rates(rng, entries) + 1e3), to_kilo(burst_bits)
    evidence = rng.choice([*range(-25, 25), -MAX_COUNTED, MAX_COUNTED], entries).astype(np.int16)
    judged = (rng.random(entries) < 0.3, evidence)
    return Enforcement(*granted_bps, *settings, modified_s, *bits[1:], updated_s, *judged)


def measurement(rng: np.random.Generator, entries: int) -> Measurement:
    """Senders that send more or less than before, or nothing; of some, some, all or just a threshold is dropped."""
    offered_bps, smoothed_bps = rates(rng, entries), rates(rng, entries)
    dropped_bps = offered_bps * rng.choice([0.0, 0.05, RESPONSIVE_DROP, UNRESPONSIVE_DROP, 0.5, 1.0], entries)
    silent = rng.integers(0, 20, entries, dtype=np.int16)
    return Measurement(offered_bps, dropped_bps, offered_bps - dropped_bps, smoothed_bps, silent)


@given(
    seed=st.integers(0, 2**32 - 1),
    entries=st.integers(0, 200),
    receivers=st.integers(1, 20),
    bounded=st.booleans(),
    large=st.booleans(),
)
def test_meters_and_accounts_are_the_same(seed: int, entries: int, receivers: int, bounded: bool, large: bool) -> None:
    rng, now_s = np.random.default_rng(seed), 0.0  # so that what is so long ago is that to the bit
    before, measured = enforcement(rng, entries, now_s), measurement(rng, entries)
    limit_bps = np.where(rng.random(entries) < 0.3, before.limit_bps, rates(rng, entries))
    seen_s = np.where(rng.random(entries) < 0.2, np.nan, rng.choice([0.02, 0.055, 0.11], entries))
    too_soon = rng.random(entries) < 0.1 if bounded else None
    receiver = np.sort(rng.integers(0, receivers, entries))
    free_bits = rng.normal(0.0, 1e8, (3, receivers))
    saved_bits, lasting_bits = rng.normal(0.0, 1e7, (2, receivers))
    rooms = RemainingBudget(rates(rng, receivers), np.array([0.063, 0.5, 1.0]), free_bits, saved_bits, lasting_bits)
    min_burst_bits = np.maximum(MIN_BURST_BITS, 10.0 ** rng.uniform(4.0, 6.5, entries)) if large else None
    shared = (rooms, receiver) if bounded else (None, None)
    arguments = (before, limit_bps, measured, seen_s, now_s, too_soon, *shared, min_burst_bits)
    after, changes = enforce(*arguments)
    taken_bits = passed_bits_by(before, measured, seen_s, now_s, receiver, receivers)
    with numpy_alone():
        plain_after, plain_changes = enforce(*arguments)
        plain_bits = passed_bits_by(before, measured, seen_s, now_s, receiver, receivers)
    same(after, plain_after)
    same(changes, plain_changes)
    np.testing.assert_array_equal(taken_bits, plain_bits)


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


@given(seed=st.integers(0, 2**32 - 1), vns=st.integers(0, 300))
def test_readings_where_they_are_listed_show_the_same_compiled(seed: int, vns: int) -> None:
    rng = np.random.default_rng(seed)
    meters, capacity_bps = SendLimitMeters.initial(vns), rng.random(vns) * 1e9
    stats = np.zeros(vns, METER_STATS)
    for interval in range(6):
        stats["duration_s"] += rng.choice([0.001, 0.055, -0.01], vns, p=[0.1, 0.8, 0.1])
        for name in ("byte_in_count", "band_byte_count"):
            stats[name] += rng.integers(0, 10**6, vns).astype(np.uint64)
            unknown = np.where(rng.random(vns) < 0.1, COUNTER_UNAVAILABLE, stats[name])
            shown = stats.copy()
            shown[name] = unknown
        meter = np.where(rng.random(vns) < 0.1, NOT_LISTED, rng.permutation(vns)).astype(np.int32)
        switch = rng.integers(0, 2, vns).astype(np.int32)
        came_s, done_s = np.full(2, 1.0 + 0.055 * interval), np.array([1.0 + 0.055 * interval - 0.03, np.nan])
        after = meters.updated(ListedReadings(meter, switch, shown, came_s, done_s, None), capacity_bps)
        with numpy_alone():
            meters = meters.updated(ListedReadings(meter, switch, shown, came_s, done_s, None), capacity_bps)
        same(after.counters, meters.counters)
        assert after.offered_bps.tobytes() == meters.offered_bps.tobytes()
        assert after.dropped_bps.tobytes() == meters.dropped_bps.tobytes()
        meters = meters.modified(np.flatnonzero(rng.random(vns) < 0.2), 1.0 + 0.055 * interval)


@pytest.mark.parametrize("vns", [1, 7, 256, 600])
@pytest.mark.parametrize("seed", range(4))
def test_rooms_have_the_bits_of_their_numpy_form(vns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    accounts, now_s, limit_bps = ReceiveBudgets.initial(vns), 0.0, rng.uniform(1e6, 1e10, vns)
    limit_bps[rng.random(vns) < 0.2] = 1e15
    for _ in range(60):  # slots fill up, are old after a pause, and some are longer than others
        now_s += float(rng.choice([0.011, 0.055, 0.13, 1.4], p=[0.3, 0.5, 0.15, 0.05]))
        received_bits, counted_bps = rng.uniform(0.0, 2.0, vns) * limit_bps * 0.055, limit_bps * (rng.random(vns) < 0.9)
        dropped_bps = rng.uniform(0.0, 1.5, vns) * limit_bps
        said = received_bits, dropped_bps, counted_bps, limit_bps, now_s
        after, compiled = accounts.received(*said)
        with numpy_alone():
            accounts, plain = accounts.received(*said)
        for one, other in ((compiled, plain), (after, accounts)):
            for name in names(one):
                assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name


@given(seed=st.integers(0, 2**32 - 1), vns=st.integers(0, 600))
def test_how_vns_fare_has_the_bits_of_its_numpy_form(seed: int, vns: int) -> None:
    rng = np.random.default_rng(seed)
    state, limit_bps = Guarantees.initial(vns), rng.uniform(1e6, 1e9, vns)
    for _ in range(30):
        offered_bps = rng.choice([0.0, 500.0, 1e6, 1e9], vns)
        received_bps = offered_bps * rng.choice([0.5, 0.96, 1.0], vns)
        said = offered_bps, received_bps, limit_bps, 0.5
        compiled = state.updated(*said)
        assert (compiled.violated is state.violated) == np.array_equal(compiled.violated, state.violated)
        with numpy_alone():
            state = state.updated(*said)
        same(compiled, state)
