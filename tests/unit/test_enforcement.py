"""From granted rates to meters: what is modified, when, and to what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.enforcement import (
    GIFT_BUDGET,
    MIN_BURST_BITS,
    RESPONSIVE_BURST_S,
    RESPONSIVE_HYSTERESIS,
    RESPONSIVE_INTERVALS,
    SETTLE_S,
    UNRESPONSIVE_BURST_S,
    UNRESPONSIVE_HYSTERESIS,
    UNRESPONSIVE_INTERVALS,
    Enforcement,
    burst_for,
    enforce,
    settle,
    whole_rates,
)
from controller.measurement import Measurement

MBIT = 1e6


def standing(rates_bps, *, at_s=0.0, unresponsive=False):
    """Meters that were set to these rates at ``at_s``."""
    rates_bps = np.array(rates_bps, dtype=np.float64)
    kind = np.full(len(rates_bps), unresponsive)
    return Enforcement(
        limit_bps=rates_bps,
        rate_bps=rates_bps,
        burst_bits=burst_for(rates_bps, kind),
        modified_s=np.full(len(rates_bps), at_s),
        unresponsive=kind,
        evidence=np.zeros(len(rates_bps), dtype=np.int64),
    )


def seen(offered_bps, dropped_bps, rows=1):
    full = [np.full(rows, float(value)) for value in (offered_bps, dropped_bps, offered_bps - dropped_bps)]
    return Measurement(*full, full[2], np.zeros(rows, dtype=np.int64))


QUIET = seen(1 * MBIT, 0.0)
PART = seen(100 * MBIT, 20 * MBIT)  # dropped between the two bounds: no evidence either way


def quiet(rows):
    return seen(1 * MBIT, 0.0, rows)


@given(st.lists(st.floats(0.0, 4e12), min_size=1, max_size=20))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_rates_are_whole_and_never_above_the_limit(rates):
    whole = whole_rates(np.array(rates))
    assert (whole % 1000 == 0).all()
    assert (whole >= 1000).all()
    assert (whole <= np.maximum(rates, 1000)).all()
    assert (whole > np.array(rates) - 1000).all()


def test_bursts_by_kind():
    rates = np.array([100 * MBIT, 100 * MBIT, 1000.0, 1000.0])
    bursts = burst_for(rates, np.array([False, True, False, True]))
    least = np.ceil(MIN_BURST_BITS / 1000) * 1000
    assert bursts.tolist() == [RESPONSIVE_BURST_S * 100 * MBIT, UNRESPONSIVE_BURST_S * 100 * MBIT, least, least]
    assert least >= 2 * 8 * 1518  # a bucket that holds less than a frame passes nothing


@pytest.mark.parametrize("unresponsive", [False, True])
def test_nothing_is_sent_in_a_steady_state(unresponsive):
    state = standing([20 * MBIT, 7_001_000.0], unresponsive=unresponsive)
    for now_s in np.arange(1, 200) * 0.055:
        # Below one kb/s, a meter cannot tell the difference.
        state, changes = enforce(state, np.array([20 * MBIT + 900, 7_001_999.0]), seen(8 * MBIT, 1.5 * MBIT, 2), now_s)
        assert len(changes.rows) == 0


def test_decreases_come_first():
    state = standing([10 * MBIT, 50 * MBIT, 10 * MBIT, 50 * MBIT])
    limits = np.array([40 * MBIT, 10 * MBIT, 30 * MBIT, 20 * MBIT])
    after, changes = enforce(state, limits, quiet(4), 1.0)
    assert changes.rows.tolist() == [1, 3, 0, 2]
    assert changes.rate_bps.tolist() == limits[[1, 3, 0, 2]].tolist()
    assert after.rate_bps.tolist() == limits.tolist()
    assert after.modified_s.tolist() == [1.0] * 4


def test_a_responsive_sender_is_raised_once_in_a_burst_time():
    state = standing([10 * MBIT])
    limit = np.array([20 * MBIT])
    assert len(enforce(state, limit, QUIET, RESPONSIVE_BURST_S - 0.01)[1].rows) == 0
    assert len(enforce(state, limit, QUIET, RESPONSIVE_BURST_S)[1].rows) == 1


def test_a_large_decrease_does_not_wait():
    """Waiting 145 ms more at 400 Mb/s lets 58 Mb through; a meter refilled for 80 Mb/s 16 Mb and 12 Mb."""
    state = standing([400 * MBIT])
    _, changes = enforce(state, np.array([80 * MBIT]), QUIET, 0.055)
    assert changes.rate_bps.tolist() == [80 * MBIT]
    # From 100 to 80 Mb/s the refill would give more than it saves.
    assert len(enforce(standing([100 * MBIT]), np.array([80 * MBIT]), QUIET, 0.055)[1].rows) == 0


@pytest.mark.parametrize(
    ("unresponsive", "hysteresis"), [(False, RESPONSIVE_HYSTERESIS), (True, UNRESPONSIVE_HYSTERESIS)]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_hysteresis(unresponsive, hysteresis, sign):
    state = standing([100 * MBIT], unresponsive=unresponsive)
    now_s = RESPONSIVE_BURST_S if not unresponsive else 0.055

    def sent(part):
        return len(enforce(state, np.array([100 * MBIT * (1 + sign * part)]), PART, now_s)[1].rows)

    assert sent(hysteresis * 0.9) == 0
    assert sent(hysteresis * 1.1) == 1


@pytest.mark.parametrize(("unresponsive", "burst_s"), [(False, RESPONSIVE_BURST_S), (True, UNRESPONSIVE_BURST_S)])
def test_a_small_change_waits_until_its_gift_is_small_or_it_settles(unresponsive, burst_s):
    state = standing([100 * MBIT], unresponsive=unresponsive)
    limit, due_s = np.array([101 * MBIT]), min(burst_s / GIFT_BUDGET, SETTLE_S)
    assert len(enforce(state, limit, PART, due_s * 0.98)[1].rows) == 0
    after, changes = enforce(state, limit, PART, due_s * 1.02)
    assert changes.rows.tolist() == [0]
    if due_s == SETTLE_S:
        assert after.rate_bps.tolist() == [101 * MBIT]


def test_frequent_changes_let_through_what_was_granted():
    """Every modify gives a burst: with one every interval, rate and gifts together are the grant, or hardly more."""
    state, interval_s, passed, granted = standing([50 * MBIT], unresponsive=True), 0.055, 0.0, 0.0
    generator = np.random.default_rng(5)
    for number in range(1, 200):
        limit = np.array([generator.uniform(30, 60) * MBIT])
        state, changes = enforce(state, limit, seen(200 * MBIT, 150 * MBIT), number * interval_s)
        passed += state.rate_bps[0] * interval_s + changes.burst_bits.sum()
        granted += limit[0] * interval_s
    assert 0.95 < passed / granted < 1.02


def test_who_does_not_respond_is_found_out_and_loses_its_burst():
    state, now_s = standing([100 * MBIT]), 0.0
    for number in range(1, UNRESPONSIVE_INTERVALS + 1):
        now_s += 0.055
        state, changes = enforce(state, np.array([100 * MBIT]), seen(300 * MBIT, 200 * MBIT), now_s)
        assert (len(changes.rows) == 1) == (number == UNRESPONSIVE_INTERVALS)
    assert state.unresponsive.tolist() == [True]
    assert changes.burst_bits.tolist() == [UNRESPONSIVE_BURST_S * 100 * MBIT]


def test_one_interval_without_evidence_starts_the_count_anew():
    state = standing([100 * MBIT])
    for number in range(20):
        measured = PART if number % UNRESPONSIVE_INTERVALS == 0 else seen(300 * MBIT, 200 * MBIT)
        state, _ = enforce(state, np.array([100 * MBIT]), measured, number * 0.055)
        assert not state.unresponsive.any()


def test_who_responds_gets_its_burst_back():
    """Even when its rate stays the same, as when a pair's UDP gives way to TCP."""
    state, now_s, sent = standing([100 * MBIT], unresponsive=True), 0.0, []
    for _ in range(RESPONSIVE_INTERVALS + int(SETTLE_S / 0.055) + 1):
        now_s += 0.055
        state, changes = enforce(state, np.array([100 * MBIT]), seen(99 * MBIT, 1 * MBIT), now_s)
        sent += changes.burst_bits.tolist()
    assert not state.unresponsive.any()
    assert sent == [RESPONSIVE_BURST_S * 100 * MBIT]


