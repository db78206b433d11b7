"""HyGenICC's law: its steps by hand, and what it does at the interval of the loop with one bottleneck of fluid."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.hygenicc.law import (
    NEVER,
    Bottlenecks,
    Constants,
    Cut,
    LimiterState,
    capacity_shares,
    equal_parts,
    floors,
    is_cut_sufficient,
    limiter_shares,
    marked_shares,
    next_rates,
    reachable,
    with_start_rates,
)
from controller.metering.enforcement import RESPONSIVE_BURST_S

C, INTERVAL_S = 100e6, 0.055
QUEUE_S, MARKED_ABOVE_S, SLOTS = 0.030, 0.006, 55


def constants(limiters, cut=0, beta=0.25, slow=0.12, fast=0.12, timeout=4, gamma=0.98):
    return Constants(*(np.full(limiters, float(one)) for one in (cut, beta, slow, fast, timeout, gamma)))


def one_step(rate_bps, phi, *, quiet=0.0, load_bps=2 * C, capacity_bps=C, weight=None, wanted_bps=None, **chosen):
    count = len(rate_bps)
    of = np.zeros(count, dtype=np.int64)
    bottleneck = Bottlenecks(of, np.array([load_bps]), np.array([capacity_bps]), np.array([float(count)]))
    return next_rates(
        LimiterState(np.array(rate_bps, dtype=np.float64), np.full(count, quiet)),
        np.array(phi, dtype=np.float64),
        np.ones(count) if weight is None else np.array(weight, dtype=np.float64),
        bottleneck,
        np.full(count, C),
        np.full(count, 0.01 * C),
        np.full(count, C),
        np.full(count, np.inf) if wanted_bps is None else np.array(wanted_bps),
        constants(count, **chosen),
    )


LEVEL = {"cut": Cut.LEVEL}
ASYMMETRIC = {"slow": 0.02, "fast": 0.2, "timeout": 4}
BEYOND = {**LEVEL, "load_bps": 120e6, "wanted_bps": [8e6, np.inf]}  # the first sends 8 Mb/s at most


@pytest.mark.parametrize(
    ("rate_bps", "phi", "given", "after_bps"),
    [
        ([40e6, 40e6], [1.0, 0.5], {"beta": 0.25}, [30e6, 35e6]),  # a cut is in proportion to the marks
        # No mark is a slow rise, and later a fast one.
        ([10e6, 10e6], [0.0, 0.0], {**ASYMMETRIC, "quiet": 0.0}, [10e6 + 0.02 * C / 2] * 2),
        ([10e6, 10e6], [0.0, 0.0], {**ASYMMETRIC, "quiet": 3.0}, [10e6 + 0.2 * C / 2] * 2),
        ([10e6], [np.nan], {"quiet": 2.0}, [10e6]),  # unknown moves nothing
        # The cut to the level leaves small senders alone, and is by weight.
        ([90e6, 10e6, 80e6], [1.0] * 3, {**LEVEL, "load_bps": 180e6}, [44e6, 10e6, 44e6]),
        ([90e6, 90e6], [1.0] * 2, {**LEVEL, "load_bps": 180e6, "weight": [1.0, 3.0]}, [24.5e6, 73.5e6]),
        # Without a known capacity the load at the first mark is it.
        ([90e6, 90e6], [1.0] * 2, {**LEVEL, "load_bps": 120e6, "capacity_bps": np.inf}, [58.8e6] * 2),
        # The level leaves no room for what nobody sends.
        ([90e6, 90e6], [1.0] * 2, BEYOND, [90e6, 90e6]),
        ([90e6, 95e6], [1.0] * 2, BEYOND, [90e6, 90e6]),
        ([90e6, 60e6], [0.1] * 2, {"cut": Cut.LOAD, "load_bps": 150e6}, [90e6 * 98 / 150, 60e6 * 98 / 150]),
        # A bottleneck without load cuts nobody to it: a warning of a division by zero would fail the test.
        ([40e6], [0.0], {"cut": Cut.LOAD, "load_bps": 0.0}, [40e6 + 0.12 * C]),
        # No rate leaves its bounds.
        ([C], [0.0], {"quiet": 9.0}, [C]),
        ([0.0101 * C], [1.0], {"beta": 0.9}, [0.01 * C]),
    ],
)
def test_a_step(rate_bps, phi, given, after_bps):
    after = one_step(rate_bps, phi, **given)
    assert after.rate_bps == pytest.approx(after_bps)
    quiet, phi = given.get("quiet", 0.0), np.array(phi)
    assert after.quiet.tolist() == np.where(np.isnan(phi), quiet, np.where(phi > 0, 0.0, quiet + 1.0)).tolist()


def test_a_frame_gets_through_at_the_floor():
    assert floors(np.array([C, 1e6]), INTERVAL_S) == pytest.approx([1e6, 3 * 1518 * 8 / INTERVAL_S])
    assert floors(np.array([1e5]), INTERVAL_S).tolist() == [1e5]


def test_marks_and_phantom_marks_add_up():
    receiver = np.array([0, 0, 1, 1])
    passed = np.array([60.0, 40.0, 10.0, 0.0])
    arrived, beyond = np.array([50.0, np.nan]), np.array([0.5, np.nan])
    share = marked_shares(np.array([6.0, 0.0, np.nan, 0.0]), passed, arrived, beyond, receiver)
    assert share[:2] == pytest.approx([0.3, 0.2])
    assert np.isnan(share[2])
    assert share[3] == 0.0
    more = np.array([90.0]), np.array([60.0]), np.array([1.0]), np.array([0.0]), np.array([0])
    assert marked_shares(*more).tolist() == [1.0]


def test_who_sends_nothing_has_no_marks_however_much_others_send():
    silent, nobody = np.array([100.0, 0.0]), np.zeros(2)
    receiver, nothing = np.zeros(2, dtype=np.int64), np.full(2, np.nan)
    assert marked_shares(nothing, silent, np.array([100.0]), np.array([5.0]), receiver).tolist() == [1.0, 0.0]
    assert marked_shares(nothing, nobody, np.array([0.0]), np.array([0.0]), receiver).tolist() == [0.0, 0.0]
    assert np.isnan(marked_shares(nothing, silent, np.array([np.nan]), np.array([np.nan]), receiver)).all()


def two_places(*places):
    return Bottlenecks(np.array(places), np.full(2, C), np.full(2, C), np.ones(2))


def test_a_cut_is_not_answered_before_what_was_saved_up_is_spent():
    """Two send to one place; one of them more than its rate, and it alone was cut."""
    places, rate_bps, stood_s = two_places(0, 0, 1), np.full(3, 20e6), np.array([0.1, np.nan, np.nan])
    spends = np.array([30e6, 15e6, 30e6])
    assert is_cut_sufficient(spends, rate_bps, stood_s, places).tolist() == [True, True, False]
    assert is_cut_sufficient(np.array([30e6, 5e6, 30e6]), rate_bps, stood_s, places).tolist() == [False, False, False]
    assert is_cut_sufficient(np.array([30e6, 0.0, 30e6]), rate_bps, stood_s, places).tolist() == [True, True, False]
    assert not is_cut_sufficient(spends, rate_bps, stood_s + RESPONSIVE_BURST_S, places).any()
    assert not is_cut_sufficient(spends, rate_bps, np.full(3, np.nan), places).any()


def test_silence_lets_a_rate_rise_to_an_equal_part():
    most_bps, part_bps = np.array([C, C, C, 20e6]), np.full(4, 25e6)
    rate_bps = np.array([10e6, 10e6, 40e6, 30e6])
    passed_bps = np.array([1.0, 0.0, 0.0, 0.0])
    assert reachable(passed_bps, rate_bps, most_bps, part_bps).tolist() == [C, 25e6, 40e6, 20e6]


def test_equal_parts_are_by_weight_and_of_those_who_send():
    places = Bottlenecks(np.array([0, 0, 1]), np.full(2, C), np.full(2, C), np.array([2.0, 0.0]))
    assert equal_parts(np.array([2.0, 1.0, 3.0]), np.full(3, 90e6), places) == pytest.approx([60e6, 30e6, 90e6])


def test_a_vn_has_the_mean_of_its_entries_by_what_they_send():
    share = limiter_shares(
        np.array([1.0, 0.0, np.nan, np.nan]), np.array([30.0, 10.0, 9.0, 9.0]), np.array([0, 0, 0, 1]), 2
    )
    assert share[0] == pytest.approx(0.75)
    assert np.isnan(share[1])


def test_capacity_shares():
    port, weight = np.array([0, 0, 0, 1]), np.array([1.0, 3.0, 1.0, 1.0])
    share = capacity_shares(np.full(2, C), port, np.array([np.inf, np.inf, 0.0, 5e6]), weight, np.full(4, 60e6))
    assert share == pytest.approx([25e6, 60e6, 20e6, 60e6])


def test_what_one_vn_leaves_of_its_port_others_have_by_weight():
    demand_bps, weight = np.array([5e6, np.inf, np.inf]), np.array([1.0, 1.0, 2.0])
    share = capacity_shares(np.full(1, C), np.zeros(3, dtype=int), demand_bps, weight, np.full(3, C))
    assert share == pytest.approx([25e6, 95e6 / 3, 95e6 * 2 / 3])


def test_newcomers():
    new = LimiterState.new(2)
    first = with_start_rates(new, np.full(2, C), np.array([4.0, 4.0]), np.array([0.0, 1.0]))
    assert first.tolist() == [C, C / 4]
    assert with_start_rates(
        LimiterState(np.array([7.0]), np.array([NEVER])), np.array([C]), np.ones(1), np.ones(1)
    ).tolist() == [7.0]


# -- a link of fluid: 100 Mb/s, a queue of 30 ms, marks above 6 ms, greedy senders, one of them from 5 s on


def simulate(senders, cut, beta=0.25, slow=0.12, fast=0.12, gamma=0.98, start=1.0):
    """Return use, Jain's index and the newcomer's part over 7 to 10 s, and when one alone has 95 % after 10 s."""
    state = LimiterState.new(senders)
    rounds, newcomer = int(15 / INTERVAL_S), senders - 1
    queued_bits, history, carried = 0.0, [], []
    for number in range(rounds):
        now_s = number * INTERVAL_S
        active = np.arange(senders) != newcomer if now_s < 5 else np.ones(senders, dtype=bool)
        active = np.arange(senders) == newcomer if now_s >= 10 else active
        count = np.array([float(active.sum())])
        if now_s < 5:
            state = replace(state, rate_bps=np.where(active, state.rate_bps, np.nan))
        rate_bps = with_start_rates(state, np.full(senders, C), np.full(senders, count[0]), np.full(senders, start))
        sent_bps = np.where(active, rate_bps, 0.0)
        slot_s, marks, served = INTERVAL_S / SLOTS, 0.0, 0.0
        for _ in range(SLOTS):
            marks += (queued_bits > MARKED_ABOVE_S * C) / SLOTS
            out = min(queued_bits + sent_bps.sum() * slot_s, C * slot_s)
            queued_bits = min(queued_bits + sent_bps.sum() * slot_s - out, QUEUE_S * C)
            served += out
        history.append(served / INTERVAL_S * sent_bps / sent_bps.sum())
        carried.append(served / INTERVAL_S / C)
        state = next_rates(
            LimiterState(rate_bps, state.quiet),
            np.where(active, marks, np.nan),
            np.ones(senders),
            Bottlenecks(np.zeros(senders, dtype=np.int64), np.array([sent_bps.sum()]), np.array([C]), count),
            np.full(senders, C),
            floors(np.full(senders, C), INTERVAL_S),
            np.full(senders, C),
            np.full(senders, np.inf),
            constants(senders, cut, beta, slow, fast, 4, gamma),
        )
    first, last = int(7 / INTERVAL_S), int(10 / INTERVAL_S)
    got = np.array(history)[first:last].mean(axis=0)
    jain = got.sum() ** 2 / (senders * (got**2).sum())
    alone = next(n for n, use in enumerate(carried[last + 1 :]) if use >= 0.95) * INTERVAL_S
    return np.mean(carried[first:last]), jain, got[newcomer] / (C / senders), alone


@pytest.mark.parametrize("senders", [2, 4, 8])
@pytest.mark.parametrize(
    ("law", "use", "jain", "newcomer", "alone_s"),
    [
        ({"cut": 0, "beta": 0.25, "slow": 0.12, "fast": 0.12}, 0.88, 0.97, (0.85, 1.0), 0.6),
        ({"cut": 0, "beta": 0.5, "slow": 0.06, "fast": 0.06}, 0.84, 0.97, (0.8, 1.0), 0.9),
        ({"cut": 1, "beta": 0.1, "slow": 0.06, "fast": 0.06}, 0.97, 0.99, (0.85, 1.05), 0.9),
        ({"cut": 2, "slow": 0.02, "fast": 0.2}, 0.99, 0.99, (0.97, 1.03), 0.6),
    ],
    ids=["the paper's", "deeper cuts", "to the load", "to the level"],
)
def test_what_the_law_does_at_the_loops_interval(senders, law, use, jain, newcomer, alone_s):
    got = simulate(senders, **law)
    assert got[0] == pytest.approx(use, abs=0.03)
    assert got[1] >= jain
    assert newcomer[0] <= got[2] <= newcomer[1]
    assert got[3] <= alone_s


def test_the_printed_constants_do_not_carry_over_to_the_loops_interval():
    """Per marked frame they are neither fair nor quick here: a newcomer of eight has more than twice its share."""
    _, jain, newcomer, alone_s = simulate(8, 0, beta=0.0417, slow=0.002, fast=0.02, start=0.0)
    assert jain < 0.8
    assert newcomer > 2.0
    assert alone_s > 1.0


@given(
    st.lists(st.tuples(st.floats(1e6, C), st.floats(0, 1), st.floats(0.1, 10), st.booleans()), min_size=1, max_size=8)
)
def test_weights_count_only_as_ratios_and_order_not_at_all(rows):
    rate, phi, weight = (np.array([row[n] for row in rows]) for n in range(3))
    phi = np.where([row[3] for row in rows], phi, np.nan)
    for cut in Cut:
        plain = one_step(rate, phi, weight=weight, cut=cut, load_bps=rate.sum())
        scaled = one_step(rate, phi, weight=weight * 7.0, cut=cut, load_bps=rate.sum())
        back = one_step(rate[::-1], phi[::-1], weight=weight[::-1], cut=cut, load_bps=rate.sum())
        assert scaled.rate_bps == pytest.approx(plain.rate_bps, rel=1e-9)
        assert back.rate_bps[::-1] == pytest.approx(plain.rate_bps, rel=1e-9)
        assert ((plain.rate_bps >= 0.01 * C) & (plain.rate_bps <= C)).all()
