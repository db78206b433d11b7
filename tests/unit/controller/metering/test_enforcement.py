"""From granted rates to meters: what is modified, when, and to what; and what a switch then lets through."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.metering.enforcement import (
    DEADBAND_S,
    FRAME_BITS,
    MAX_REPAY,
    MAX_UNREAD_S,
    MIN_BURST_BITS,
    MIN_BURST_S,
    RESPONSIVE_BURST_S,
    RESPONSIVE_INTERVALS,
    UNRESPONSIVE_BURST_S,
    UNRESPONSIVE_INTERVALS,
    Enforcement,
    burst_for,
    enforce,
    finalize,
    to_kilo,
    update_buckets,
    whole_rates,
)
from controller.metering.measurement import Measurement
from experiments.bench.enforcement.grant_schedules import PATTERNS, grants_bps

MBIT = 1e6
INTERVAL_S = 0.055


def standing(rates_bps, *, unresponsive=False, credit_bits=None, level_bits=None):
    """Meters that were set to these rates at time 0, and are full."""
    rates_bps = np.array(rates_bps, dtype=np.float64)
    kind = np.full(len(rates_bps), unresponsive)
    bursts = burst_for(rates_bps, kind)
    zero = np.zeros(len(rates_bps))
    return Enforcement(
        limit_bps=rates_bps,
        allowed_bps=rates_bps,
        rate_kbps=to_kilo(rates_bps),
        burst_kbits=to_kilo(bursts),
        modified_s=zero,
        level_bits=bursts if level_bits is None else np.full(len(rates_bps), float(level_bits)),
        credit_bits=bursts if credit_bits is None else np.full(len(rates_bps), float(credit_bits)),
        updated_s=zero,
        unresponsive=kind,
        evidence=np.zeros(len(rates_bps), dtype=np.int16),
    )


def seen(offered_bps, dropped_bps, rows=1):
    full = [np.full(rows, float(value)) for value in (offered_bps, dropped_bps, offered_bps - dropped_bps)]
    return Measurement(*full, full[2], np.zeros(rows, dtype=np.int16))


def step(state, limits, measured, now_s, known=True):
    limits = np.atleast_1d(np.array(limits, dtype=np.float64))
    return enforce(state, limits, measured, np.where(known, now_s - state.updated_s, np.nan), now_s)


def test_a_meter_read_too_soon_is_not_modified_again_until_it_is_read():
    """... nor for longer than MAX_UNREAD_S: a switch that never tells cannot hold on to a rate."""
    state, changes = step(standing([10e6]), 5e6, seen(10e6, 0.0), 0.055)
    assert changes.rows.tolist() == [0]
    lower = np.array([1e6])
    nothing, too_soon = np.array([np.nan]), np.array([True])
    for now_s in (0.110, 0.165, 0.220):
        state, changes = enforce(state, lower, seen(5e6, 0.0), nothing, now_s, too_soon)
        assert changes.rows.tolist() == []
    _, changes = enforce(state, lower, seen(5e6, 0.0), nothing, 0.055 + MAX_UNREAD_S, too_soon)
    assert changes.rows.tolist() == [0]
    _, changes = enforce(state, lower, seen(5e6, 0.0), np.array([0.055]), 0.275 - 1e-9, np.array([False]))
    assert changes.rows.tolist() == [0]


class Switch:
    """One meter as Open vSwitch has it, and a sender who offers as much as ``offers`` says, frame by frame."""

    def __init__(self, rate_bps, burst_bits, offers):
        self.rate_bps, self.burst_bits, self.tokens = rate_bps, burst_bits, burst_bits
        self.offers = offers
        self.waiting_bits = 0.0

    def modify(self, rate_bps, burst_bits):
        self.rate_bps, self.burst_bits, self.tokens = rate_bps, burst_bits, burst_bits

    def run(self, now_s, passed_s):
        """Return what was offered and what was dropped, in bits."""
        offered = dropped = 0.0
        for slot in range(round(passed_s * 1000)):
            self.tokens = min(self.tokens + self.rate_bps / 1000, self.burst_bits)
            self.waiting_bits += self.offers(now_s + slot / 1000) / 1000
            while self.waiting_bits >= FRAME_BITS:
                self.waiting_bits -= FRAME_BITS
                offered += FRAME_BITS
                if self.tokens >= FRAME_BITS:
                    self.tokens -= FRAME_BITS
                else:
                    dropped += FRAME_BITS
        return offered, dropped


def delivered_over_granted(nominal_bps, pattern, offers, *, intervals=400, hidden=0, seed=1):
    """Enforce a schedule of grants on a switch; ``hidden`` ms in front of each modify are in no counter.

    Returns delivered over granted from the 40th interval on, modifies a second, and the most bits beyond grants and
    depth that passed from any interval on.
    """
    grants = grants_bps(pattern, nominal_bps, intervals, seed).astype(float)
    start = np.array([grants[0]])
    state = Enforcement.empty().reindexed(np.array([-1]), start, burst_for(start, np.array([False])), 0.0)
    switch = Switch(grants[0], state.burst_bits[0], offers)
    passed, beyond, modifies = [], 0.0, 0
    counted, counted_s = [0.0, 0.0], INTERVAL_S
    for number in range(1, intervals):
        now_s = number * INTERVAL_S
        offered, dropped = switch.run(now_s, INTERVAL_S - hidden / 1000)
        counted[0] += offered
        counted[1] += dropped
        rates = [bits / counted_s for bits in counted]
        seen_s = np.array([counted_s])
        state, changes = enforce(state, grants[number : number + 1], seen(*rates), seen_s, now_s)
        later = switch.run(now_s, hidden / 1000)
        passed.append(offered - dropped + later[0] - later[1])
        counted, counted_s = list(later), INTERVAL_S
        if len(changes.rows):
            switch.modify(changes.rate_bps[0], changes.burst_bits[0])
            counted, counted_s = [0.0, 0.0], INTERVAL_S - hidden / 1000
            modifies += number >= 40
        beyond = max(beyond + passed[-1] - grants[number - 1] * INTERVAL_S, 0.0)
    ratio = sum(passed[40:]) / (grants[40 : intervals - 1].sum() * INTERVAL_S)
    return ratio, modifies / ((intervals - 40) * INTERVAL_S), beyond


@given(st.lists(st.floats(0.0, 4e12), min_size=1, max_size=20))
@settings(max_examples=60)
def test_rates_are_whole_and_never_above_the_limit(rates):
    whole = whole_rates(np.array(rates))
    assert (whole % 1000 == 0).all()
    assert (whole >= 1000).all()
    assert (whole <= np.maximum(rates, 1000)).all()
    assert (whole > np.array(rates) - 1000).all()


def test_bursts_by_kind():
    rates = np.array([100 * MBIT, 100 * MBIT, 1000.0, 1000.0])
    bursts = burst_for(rates, np.array([False, True, False, True]))
    least = np.ceil(2 * MIN_BURST_BITS / 1000) * 1000
    assert bursts.tolist() == [RESPONSIVE_BURST_S * 100 * MBIT, UNRESPONSIVE_BURST_S * 100 * MBIT, least, least]


@pytest.mark.parametrize("nominal_bps", [1_000_000, 5_000_000, 50_000_000])
@pytest.mark.parametrize("pattern", list(PATTERNS))
@pytest.mark.parametrize("factor", [2, 10])
def test_a_sender_that_does_not_stop_gets_what_is_granted(nominal_bps, pattern, factor):
    ratio, modifies, _ = delivered_over_granted(nominal_bps, pattern, lambda _now_s: factor * nominal_bps)
    assert ratio == pytest.approx(1.0, abs=0.02)
    if pattern == "constant":  # what a full bucket did not take is made up for, which is seldom worth a modify
        assert modifies <= 0.1


@pytest.mark.parametrize("pattern", list(PATTERNS))
def test_what_no_counter_sees_in_front_of_a_modify_does_not_add_up(pattern):
    ratio, _, _ = delivered_over_granted(5_000_000, pattern, lambda _now_s: 30e6, hidden=5)
    assert ratio == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("pattern", list(PATTERNS))
def test_a_sender_that_pauses_after_drops_gets_what_is_granted(pattern):
    """Like TCP with one flow: a burst, then the silence of a retransmission time-out."""

    def offers(now_s):
        return 30e6 if now_s % 0.25 < 0.05 else 0.0

    ratio, _, beyond_bits = delivered_over_granted(5_000_000, pattern, offers)
    assert 0.93 < ratio < 1.02
    assert beyond_bits <= RESPONSIVE_BURST_S * 5e6 + DEADBAND_S * 5e6 + MIN_BURST_BITS


@given(st.integers(0, 2**32 - 1), st.sampled_from(["walk-1", "walk-30", "step"]))
@settings(max_examples=15)
def test_never_more_than_grants_and_one_depth(seed, pattern):
    """Whoever sends whenever it likes: the credit is never handed out twice."""
    generator = np.random.default_rng(seed)
    loads = generator.choice([0.0, 1e6, 5e6, 50e6], 100)
    ratio, _, beyond_bits = delivered_over_granted(
        5_000_000, pattern, lambda now_s: loads[int(now_s * 4) % 100], intervals=250, seed=seed
    )
    assert beyond_bits <= (RESPONSIVE_BURST_S + 2 * DEADBAND_S) * 5e6 + 2 * MIN_BURST_BITS
    assert ratio < 1.1


def test_nothing_is_sent_in_a_steady_state():
    blast = seen(90 * MBIT, 70 * MBIT, 2)
    for unresponsive, measured in ((False, seen(8 * MBIT, 1.5 * MBIT, 2)), (False, seen(0, 0, 2)), (True, blast)):
        state = standing([20 * MBIT, 7_001_000.0], unresponsive=unresponsive)
        if measured.dropped_bps.any():  # whose buckets are empty
            state = state._replace(level_bits=np.zeros(2), credit_bits=np.zeros(2))
            measured = measured._replace(passed_bps=state.rate_bps)
        for now_s in np.arange(1, 200) * INTERVAL_S:
            # Below one kb/s, a meter cannot tell the difference; what it adds up to is far below the budget.
            state, changes = step(state, [20 * MBIT + 900, 7_001_999.0], measured, now_s)
            assert len(changes.rows) == 0


def test_decreases_come_first():
    state = standing([10 * MBIT, 50 * MBIT, 10 * MBIT, 50 * MBIT])
    limits = [40 * MBIT, 10 * MBIT, 30 * MBIT, 20 * MBIT]
    quiet = seen(0, 0, 4)
    after, changes = step(state, limits, quiet, INTERVAL_S)
    assert changes.rows.tolist() == [1, 3, 0, 2]
    assert changes.rate_bps.tolist() == [limits[row] for row in (1, 3, 0, 2)]
    assert after.modified_s.tolist() == [INTERVAL_S] * 4


@pytest.mark.parametrize("unresponsive", [False, True])
def test_a_large_decrease_is_made_at_once_with_the_credit_for_its_burst(unresponsive):
    state = standing([100 * MBIT], unresponsive=unresponsive, level_bits=0.0, credit_bits=0.0)
    after, changes = step(state, 10 * MBIT, seen(300 * MBIT, 200 * MBIT), INTERVAL_S)
    assert changes.burst_bits.tolist() == [max(np.ceil(MIN_BURST_BITS / 1000) * 1000, MIN_BURST_S * 10 * MBIT)]
    assert (1 - MAX_REPAY) * 10 * MBIT <= changes.rate_bps[0] < 10 * MBIT  # three frames are taken back
    assert after.level_bits.tolist() == changes.burst_bits.tolist()


def test_a_saved_up_credit_is_at_most_a_burst_of_the_new_grant():
    state = standing([100 * MBIT])
    _, changes = step(state, 10 * MBIT, seen(0, 0), INTERVAL_S)
    assert changes.burst_bits.tolist() == [RESPONSIVE_BURST_S * 10 * MBIT]
    assert changes.rate_bps.tolist() == [10 * MBIT]


def test_who_forfeits_its_savings_is_held_to_the_grant_at_once():
    state = standing([100 * MBIT, 100 * MBIT]).forfeited(np.array([1]))
    _, changes = step(state, [50 * MBIT, 50 * MBIT], seen(120 * MBIT, 0, rows=2), INTERVAL_S)
    assert changes.burst_bits.tolist() == [RESPONSIVE_BURST_S * 50 * MBIT, MIN_BURST_S * 50 * MBIT]
    assert changes.rate_bps[1] < changes.rate_bps[0] == 50 * MBIT  # what it sent above its rate is taken back
    in_debt = standing([100 * MBIT], credit_bits=-5 * MBIT)  # which is not forfeited
    assert in_debt.forfeited(np.array([0])).credit_bits.tolist() == [-5 * MBIT]


@pytest.mark.parametrize("unresponsive", [False, True])
def test_small_changes_wait_until_they_add_up(unresponsive):
    state = standing([50 * MBIT], unresponsive=unresponsive, level_bits=0.0, credit_bits=0.0)
    limit_bps, sent_s = 49 * MBIT, []
    for number in range(1, 80):
        passing = seen(60 * MBIT, 60 * MBIT - state.rate_bps[0])
        state, changes = step(state, limit_bps, passing, number * INTERVAL_S)
        if len(changes.rows):
            sent_s.append(number * INTERVAL_S)
    due_s = DEADBAND_S * limit_bps / 1e6
    assert sent_s[0] == pytest.approx(due_s, abs=1.5 * INTERVAL_S)
    assert len(sent_s) <= 2  # the second takes back the lower rate that made up for the wait


def test_a_modify_that_gives_more_than_it_saves_is_not_made():
    """Too much was let through, but the rate is as low already as it would be set: the bucket need not be filled."""
    state = standing([0.6 * MBIT], unresponsive=True, level_bits=0.0, credit_bits=-120_000.0)
    state = state._replace(limit_bps=np.array([1 * MBIT]))
    assert len(step(state, 1 * MBIT, seen(2 * MBIT, 1.4 * MBIT), INTERVAL_S)[1].rows) == 0
    state = state._replace(rate_kbps=to_kilo(np.array([1 * MBIT])))
    assert len(step(state, 1 * MBIT, seen(2 * MBIT, 1 * MBIT), INTERVAL_S)[1].rows) == 1


def test_where_nothing_is_known_no_bucket_is_filled_again():
    """A switch that is too busy to tell its counters is too busy for any more of them."""
    state = standing([10 * MBIT])
    for number in range(1, 10):
        state, changes = step(state, (5 if number % 2 else 10) * MBIT, seen(0, 0), number * INTERVAL_S, known=False)
        assert (changes.burst_bits <= np.ceil(max(MIN_BURST_BITS, MIN_BURST_S * 10 * MBIT) / 1000) * 1000).all()
    assert state.modified_s[0] > 0.0


def test_a_new_meter_is_lowered_before_anything_is_known_of_it():
    state = standing([25 * MBIT])
    after, changes = step(state, 1 * MBIT, seen(0, 0), INTERVAL_S, known=False)
    assert len(changes.rows) == 1
    assert after.credit_bits[0] == pytest.approx(0.0, abs=INTERVAL_S * 25 * MBIT)  # it owes nothing for that


def test_drops_say_that_the_bucket_was_empty():
    """What it should hold beyond that, a shallow one lost, which it gets back; from a deep one it passed unseen."""
    for unresponsive, most_bits in ((False, INTERVAL_S * 10 * MBIT + FRAME_BITS), (True, FRAME_BITS)):
        saved = 5e4 if unresponsive else 1e6
        state = standing([10 * MBIT], level_bits=saved, credit_bits=saved)._replace(modified_s=np.array([-1.0]))
        elapsed_s = np.array([INTERVAL_S])
        level, credit = update_buckets(state, seen(9 * MBIT, 1 * MBIT), elapsed_s, np.array([unresponsive]), elapsed_s)
        assert level.tolist() == [most_bits]
        missing = 0.0 if unresponsive else saved + 2 * MBIT * INTERVAL_S - most_bits
        assert credit == pytest.approx(saved + 2 * MBIT * INTERVAL_S - missing)


@pytest.mark.parametrize(("dropped", "unseen_bps"), [(0, 30 * MBIT), (1 * MBIT, 10 * MBIT)])
def test_what_passed_in_front_of_a_modify_was_as_much_as_behind_it(dropped, unseen_bps):
    """... of a sender that the meter holds back no more than its rate; and not out of the bucket that was set then."""
    state = standing([10 * MBIT], level_bits=1.1e6, credit_bits=1e6)
    seen_s, unseen_s, elapsed_s = np.array([0.045]), 0.010, np.array([0.055])
    measured = seen(30 * MBIT + dropped, dropped)
    level, credit = update_buckets(state, measured, seen_s, np.array([False]), elapsed_s)
    assert credit == pytest.approx(1e6 + 10 * MBIT * 0.055 - 30 * MBIT * 0.045 - unseen_bps * unseen_s)
    assert level == pytest.approx(1.1e6 + (10 - 30) * MBIT * 0.045)


def test_what_counts_ahead_of_a_meter_does_not_say_what_passed_it():
    """Flow entries, where meters do not count: 0.5 s old, and without drops."""
    state = standing([10 * MBIT], level_bits=0.0, credit_bits=1e5)._replace(modified_s=np.array([-1.0]))
    span_s = np.array([0.5])
    level, credit = update_buckets(state, seen(60 * MBIT, 0), span_s, np.array([False]), span_s)
    assert level.tolist() == [0.0]
    assert credit == pytest.approx(1e5)  # granted, filled and passed 10 Mb/s
    state = state._replace(modified_s=np.array([0.1]))
    _, credit = update_buckets(state, seen(60 * MBIT, 0), np.array([0.4]), np.array([False]), span_s)
    assert credit == pytest.approx(1e5)


def test_a_reading_after_one_that_was_missed_covers_both():
    state = standing([10 * MBIT], level_bits=0.0, credit_bits=0.0)._replace(modified_s=np.array([-1.0]))
    limits, passing = np.array([10 * MBIT]), seen(10 * MBIT, 0)
    state, changes = enforce(state, limits, passing, np.array([np.nan]), INTERVAL_S)
    assert (state.updated_s.tolist(), len(changes.rows)) == ([0.0], 0)
    state, changes = enforce(state, limits, passing, np.array([2 * INTERVAL_S]), 2 * INTERVAL_S)
    assert state.credit_bits == pytest.approx(0.0, abs=1e-6)
    assert (state.updated_s.tolist(), len(changes.rows)) == ([2 * INTERVAL_S], 0)


def test_who_does_not_respond_is_found_out():
    state = standing([100 * MBIT])
    for number in range(1, UNRESPONSIVE_INTERVALS + 1):
        state, _ = step(state, 100 * MBIT, seen(300 * MBIT, 200 * MBIT), number * INTERVAL_S)
        assert state.unresponsive[0] == (number == UNRESPONSIVE_INTERVALS)


def test_a_deep_bucket_is_taken_from_who_does_not_respond():
    """Or it could send a whole burst whenever it has paused for so long."""
    state, sent = standing([50 * MBIT], level_bits=0.0, credit_bits=0.0), []
    for number in range(1, 2 * UNRESPONSIVE_INTERVALS):
        state, changes = step(state, 50 * MBIT, seen(100 * MBIT, 50 * MBIT), number * INTERVAL_S)
        sent += changes.burst_bits.tolist()
        if number < UNRESPONSIVE_INTERVALS:
            assert sent == []
    assert sent[0] == MIN_BURST_S * 50 * MBIT
    assert max(sent) <= UNRESPONSIVE_BURST_S * 50 * MBIT
    assert len(sent) <= 2


def test_one_interval_without_evidence_starts_the_count_anew():
    state = standing([100 * MBIT])
    for number in range(1, 5 * UNRESPONSIVE_INTERVALS):
        part = seen(100 * MBIT, 20 * MBIT)
        measured = part if number % UNRESPONSIVE_INTERVALS == 0 else seen(300 * MBIT, 200 * MBIT)
        state, _ = step(state, 100 * MBIT, measured, number * INTERVAL_S)
        assert not state.unresponsive.any()


def test_who_responds_gets_its_burst_back():
    """Even when its rate stays the same, as when a pair's UDP gives way to TCP that does not use it all."""
    state = standing([100 * MBIT], unresponsive=True)
    for number in range(1, RESPONSIVE_INTERVALS + 10):
        state, _ = step(state, 100 * MBIT, seen(90 * MBIT, 0), number * INTERVAL_S)
    assert not state.unresponsive.any()
    wanted_bits = RESPONSIVE_BURST_S * 100 * MBIT
    for number in range(RESPONSIVE_INTERVALS + 10, RESPONSIVE_INTERVALS + 100):
        state, _ = step(state, 100 * MBIT, seen(90 * MBIT, 0), number * INTERVAL_S)
    assert wanted_bits - DEADBAND_S * 100 * MBIT <= state.burst_bits[0] <= wanted_bits


