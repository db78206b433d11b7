"""Rates from counters: what is not known is unknown, and never zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.metering.counters import MIN_ELAPSED_S, PLAUSIBLE_LOAD, MeterCounters, MeterReadings, meter_rates

CAPACITY = np.array([100e6])
NEW = np.array([-1])


def reading(bits, dropped_bits=0.0, *, at_s, received_s=None, present=True):
    received_s = at_s if received_s is None else received_s
    columns = (np.array([float(value)]) for value in (bits / 8, dropped_bits / 8, at_s, received_s))
    return MeterReadings(*columns, np.array([present]), np.array([np.nan]))


def read(before, *args, **kwargs):
    rates, after = meter_rates(before, reading(*args, **kwargs), CAPACITY)
    return rates.offered_bps[0], rates.dropped_bps[0], rates.passed_bps[0], bool(rates.implausible[0]), after


def known(bits=8e6, dropped_bits=0.0, at_s=10.0, received_s=None):
    """Counters after a first reading."""
    return read(MeterCounters.initial(1), bits, dropped_bits, at_s=at_s, received_s=received_s)[4]


def test_difference_over_the_switchs_own_time():
    # The controller's clock says 1 s, the meter's 100 ms: the meter's counts.
    offered, dropped, passed, implausible, _ = read(known(8e6, 1e6), 9e6, 1.25e6, at_s=10.1, received_s=11.0)
    assert (offered, dropped, passed) == pytest.approx((10e6, 2.5e6, 7.5e6))
    assert not implausible


def test_the_first_reading_of_a_standing_meter_is_unknown():
    offered, dropped, passed, implausible, after = read(MeterCounters.initial(1), 8e9, 8e8, at_s=10.0)
    assert np.isnan([offered, dropped, passed]).all()
    assert not implausible
    assert read(after, 8e9, 8e8, at_s=10.1)[0] == 0.0


def test_a_meter_found_on_the_switch_is_unknown():
    assert np.isnan(read(MeterCounters.initial(0).reindexed(NEW), 5e5, at_s=0.05)[0])


def test_a_reading_that_comes_too_soon_is_left_for_the_next():
    before = known(0.0)
    offered, *_, after = read(before, 1e6, at_s=10.0 + MIN_ELAPSED_S / 2)
    assert np.isnan(offered)
    assert read(after, 2e6, at_s=10.1)[0] == pytest.approx(20e6)


def test_a_modify_of_a_meter_not_yet_read_leaves_it_unknown_once():
    before = MeterCounters.initial(1).modified(np.array([0]), 500.0)
    offered, *_, after = read(before, 4e5, at_s=10.0)
    assert np.isnan(offered)
    assert read(after, 8e5, at_s=10.04)[0] == pytest.approx(10e6)


@pytest.mark.parametrize(
    ("bits", "dropped_bits"),
    [(7e6, 0.0), (9e6, -8.0), (8e6 + 1.01 * PLAUSIBLE_LOAD * 100e6 * 0.1, 0.0), (8.0 * 2**64, 0.0)],
)
def test_counters_that_fall_or_jump_are_unknown(bits, dropped_bits):
    offered, dropped, passed, implausible, after = read(known(8e6), bits, dropped_bits, at_s=10.1)
    assert np.isnan([offered, dropped, passed]).all()
    assert implausible
    if bits < 1e12:  # and what was read is what the next reading is compared to
        assert read(after, bits + 1e6, dropped_bits + 1e6, at_s=10.2)[0] == pytest.approx(10e6)


def test_a_drop_above_the_offer_does_not_make_a_negative_rate():
    # The two counters of a band are not read at one instant.
    assert read(known(8e6, 0.0), 8e6, 8.0, at_s=10.1)[2] == 0.0


readings = st.lists(
    st.tuples(
        st.sampled_from(["read", "read", "missing", "modify", "anew"]),
        st.floats(0.02, 0.2),
        st.floats(0.0, 2e8),
        st.floats(0.0, 1.0),
    ),
    min_size=1,
    max_size=12,
)


@given(readings)
@settings(max_examples=150)
@example([(what, 0.1, 5e7, 0.5) for what in ("read", "modify", "read", "missing", "read", "anew", "read", "read")])
def test_rates_are_exact_or_unknown(happenings):
    """Whatever happens to a meter, a rate that is told is the traffic since the last reading over the time it took."""
    counters = MeterCounters.initial(0).reindexed(NEW, added_s=100.0)
    clock_s, added_s, last_duration_s, anew = 100.0, 100.0, 0.0, False
    in_bits = out_bits = since_in = since_out = since_s = 0.0
    for what, elapsed_s, rate_bps, part in happenings:
        clock_s, since_s = clock_s + elapsed_s, since_s + elapsed_s
        in_bits, since_in = in_bits + rate_bps * elapsed_s, since_in + rate_bps * elapsed_s
        out_bits, since_out = out_bits + rate_bps * elapsed_s * part, since_out + rate_bps * elapsed_s * part
        if what == "modify":
            if anew:
                return  # the controller cannot know what this modify counts from
            counters = counters.modified(np.array([0]), clock_s)
            in_bits = out_bits = since_in = since_out = since_s = 0.0
        elif what == "anew":
            in_bits = out_bits = since_in = since_out = since_s = 0.0
            added_s, anew = clock_s, True
        if anew and clock_s - added_s >= last_duration_s:
            return  # a meter that is older than the one before was when it was last read cannot be told from it
        now = reading(in_bits, out_bits, at_s=clock_s - added_s, received_s=clock_s, present=what == "read")
        rates, counters = meter_rates(counters, now, np.array([1e9]))
        if what == "read":
            assert rates.offered_bps[0] == pytest.approx(since_in / since_s, rel=1e-6, abs=1e-3)
            assert rates.dropped_bps[0] == pytest.approx(since_out / since_s, rel=1e-6, abs=1e-3)
            since_in = since_out = since_s = 0.0
            last_duration_s, anew = clock_s - added_s, False
        else:
            assert np.isnan(rates.offered_bps[0])


def test_a_modify_that_a_slow_switch_confirms_late_counts_from_the_confirmation():
    """Read at 10.0, modified at 10.01, confirmed at 10.04: at 10.1 the counters are 60 ms old, and not 90."""
    modified = known(8e6, at_s=10.0).modified(np.array([0]), 10.01)
    assert read(modified, 3e6, at_s=10.1)[0] == pytest.approx(3e6 / 0.09)
    confirmed = modified.confirmed(np.array([10.04]))
    assert read(confirmed, 3e6, at_s=10.1)[0] == pytest.approx(3e6 / 0.06)
    unknown = modified.confirmed(np.array([np.nan]))
    assert read(unknown, 3e6, at_s=10.1)[0] == pytest.approx(3e6 / 0.09)


def test_a_confirmation_moves_no_meter_that_was_not_modified():
    counters = known(8e6, at_s=10.0)
    assert read(counters.confirmed(np.array([10.04])), 9e6, at_s=10.1)[0] == pytest.approx(10e6)
