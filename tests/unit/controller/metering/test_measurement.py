"""What a sender is taken to send."""

from __future__ import annotations

import numpy as np
import pytest

from controller.metering.counters import MeterRates
from controller.metering.measurement import IDLE_INTERVALS, MEMORY_INTERVALS, Measurement, measure


def rates(offered, dropped=0.0):
    offered, dropped = np.array([float(offered)]), np.array([float(dropped)])
    seen_s = np.where(np.isnan(offered), np.nan, 0.055)
    return MeterRates(offered, dropped, offered - dropped, np.array([False]), seen_s)


UNKNOWN = rates(np.nan, np.nan)


def test_a_rise_is_seen_at_once_and_fades_slowly():
    state = measure(Measurement.initial(1), rates(100.0))
    assert state.measured_bps[0] == 100.0
    for _ in range(40):
        state = measure(state, rates(100.0))
    assert state.smoothed_bps[0] == pytest.approx(100.0, rel=1e-3)
    silent = measure(state, rates(0.0))
    assert silent.passed_bps[0] == 0.0
    assert silent.measured_bps[0] == pytest.approx(100.0 * (1 - 1 / MEMORY_INTERVALS), rel=1e-3)


def test_the_unknown_changes_nothing_that_is_known():
    state = measure(Measurement.initial(1), rates(100.0, 30.0))
    after = measure(state, UNKNOWN)
    assert (after.offered_bps[0], after.dropped_bps[0], after.passed_bps[0]) == (100.0, 30.0, 70.0)
    assert after.silent_intervals[0] == state.silent_intervals[0] == 0


def test_unknown_is_not_silent_and_silence_counts():
    state = measure(Measurement.initial(1), rates(1.0))
    for _ in range(3 * IDLE_INTERVALS):
        state = measure(state, UNKNOWN)
    assert state.active[0]
    for number in range(1, IDLE_INTERVALS + 1):
        state = measure(state, rates(0.0))
        assert state.active[0] == (number < IDLE_INTERVALS)
    assert measure(state, rates(0.5)).active[0]


def test_what_is_offered_and_dropped_whole_is_activity():
    state = Measurement.initial(1)
    for _ in range(2 * IDLE_INTERVALS):
        state = measure(state, rates(50.0, 50.0))
    assert state.active[0]
    assert state.measured_bps[0] == 0.0