def test_a_meter_that_was_found_is_left_as_it_stands():
    rates = np.array([50 * MBIT, 50 * MBIT])
    bursts = burst_for(rates, np.array([True, False]))
    state = Enforcement.empty().reindexed(np.array([-1, -1]), rates, bursts, 3.0, full=False)
    assert len(step(state, rates, seen(99 * MBIT, 49 * MBIT, 2), 3.0 + INTERVAL_S)[1].rows) == 0


@given(
    st.lists(st.tuples(st.floats(1e3, 1e9), st.floats(1e3, 1e9), st.booleans()), min_size=1, max_size=8),
    st.floats(0.01, 3.0),
    st.floats(0.0, 2e9),
    st.booleans(),
)
def test_what_is_sent_is_what_stands(rows, waited_s, offered_bps, known):
    rates = [float(whole_rates(np.array([row[0]]))[0]) for row in rows]
    parts = [standing([rate], unresponsive=row[2]) for rate, row in zip(rates, rows, strict=True)]
    before = Enforcement(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    limits = np.array([row[1] for row in rows])
    measured = seen(offered_bps, offered_bps / 2, len(rows))
    after, changes = step(before, limits, measured, waited_s, known)
    kept = np.ones(len(rows), dtype=bool)
    kept[changes.rows] = False
    assert after.rate_bps[changes.rows].tolist() == changes.rate_bps.tolist()
    assert after.burst_bits[changes.rows].tolist() == changes.burst_bits.tolist()
    assert (after.rate_bps[kept] == before.rate_bps[kept]).all()
    assert (after.rate_bps[~kept] <= np.maximum(limits[~kept], 1000.0)).all()
    assert (changes.rate_bps % 1000 == 0).all()
    assert (changes.burst_bits % 1000 == 0).all()
    assert (changes.burst_bits >= MIN_BURST_BITS).all()
    rises = (after.rate_bps > before.rate_bps)[changes.rows]
    assert (np.diff(rises.astype(int)) >= 0).all()


def test_settling_leaves_exact_rates_and_nothing_to_do():
    state, generator = standing([50 * MBIT, 20 * MBIT], unresponsive=True), np.random.default_rng(4)
    for number in range(1, 20):
        limits = generator.uniform(30, 60, 2) * MBIT
        state, _ = step(state, limits, seen(200 * MBIT, 150 * MBIT, 2), number * INTERVAL_S)
    assert (state.rate_bps != state.limit_bps).any()
    state, changes = finalize(state, 2.0)
    assert state.rate_bps.tolist() == whole_rates(state.limit_bps).tolist()
    assert (state.burst_bits >= burst_for(state.rate_bps, state.unresponsive)).all()
    assert changes.rate_bps.tolist() == state.rate_bps[changes.rows].tolist()
    assert len(finalize(state, 2.1)[1].rows) == 0
