"""Gatekeeper's receiving side: when a queue's drops are congestion, and who is told."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.policy_views import pairs

from controller.gatekeeper.ingress_monitor import (
    CALM_INTERVALS,
    MIN_DROPPED_BITS,
    IngressMonitor,
    estimated_drops,
    floors,
    guarantee_needs,
    port_shares,
    shares_of,
    targets,
    thresholds,
    within_port,
)
from controller.policy.policy_state import PolicyState

C = 1e9
WINDOW = np.array([2.0])


def watched(*dropped_bps, served_bps=0.0):
    watch = IngressMonitor.remembered(PolicyState(1), 2)
    for one in dropped_bps:
        watch = watch.updated(np.array([one], dtype=np.float64), np.array([served_bps]))
    return watch


@pytest.mark.parametrize(
    ("dropped_bps", "mean_bps", "unread"),
    [
        ([100e6, 10e6, 30e6], 20e6, 0.0),  # over the window
        ([10e6, np.nan], 10e6, 1.0),  # a reading that did not come is not zero
        ([10e6, np.nan, np.nan], np.nan, 2.0),
        ([np.nan, 1.0], 1.0, 0.0),
    ],
)
def test_the_mean_is_over_the_readings_in_the_window(dropped_bps, mean_bps, unread):
    watch = watched(*dropped_bps, served_bps=7.0)
    dropped, served = watch.means(WINDOW)
    assert np.array_equal(dropped, [mean_bps], equal_nan=True)
    assert np.array_equal(served, [np.nan if np.isnan(mean_bps) else 7.0], equal_nan=True)
    assert watch.unread.tolist() == [unread]


@pytest.mark.parametrize(
    ("capacity_bps", "window_s", "least_bps"),
    [
        (C, 0.110, 20e6),  # two percent of the port
        (43e6, 0.110, 2.65e6),  # at low rates a few frames are no congestion
        (C, 0.0, np.inf),  # a window of no time shows nothing
    ],
)
def test_congestion_begins_above_a_threshold(capacity_bps, window_s, least_bps):
    above = thresholds(np.array([capacity_bps]), np.array([0.02]), np.array([window_s]))
    assert above == pytest.approx([least_bps], rel=0.01)
    assert above[0] * max(window_s, 1e-9) >= MIN_DROPPED_BITS * (1 - 1e-9)


def test_congestion_is_over_when_drops_are_few_for_long():
    watch, threshold = watched(), np.array([20e6])
    said = []
    for dropped in [19e6, 21e6, *[11e6] * CALM_INTERVALS, *[9e6] * CALM_INTERVALS]:
        watch = watch.declared(np.array([dropped]), threshold)
        said.append(bool(watch.congested[0]))
    assert said == [False, *[True] * (2 * CALM_INTERVALS), False]


@pytest.mark.parametrize(
    ("measured_bps", "active", "floor_bps", "everybody", "told"),
    [
        ([50.0, 40.0, 2.0], None, 20.0, True, [True, True, False]),  # all above their part of 60
        ([50.0, 90.0, 90.0], None, 20.0, False, [False, True, False]),  # one: the largest, the first of equals
        ([10.0, 20.0, 15.0], None, 1e6, True, [False, True, False]),  # where nobody is above: the largest
        ([90.0, 80.0, 70.0], [False, True, True], 5.0, True, [False, True, True]),  # no silent ones
    ],
)
def test_who_is_told(measured_bps, active, floor_bps, everybody, told):
    """Of those who send to VN 3; VN 4 receives too, and has no round."""
    those = pairs([0, 1, 2, 0], [3, 3, 3, 4], [*measured_bps, 90.0], active=None if active is None else [*active, True])
    found = targets(those, np.arange(5) == 3, np.full(5, 3 * floor_bps), np.full(5, everybody))
    assert found.tolist() == [*told, False]


def test_floors_are_the_part_of_the_guarantee_and_of_what_is_served():
    those = pairs([0, 1], [2, 2], [30.0, 90.0], weight=[1.0, 2.0])
    guarantee, served = np.array([0.0, 0.0, 60.0]), np.array([0.0, 0.0, 100.0])
    both = floors(those, guarantee, served, np.ones(3), np.ones(3))
    assert both == pytest.approx([25.0, 75.0])
    paper = floors(those, guarantee, served, np.zeros(3), np.zeros(3))
    assert paper.tolist() == [0.0, 0.0]
    unknown = floors(those, guarantee, np.full(3, np.nan), np.ones(3), np.ones(3))
    assert unknown == pytest.approx([20.0, 40.0])
    silent = pairs([0, 1], [2, 2], [0.0, 0.0], active=[False, False])
    assert floors(silent, guarantee, served, np.ones(3), np.ones(3)).tolist() == [0.0, 0.0]
    assert shares_of(silent, guarantee).tolist() == [0.0, 0.0]


def test_without_a_queue_drops_are_what_does_not_fit():
    guarantee, capacity = np.array([30.0, 50.0, 30.0]), np.full(3, 100.0)
    port = np.array([0, 0, 1])
    assert estimated_drops(np.array([75.0, 40.0, 75.0]), guarantee, capacity, port).tolist() == [15.0, 0.0, 0.0]
    assert estimated_drops(np.array([50.0, 90.0, 0.0]), guarantee, capacity, port).tolist() == [20.0, 40.0, 0.0]


def test_what_is_served_counts_as_far_as_the_port_is_not_needed_by_others():
    guarantee, port = np.array([60.0, 20.0]), np.zeros(2, dtype=np.int64)
    within = within_port(np.array([10.0, 90.0]), np.array([45.0, 20.0]), guarantee, np.full(2, 100.0), port)
    assert within.tolist() == [10.0, 55.0]
    within = within_port(np.array([10.0, 90.0]), np.zeros(2), guarantee, np.full(2, 100.0), port)
    assert within.tolist() == [10.0, 90.0]


def test_a_need_is_not_forgotten_at_once_and_is_no_more_than_the_guarantee():
    guarantee, need = np.array([60.0]), guarantee_needs(np.array([np.nan]), np.array([90.0]), np.array([60.0]))
    assert need.tolist() == [60.0]
    for _ in range(10):
        need = guarantee_needs(need, np.zeros(1), guarantee)
    assert need == pytest.approx([60.0 * 0.95**10])


def test_the_room_of_several_senders_is_the_port():
    those = pairs([0, 1, 2], [3, 3, 4], [300.0, 100.0, 7.0])
    room = port_shares(those, np.full(5, 100.0), np.array([0, 0, 0, 1, 0], bool))
    assert room.tolist() == [75.0, 25.0, np.inf]


def test_the_watch_is_remembered():
    watch = watched(1.0, np.nan, 3.0, served_bps=4.0).notified(np.array([True]))
    watch = watch.declared(np.array([9.0]), np.array([2.0]))
    again = IngressMonitor.remembered(PolicyState(1).updated(by_vn=watch.columns()), 2)
    for name in ("dropped_bps", "served_bps", "since_round", "unread", "calm", "congested"):
        assert np.array_equal(getattr(again, name), getattr(watch, name), equal_nan=True)
    deeper = IngressMonitor.remembered(PolicyState(1).updated(by_vn=watch.columns()), 3)
    assert np.array_equal(deeper.dropped_bps, [[3.0, np.nan, np.nan]], equal_nan=True)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(4, 6), st.floats(0, 1e9), st.booleans()), max_size=12),
    st.lists(st.booleans(), min_size=7, max_size=7),
    st.lists(st.booleans(), min_size=7, max_size=7),
)
def test_whoever_has_a_round_tells_somebody_who_sends_and_nobody_else(rows, rounds, everybody):
    those = pairs(*zip(*[(s, r, m, a) for s, r, m, a in rows], strict=True)) if rows else pairs([], [], [])
    told = targets(those, np.array(rounds), np.full(7, 1e8), np.array(everybody))
    assert not (told & ~those.active).any()
    for receiver in range(7):
        here = those.receiver == receiver
        wanted = rounds[receiver] and (those.active & here).any()
        assert bool((told & here).any()) == bool(wanted)
        if not everybody[receiver]:
            assert (told & here).sum() <= 1
