"""Gatekeeper's sending side: limits that are halved and rise, and the scheduler of the sending port."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.policy_views import pairs

from controller.gatekeeper import egress_limits

C = 860e6


def test_a_new_pair_is_not_limited():
    limits = egress_limits.started(np.array([np.nan, 5.0, 50.0]), np.array([10.0, 10.0, 10.0]))
    assert limits.tolist() == [10.0, 5.0, 10.0]


def test_the_rise_is_of_the_receiver_and_shared():
    those = pairs([0, 1, 0], [2, 2, 3], active=[True, True, True])
    slopes = egress_limits.slopes(those, np.full(4, C), np.full(4, 0.4))
    assert slopes == pytest.approx([0.2 * C, 0.2 * C, 0.4 * C])
    limits = egress_limits.risen(
        np.full(3, 100e6), np.full(3, C), slopes, np.array([True, False, True]), np.full(3, 0.055)
    )
    step = 0.4 * C * 0.055
    assert limits == pytest.approx([100e6 + step / 2, 100e6, 100e6 + step])


def test_the_rise_ends_at_the_ceiling():
    limits = egress_limits.risen(
        np.array([C - 1.0]), np.array([C]), np.array([0.4 * C]), np.array([True]), np.array([0.055])
    )
    assert limits.tolist() == [C]


def test_a_controller_that_stood_still_raises_limits_by_one_step_alone():
    """It heard of no drops meanwhile."""
    arguments = np.array([100e6]), np.array([C]), np.array([0.4 * C]), np.array([True])
    for stood_s in (0.5, 0.6, 60.0):
        assert egress_limits.risen(*arguments, np.array([stood_s])) == pytest.approx([100e6 + 0.4 * C * 0.5])


def halved(limit, told, floor, offered, decrease, room=None):
    room = np.full(len(limit), np.inf) if room is None else np.array(room)
    return egress_limits.halved(limit, told, floor, room, offered, decrease)


def test_limits_above_the_room_of_the_port_come_down_to_it_first():
    half, told = np.full(2, 0.5), np.ones(2, bool)
    limits = halved(np.full(2, 800.0), told, np.zeros(2), np.full(2, 1e9), half, [100.0, 900.0])
    assert limits.tolist() == [50.0, 400.0]


def test_a_message_halves():
    told = np.array([True, False])
    limits = halved(np.full(2, 80.0), told, np.zeros(2), np.full(2, 1e9), np.full(2, 0.5))
    assert limits.tolist() == [40.0, 80.0]


def test_a_limit_far_above_the_offer_comes_down_to_it_first():
    limits = halved(np.array([800.0]), np.ones(1, bool), np.zeros(1), np.array([80.0]), np.array([0.5]))
    assert limits.tolist() == [50.0]


def test_no_message_brings_a_pair_below_its_floor_nor_up_to_it():
    told, half = np.ones(2, bool), np.full(2, 0.5)
    limits = halved(np.array([80.0, 20.0]), told, np.array([60.0, 60.0]), np.full(2, 1e9), half)
    assert limits.tolist() == [60.0, 20.0]


def test_one_limit_for_all_of_a_sender():
    those = pairs([0, 0, 1], [2, 3, 2])
    together, demand = np.array([True, False, False, False]), np.array([1e9, 10.0, 1e9])
    limits = egress_limits.shared_limits(those, np.array([100.0, 40.0, 70.0]), together, demand)
    assert limits == pytest.approx([30.0, 10.0, 70.0])
    kept = egress_limits.lowest_limits(those, np.array([100.0, 40.0, 70.0]), together)
    assert kept.tolist() == [40.0, 40.0, 70.0]


def schedule(demand_bps, sender, guarantee_bps, most_bps, left_bps=100.0, weight=None, active=None, promised_bps=None):
    vns = len(guarantee_bps)
    those = pairs(sender, [vns - 1] * len(sender), active=active)
    sending = egress_limits.SendingVns(
        np.zeros(vns, dtype=np.int64),
        np.array(guarantee_bps, dtype=np.float64),
        np.array(most_bps, dtype=np.float64),
        np.ones(vns) if weight is None else np.array(weight, dtype=np.float64),
    )
    promised = np.array([left_bps if promised_bps is None else promised_bps])
    demand = np.array(demand_bps, dtype=np.float64)
    return egress_limits.scheduled(those, demand, sending, promised, np.array([left_bps]))[0]


def test_what_others_borrow_is_taken_back_for_guarantees_only():
    got = schedule([1e9], [0], [50.0], [100.0], left_bps=20.0, promised_bps=90.0)
    assert got == pytest.approx([50.0])
    got = schedule([1e9], [0], [50.0], [100.0], left_bps=70.0, promised_bps=90.0)
    assert got == pytest.approx([70.0])


def test_who_has_all_it_wants_may_send_what_is_idle():
    got = schedule([30.0, 20.0], [0, 1], [10.0, 10.0], [100.0, 60.0])
    assert got == pytest.approx([80.0, 60.0])


def test_guarantees_first_then_the_excess_by_weight():
    got = schedule([1e9, 1e9], [0, 1], [50.0, 20.0], [100.0, 100.0], weight=[1.0, 2.0])
    assert got == pytest.approx([60.0, 40.0])


def test_ceilings_hold():
    got = schedule([1e9, 1e9], [0, 1], [50.0, 20.0], [55.0, 100.0])
    assert got == pytest.approx([55.0, 45.0])


def test_more_pairs_gain_a_vn_nothing():
    got = schedule([1e9] * 4, [0, 0, 0, 1], [50.0, 50.0], [100.0, 100.0])
    assert got[:3].sum() == pytest.approx(50.0)
    assert got[3] == pytest.approx(50.0)


def test_a_silent_pair_may_begin_with_its_part_of_the_guarantee():
    got = schedule([0.0, 1e9], [0, 1], [40.0, 20.0], [100.0, 100.0], active=[False, True])
    assert got == pytest.approx([40.0, 100.0])


limits = st.floats(0.0, 1e9)


@given(st.lists(st.tuples(limits, limits, limits, st.booleans(), st.floats(0.05, 0.99)), min_size=1, max_size=8))
def test_a_limit_stays_between_its_floor_and_its_ceiling(rows):
    most, floor, offered = (np.array([row[n] for row in rows]) for n in range(3))
    told, decrease = np.array([row[3] for row in rows]), np.array([row[4] for row in rows])
    floor = np.minimum(floor, most)
    lower = halved(most, told, floor, offered, decrease)
    assert (lower >= floor * (1 - 1e-12)).all()
    assert (lower <= most).all()
    assert (lower[~told] == most[~told]).all()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1e3)), min_size=1, max_size=9),
    st.lists(st.tuples(st.floats(1, 50), st.floats(0, 200), st.floats(0.1, 10)), min_size=4, max_size=4),
    st.floats(1.0, 300.0),
)
def test_what_is_sent_fits_the_port_and_the_ceilings(rows, vns, left_bps):
    sender, demand = zip(*rows, strict=True)
    guarantee = [one[0] for one in vns]
    most = [one[0] + one[1] for one in vns]
    got = schedule(demand, list(sender), guarantee, most, left_bps, [one[2] for one in vns])
    sent = np.minimum(got, np.array(demand))
    assert sent.sum() <= left_bps * (1 + 1e-9)
    for vn in range(4):
        mine = np.array(sender) == vn
        assert sent[mine].sum() <= most[vn] * (1 + 1e-9)
