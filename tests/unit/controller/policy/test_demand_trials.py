"""Who is taken to want more than it sends, because others' frames fill its sending port."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.policy.demand_trials import GROWTH, REST_INTERVALS, TRIAL_FACTOR, TRIAL_INTERVALS, DemandTrials
from controller.policy.policy_state import PolicyState

M = 1e6
GUARANTEE = np.array([645 * M, 215 * M])
ONE_PORT, CAPACITY = np.zeros(2, dtype=np.int64), np.array([860 * M])


class Port:
    """Two VNs at one sending port, one interval after another."""

    def __init__(self):
        self.memory = PolicyState(2)

    def after(self, *sent_bps, others_bps=0.0):
        """Return how many times what it sends each is taken to want."""
        sent_bps = np.array(sent_bps)
        trials = DemandTrials.from_state(self.memory)
        trials = trials.updated(sent_bps, GUARANTEE, ONE_PORT, np.array([others_bps]), CAPACITY)
        self.memory = self.memory.updated(by_vn=trials.columns())
        return trials.factors(sent_bps, GUARANTEE).tolist()


@pytest.mark.parametrize(
    ("sent_mbps", "others_bps", "factor"),
    [
        ((80, 780), 0.0, TRIAL_FACTOR),  # below its guarantee at a full port
        ((430, 430), 0.0, pytest.approx(1.5)),  # up to its guarantee
        ((80, 700), 0.0, 1.0),  # a port with room is no reason
        ((80, 700), 60 * M, TRIAL_FACTOR),
        ((0, 860), 0.0, 1.0),  # who sends nothing wants nothing
    ],
)
def test_who_is_below_its_guarantee_at_a_full_port_is_given_room(sent_mbps, others_bps, factor):
    assert Port().after(*(one * M for one in sent_mbps), others_bps=others_bps) == [factor, 1.0]


def test_who_does_not_grow_is_left_in_peace_for_a_while():
    port = Port()
    tried = [port.after(80 * M, 780 * M)[0] > 1.0 for _ in range(2 * REST_INTERVALS)]
    once = [True] * TRIAL_INTERVALS + [False] * (REST_INTERVALS - TRIAL_INTERVALS)
    assert tried == once * 2


def test_who_grows_is_given_more_at_once():
    port = Port()
    for _ in range(TRIAL_INTERVALS + 2):
        port.after(80 * M, 780 * M)
    assert port.after(80 * M, 780 * M) == [1.0, 1.0]
    assert port.after(1.01 * GROWTH * 80 * M, 770 * M) == [TRIAL_FACTOR, 1.0]


def test_growth_counts_from_the_least_that_was_sent():
    port = Port()
    for sent_bps in [300 * M] * TRIAL_INTERVALS + [100 * M]:
        port.after(sent_bps, 560 * M)
    assert port.after(150 * M, 710 * M) == [TRIAL_FACTOR, 1.0]


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=1, max_size=30))
def test_nobody_is_taken_to_want_more_than_its_guarantee_for_that(intervals):
    port = Port()
    for sent_bps in intervals:
        factors = np.array(port.after(*sent_bps))
        assert (factors >= 1.0).all()
        assert (factors <= TRIAL_FACTOR).all()
        above = factors > 1.0
        assert (np.array(sent_bps)[above] * factors[above] <= GUARANTEE[above] * (1 + 1e-12)).all()