def test_a_meter_found_with_a_small_burst_is_an_unresponsive_senders():
    rates = np.array([50 * MBIT, 50 * MBIT])
    bursts = burst_for(rates, np.array([True, False]))
    state = Enforcement.none().carried(np.array([-1, -1]), rates, bursts, 3.0)
    assert state.unresponsive.tolist() == [True, False]
    assert len(enforce(state, rates, seen(99 * MBIT, 20 * MBIT, 2), 9.0)[1].rows) == 0


@given(
    st.lists(st.tuples(st.floats(1e3, 1e9), st.floats(1e3, 1e9), st.booleans()), min_size=1, max_size=8),
    st.floats(0.01, 3.0),
)
@settings(derandomize=True, deadline=None, max_examples=100)
def test_what_is_sent_is_what_stands(rows, waited_s):
    before = standing([float(whole_rates(np.array([row[0]]))[0]) for row in rows])
    before = Enforcement(
        before.limit_bps,
        before.rate_bps,
        burst_for(before.rate_bps, np.array([row[2] for row in rows])),
        before.modified_s,
        np.array([row[2] for row in rows]),
        before.evidence,
    )
    limits = np.array([row[1] for row in rows])
    after, changes = enforce(before, limits, quiet(len(rows)), waited_s)
    kept = np.ones(len(rows), dtype=bool)
    kept[changes.rows] = False
    assert after.rate_bps[changes.rows].tolist() == changes.rate_bps.tolist()
    assert after.burst_bits[changes.rows].tolist() == changes.burst_bits.tolist()
    assert (after.rate_bps[kept] == before.rate_bps[kept]).all()
    assert (after.rate_bps[~kept] <= np.maximum(limits[~kept], 1000.0)).all()
    assert (changes.burst_bits >= MIN_BURST_BITS).all()
    rises = after.limit_bps[changes.rows] > before.limit_bps[changes.rows]
    assert (np.diff(rises.astype(int)) >= 0).all()
    # Whatever was left waiting is set right in the end.
    settled, _ = enforce(after, limits, quiet(len(rows)), waited_s + 2 * SETTLE_S)
    assert settled.rate_bps.tolist() == whole_rates(limits).tolist()


def test_settling_leaves_exact_rates_and_nothing_to_do():
    state, generator = standing([50 * MBIT, 20 * MBIT], unresponsive=True), np.random.default_rng(4)
    for number in range(1, 20):
        limits = generator.uniform(30, 60, 2) * MBIT
        state, _ = enforce(state, limits, seen(200 * MBIT, 150 * MBIT, 2), number * 0.055)
    assert (state.rate_bps < state.limit_bps).any()  # lowered, to make up for refills
    state, changes = settle(state, 2.0)
    assert state.rate_bps.tolist() == state.limit_bps.tolist()
    assert changes.rate_bps.tolist() == state.limit_bps[changes.rows].tolist()
    assert len(settle(state, 2.1)[1].rows) == 0
