"""Guarantees: a VN that is kept below its limit is told apart from one that wants less."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.metering.guarantees import Guarantees, sender_entitlements

INTERVAL_S = 0.055
LIMIT_BPS = np.array([20e6])
RATES = st.floats(0.0, 1e11)


def run(offered_bps, received_bps, intervals, state=None):
    state = state or Guarantees.initial(1)
    for _ in range(intervals):
        state = state.updated(np.array([offered_bps]), np.array([received_bps]), LIMIT_BPS, INTERVAL_S)
    return state


@pytest.mark.parametrize(
    ("offered_bps", "received_bps", "missing"),
    [
        (50e6, 20e6, False),  # backlogged, and it gets its limit
        (50e6, 18e6, True),  # backlogged, and kept below
        (5e6, 5e6, False),  # wants less
        (5e6, 4e6, True),  # wants less, and does not get that
        (20e6, 19.2e6, False),  # what any meter drops of TCP
        (0.0, 0.0, False),
    ],
)
def test_who_misses_something(offered_bps, received_bps, missing):
    assert bool(run(offered_bps, received_bps, 400).violated[0]) is missing


def test_a_bad_interval_is_no_miss_but_a_bad_second_is():
    good = run(50e6, 20e6, 400)
    assert not run(50e6, 10e6, 1, good).violated[0]
    bad = run(50e6, 10e6, 18, good)
    assert bad.violated[0]
    assert bad.violated_intervals[0] == 13
    met = run(50e6, 20e6, 200, bad)
    assert not met.violated[0]
    assert run(50e6, 20e6, 60, met).violated_intervals[0] == met.violated_intervals[0]


def test_a_limit_that_is_raised_is_owed_little_by_little():
    state = run(50e6, 20e6, 400)
    for received_bps in [20e6] * 2 + [40e6] * 60:
        state = state.updated(np.array([50e6]), np.array([received_bps]), 2 * LIMIT_BPS, INTERVAL_S)
    assert state.violated_intervals[0] == 0
    for _ in range(30):
        state = state.updated(np.array([50e6]), np.array([20e6]), 2 * LIMIT_BPS, INTERVAL_S)
    assert state.violated[0]


@given(st.lists(st.tuples(RATES, RATES), min_size=1, max_size=30))
def test_who_gets_all_that_is_offered_never_misses_anything(rates):
    state = Guarantees.initial(1)
    for offered_bps, more_bps in rates:
        state = state.updated(np.array([offered_bps]), np.array([offered_bps + more_bps]), LIMIT_BPS, INTERVAL_S)
    assert not state.violated[0]
    assert state.violated_intervals[0] == 0


def test_senders_are_owed_their_parts_of_what_receivers_may_get():
    """VNs 0 and 1 fill VN 2, and 0 sends to 3 as well; a silent sender has no part."""
    sender, receiver = np.array([0, 1, 3, 0]), np.array([2, 2, 2, 3])
    offered_bps = np.array([90e6, 90e6, 0.0, 5e6])
    active, weight = np.array([True, True, False, True]), np.array([3.0, 1.0, 1.0, 1.0])
    entitled_bps = sender_entitlements(sender, receiver, offered_bps, active, weight, np.full(4, 40e6))
    assert entitled_bps.tolist() == [35e6, 10e6, 0.0, 0.0]
