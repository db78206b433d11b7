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


@pytest.mark.parametrize(
    ("before_bps", "stood_s", "after_bps"),
    [
        (C - 1.0, 0.055, C),  # the rise ends at the ceiling
        (100e6, 0.5, 100e6 + 0.4 * C * 0.5),
        # A controller that stood still heard of no drops meanwhile: limits rise by one step alone.
        (100e6, 0.6, 100e6 + 0.4 * C * 0.5),
        (100e6, 60.0, 100e6 + 0.4 * C * 0.5),
    ],
)
def test_a_rise_is_bounded(before_bps, stood_s, after_bps):
    columns = (np.array([one]) for one in (before_bps, C, 0.4 * C, True, stood_s))
    assert egress_limits.risen(*columns) == pytest.approx([after_bps], rel=1e-12)


@pytest.mark.parametrize(
    ("limit", "told", "floor", "room", "offered", "after"),
    [
        (80.0, True, 0.0, np.inf, 1e9, 40.0),  # a message halves
        (80.0, False, 0.0, np.inf, 1e9, 80.0),
        (800.0, True, 0.0, 100.0, 1e9, 50.0),  # a limit above the room of the port comes down to it first
        (800.0, True, 0.0, 900.0, 1e9, 400.0),
        (800.0, True, 0.0, np.inf, 80.0, 50.0),  # as does one far above the offer
        (80.0, True, 60.0, np.inf, 1e9, 60.0),  # nobody comes below its floor
        (20.0, True, 60.0, np.inf, 1e9, 20.0),  # nor up to it
    ],
)
def test_a_message_halves(limit, told, floor, room, offered, after):
    columns = (np.array([one]) for one in (limit, told, floor, room, offered, 0.5))
    assert egress_limits.halved(*columns).tolist() == [after]


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


GREEDY = 1e9


@pytest.mark.parametrize(
    ("demand", "sender", "guarantee", "most", "more", "got"),
    [
        # What others borrow is taken back for guarantees only.
        ([GREEDY], [0], [50.0], [100.0], {"left_bps": 20.0, "promised_bps": 90.0}, [50.0]),
        ([GREEDY], [0], [50.0], [100.0], {"left_bps": 70.0, "promised_bps": 90.0}, [70.0]),
        # Who has all it wants may send what is idle.
        ([30.0, 20.0], [0, 1], [10.0, 10.0], [100.0, 60.0], {}, [80.0, 60.0]),
        # Guarantees first, then the excess by weight, up to the ceilings.
        ([GREEDY] * 2, [0, 1], [50.0, 20.0], [100.0, 100.0], {"weight": [1.0, 2.0]}, [60.0, 40.0]),
        ([GREEDY] * 2, [0, 1], [50.0, 20.0], [55.0, 100.0], {}, [55.0, 45.0]),
        # More pairs gain a VN nothing.
        ([GREEDY] * 4, [0, 0, 0, 1], [50.0, 50.0], [100.0, 100.0], {}, [50 / 3, 50 / 3, 50 / 3, 50.0]),
        # A silent pair may begin with its part of the guarantee.
        ([0.0, GREEDY], [0, 1], [40.0, 20.0], [100.0, 100.0], {"active": [False, True]}, [40.0, 100.0]),
    ],
)
def test_the_sending_port_is_shared(demand, sender, guarantee, most, more, got):
    assert schedule(demand, sender, guarantee, most, **more) == pytest.approx(got)


limits = st.floats(0.0, 1e9)


@given(st.lists(st.tuples(limits, limits, limits, st.booleans(), st.floats(0.05, 0.99)), min_size=1, max_size=8))
def test_a_limit_stays_between_its_floor_and_its_ceiling(rows):
    most, floor, offered = (np.array([row[n] for row in rows]) for n in range(3))
    told, decrease = np.array([row[3] for row in rows]), np.array([row[4] for row in rows])
    floor = np.minimum(floor, most)
    lower = egress_limits.halved(most, told, floor, np.full(len(rows), np.inf), offered, decrease)
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
