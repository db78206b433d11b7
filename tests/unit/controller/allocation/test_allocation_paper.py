"""The four algorithms against a plain transcription of the paper, and the promises they make."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import reference_allocation as plain
from support.algorithms import ALGORITHMS
from support.allocation_requests import one_receiver
from support.native_comparison import numpy_alone

from controller.allocation import AllocationInput, native
from controller.dets.slow_probe import SETTLED
from controller.policy.registry import make_policy, policies

# What the paper's and the project's own algorithms share, and others need not.
PAPER = ("fs", "sp", "fp", "fe", "level")
# Rounding only: sums taken in another order.
CLOSE = 1e-9


# Zeroes, equal values and values at the limits of each other are where the cases meet, so they are drawn often.
rates = st.one_of(
    st.sampled_from([0.0, 1e3, 1e6, 2e7, 1e8, 1e9]),
    st.floats(0.0, 1e12, allow_subnormal=False),
    st.floats(1e-6, 1.0),
)
weights = st.one_of(st.just(1.0), st.sampled_from([1e-6, 0.5, 2.0, 1e6]), st.floats(0.1, 10.0))
entries = st.tuples(
    rates,
    st.one_of(rates, st.just(math.inf)),
    rates,
    st.one_of(st.just(0.0), rates),
    weights,
    st.sampled_from([True, True, True, False]),
)
limits = st.one_of(st.sampled_from([1e3, 1e8, 4e8, 1e12]), st.floats(1.0, 1e12))
receivers = st.tuples(limits, rates, st.lists(entries, max_size=12))
tables = st.lists(receivers, max_size=6)


def requests_of(table):
    """The columns of receivers (limit, received, [(measured, granted, available, dropped, weight, active)])."""
    rows = [row for _, _, rows in table for row in rows]
    columns = [np.array([row[i] for row in rows], dtype=np.float64) for i in range(5)]
    return AllocationInput(
        offsets=np.concatenate([[0], np.cumsum([len(rows) for _, _, rows in table])]).astype(np.int64),
        limit_bps=np.array([limit for limit, _, _ in table], dtype=np.float64),
        received_bps=np.array([received for _, received, _ in table], dtype=np.float64),
        measured_bps=columns[0],
        granted_bps=columns[1],
        available_bps=columns[2],
        drops=columns[3] > 0.0,
        weight=columns[4],
        active=np.array([row[5] for row in rows], dtype=np.bool_),
    )


def decide(algorithm, requests, state):
    """Grants and the next state; the compiled form and numpy give the same bits."""
    grants, after = algorithm.allocate(requests, state)
    with numpy_alone(native):
        plainly, _ = algorithm.allocate(requests, state)
    np.testing.assert_array_equal(grants, plainly)
    return grants, after


def allocate(name, requests, **parameters):
    algorithm = make_policy(name, parameters)
    grants, _ = decide(algorithm, requests, algorithm.first_state(requests.receivers))
    return grants


def nodes_of(rows):
    return [plain.SenderNode(*row) for row in rows]


def by_receiver(table, rule):
    """The grants of a plain algorithm, ``rule(number, limit, received, nodes)`` of one receiver after the other."""
    grants = []
    for number, (limit, received, rows) in enumerate(table):
        nodes = nodes_of(rows)
        rule(number, limit, received, nodes)
        grants += [node.grant for node in nodes]
    return grants


def slices(requests):
    return [slice(a, b) for a, b in zip(requests.offsets[:-1], requests.offsets[1:], strict=True)]


# --- the same as the paper's pseudo-code ------------------------------------------------------------------------------


@given(tables)
def test_fair_share_is_the_papers(table):
    expected = by_receiver(table, lambda _number, limit, _received, nodes: plain.fair_share(limit, nodes))
    np.testing.assert_allclose(allocate("fs", requests_of(table)), expected, rtol=CLOSE, atol=1e-9)


@given(tables, st.sampled_from([0.0, 0.05, 1.0]))
def test_fair_level_is_as_written_down(table, booking):
    requests, algorithm = requests_of(table), make_policy("level", {"booking": booking})
    state, booked = algorithm.first_state(requests.receivers), [None] * len(table)

    def level(number, limit, received, nodes):
        booked[number] = plain.fair_level(limit, received, nodes, booked[number], booking)

    for _ in range(3):
        grants, state = decide(algorithm, requests, state)
        np.testing.assert_allclose(grants, by_receiver(table, level), rtol=CLOSE, atol=1e-6)


def test_fair_level_shares_out_more_only_while_less_than_the_limit_is_received():
    algorithm = make_policy("level", {"booking": 0.05})
    state, sums = algorithm.first_state(1), []
    for received in (50e6, 50e6, 50e6, 110e6, 110e6, 100e6):
        grants, state = decide(algorithm, one_receiver(100e6, [50e6, 50e6], received_bps=received), state)
        sums.append(grants.sum())
    np.testing.assert_allclose(sums, [100e6, 105e6, 105e6, 100e6, 100e6, 100e6])


@given(
    tables,
    st.sampled_from([0.0, 0.1, 0.5]),
    st.sampled_from([1e-6, 0.01, 1.0]),
    st.sampled_from([0.0, 0.0, 0.06, 0.1, 1.0]),
)
def test_slow_probe_is_the_papers_and_headroom_as_written_down(table, inflation, floor, headroom):
    expected = by_receiver(
        table, lambda _number, limit, _received, nodes: plain.slow_probe(limit, nodes, inflation, floor, headroom)
    )
    grants = allocate("sp", requests_of(table), inflation=inflation, floor=floor, headroom=headroom)
    np.testing.assert_allclose(grants, expected, rtol=CLOSE, atol=1e-6)


@given(tables, st.sampled_from([1.1, 2.0, 5.0]))
def test_fast_probe_is_the_papers_but_for_ties(table, d):
    """Which of two equal rates comes first, and which side of a bound a value on it falls, is rounding: skip those."""
    requests = requests_of(table)
    grants = allocate("fp", requests, d=d)
    for (limit, _, rows), rows_of in zip(table, slices(requests), strict=True):
        nodes, nudged = nodes_of(rows), nodes_of([(*row[:2], row[2] * (1 + 1e-7), *row[3:]) for row in rows])
        plain.fast_probe(limit, nodes, d, 0.1, 0.01)
        plain.fast_probe(limit * (1 - 1e-7), nudged, d, 0.1, 0.01)
        expected = np.array([node.grant for node in nodes])
        if not _has_near_ties(limit, rows) and np.allclose(
            expected, [node.grant for node in nudged], rtol=1e-5, atol=1e-6
        ):
            # Sums up to the limit are rounded to its last bits, which are all that some senders get.
            np.testing.assert_allclose(grants[rows_of], expected, rtol=1e-6, atol=max(1e-6, 4 * np.spacing(limit)))


def _has_near_ties(limit, rows):
    """Whether two unlike nodes come out of step 1 with the same rate per weight, so that rounding orders them."""
    nodes = nodes_of(rows)
    plain.slow_probe(limit, nodes, 0.1, 0.01)
    full = sorted((node.grant / node.weight, node.weight, node.available) for node in nodes if node.full)
    return any(b[0] - a[0] <= 1e-9 * b[0] and a != b for a, b in itertools.pairwise(full))


def test_a_sender_at_its_capacity_takes_nobodys_turn():
    """Its capacity is 0.99999 b/s: what it has and what it is given add up to less by the last bit."""
    nobody = (0.0, 0.0, 0.0, 0.0, 1.0, False)
    rows = [
        (0.0, 0.75, 0.99999, 1e3, 1e-6, True),
        nobody,
        (0.0, math.inf, 0.0, 0.0, 1e6, True),
        (0.0, 75361652937.34375, 679220112620.0, 1e3, 1.0, True),
        (989284988657.0, math.inf, 1e6, 0.0, 1e-6, True),
        nobody,
        nobody,
        (0.0, math.inf, 1.0, 0.0, 1.0, True),
        (0.0, math.inf, 320779245813.0, 0.0, 0.5, True),
        (0.0, 744465121482.5, 1.0, 1e3, 1.0, True),
    ]
    requests, nodes = requests_of([(1e12, 0.0, rows)]), nodes_of(rows)
    assert allocate("sp", requests)[0] == 0.99999
    plain.fast_probe(1e12, nodes, 1.1, 0.1, 0.01)
    np.testing.assert_allclose(allocate("fp", requests, d=1.1), [node.grant for node in nodes], rtol=1e-9)


def test_a_sender_at_its_capacity_does_not_count_as_one_above_the_mean():
    """The second sender is granted all its capacity by step 1, one ulp more in a sum of two parts; step 3 leaves it."""
    granted = (
        "0x1.a11e8510f842bp+23",
        "0x1.9a2f2639aff1fp+19",
        "0x1.660ea1c3eafc3p+21",
        "0x1.b2f75f48fb8f2p+22",
        "0x1.7f1d85b177809p+21",
    )
    available = (
        "0x1.99c13de102729p+25",
        "0x1.d1774244d188fp+24",
        "0x1.192efd59fe970p+28",
        "0x1.fa0f7c261b6c9p+27",
        "0x1.770d8255c9a5bp+27",
    )
    granted_bps, available_bps = (np.array([float.fromhex(text) for text in column]) for column in (granted, available))
    requests = one_receiver(400e6, granted_bps, available_bps=available_bps, received_bps=granted_bps.sum())
    grants = allocate("fp", requests)
    assert grants[:2].tolist() == available_bps[:2].tolist()
    assert grants.sum() == pytest.approx(400e6, rel=1e-12)


def test_fast_probe_pairs_are_the_papers_on_unequal_rates():
    """The same without the skipping: many receivers of distinct rates, some with little capacity."""
    rng = np.random.default_rng(5)
    table = []
    for _ in range(200):
        count = int(rng.integers(1, 40))
        granted = rng.exponential(1e7, count)
        available = np.where(rng.random(count) < 0.3, granted * rng.uniform(1.0, 1.5, count), 1e9)
        weight = rng.uniform(0.5, 2.0, count)
        rows = [
            (g * rng.uniform(0.9, 1.0), g, a, 0.0, w, True) for g, a, w in zip(granted, available, weight, strict=True)
        ]
        table.append((float(granted.sum() * rng.uniform(0.5, 1.5)), 0.0, rows))
    requests = requests_of(table)
    grants = allocate("fp", requests)
    moved = 0
    for (limit, _, rows), rows_of in zip(table, slices(requests), strict=True):
        nodes = nodes_of(rows)
        plain.slow_probe(limit, nodes, 0.1, 0.01)
        before = [node.grant for node in nodes]
        plain.fast_probe(limit, nodes, 2.0, 0.1, 0.01)
        expected = [node.grant for node in nodes]
        moved += int(not np.allclose(before, expected))
        np.testing.assert_allclose(grants[rows_of], expected, rtol=CLOSE)
    assert moved > 100


@given(tables, st.lists(st.sampled_from([0.0, 0.5, 0.97, 1.0, 1.2, 9.0]), min_size=3, max_size=3))
def test_forward_explicit_is_the_papers(table, received_parts):
    algorithm, rate = make_policy("fe", {"k": 0.6}), [None] * len(table)
    state = algorithm.first_state(len(table))

    def explicit(number, limit, received, nodes):
        rate[number] = plain.forward_explicit(limit, received, nodes, rate[number], 0.6, 0.01)

    for part in received_parts:
        table = [(limit, limit * part, rows) for limit, _, rows in table]
        grants, state = decide(algorithm, requests_of(table), state)
        np.testing.assert_allclose(grants, by_receiver(table, explicit), rtol=CLOSE)


# --- what they promise ------------------------------------------------------------------------------------------------


@given(tables, st.sampled_from(sorted(ALGORITHMS)), st.sampled_from([0.0, 0.1]))
def test_grants_are_within_every_bound(table, name, headroom):
    requests = requests_of(table)
    grants = allocate(name, requests, **({"headroom": headroom} if name in ("sp", "fp") else {}))
    assert (grants >= 0).all()
    assert (grants <= requests.available_bps).all()
    assert (grants[~requests.active] == 0).all()
    if policies[name].sums_within_limit:
        for limit, rows in zip(requests.limit_bps, slices(requests), strict=True):
            assert grants[rows].sum() <= limit * (1 + 1e-9)


@given(tables, st.sampled_from(["fs", "sp", "fp"]), st.sampled_from([0.0, 0.1]))
def test_nothing_is_left_that_somebody_can_send(table, name, headroom):
    requests = requests_of(table)
    grants = allocate(name, requests, **({"headroom": headroom} if name != "fs" else {}))
    for limit, rows in zip(requests.limit_bps, slices(requests), strict=True):
        room = requests.available_bps[rows][requests.active[rows]].sum()
        assert grants[rows].sum() >= min(limit, room) * (1 - 1e-8)


# --- examples ---------------------------------------------------------------------------------------------------------


def test_section_3_example():
    """(80, 80, 20, 20) Mb/s and VN11 stops: SP shares the 80 by what is asked for, FP makes the three equal."""
    requests = one_receiver(200e6, [80e6, 80e6, 20e6, 20e6], active=[False, True, True, True])
    np.testing.assert_allclose(allocate("sp", requests), [0, 80e6 * 5 / 3, 20e6 * 5 / 3, 20e6 * 5 / 3])
    # SP: 133.3, 33.3, 33.3. The first low one doubles to 66.7 at the cost of the high one. That is at 100 then, above
    # the mean; doubling the other would bring it below, so these two get their average.
    np.testing.assert_allclose(allocate("fp", requests), [0, 200e6 / 3, 200e6 / 3, 200e6 / 3])


@pytest.mark.parametrize("senders", [1, 2, 3, 7, 10, 100])
@pytest.mark.parametrize("step_bps", [1.0, 1000.0])
def test_fast_probe_makes_greedy_senders_equal_and_then_stays(senders, step_bps):
    """From any start, with measurements as meters make them; grants in steps of a meter or not."""
    rng = np.random.default_rng(senders)
    limit, granted = 400e6, rng.exponential(400e6 / senders, senders)
    history = []
    for _ in range(60):
        measured = granted * rng.uniform(0.96, 1.3, senders)
        granted = np.floor(allocate("fp", one_receiver(limit, granted, measured_bps=measured)) / step_bps) * step_bps
        history.append(granted)
    constant = next(i for i in range(60) if all((later == history[i]).all() for later in history[i:]))
    assert constant <= 25
    np.testing.assert_allclose(history[-1], limit / senders, rtol=1e-3)
    assert np.ptp(history[-1]) <= step_bps


def test_fast_probe_gives_weights_their_shares():
    granted, weight = np.full(3, 100e6), [1.0, 2.0, 3.0]
    for _ in range(30):
        granted = allocate("fp", one_receiver(300e6, granted, weight=weight))
    np.testing.assert_allclose(granted, [50e6, 100e6, 150e6])


def test_fast_probe_equalises_those_above_senders_of_little_capacity():
    """The deviation: a plain mean of 7 would leave 8 and 12 (both above it) as they are for ever."""
    granted = np.array([1e6, 8e6, 12e6])
    for _ in range(20):
        granted = allocate("fp", one_receiver(21e6, granted, available_bps=[1e6, 50e6, 50e6]))
    np.testing.assert_allclose(granted, [1e6, 10e6, 10e6])


def test_slow_probe_keeps_the_limits_in_force_when_only_rounding_differs_and_silent_senders_change_nothing():
    granted, limit = [400e6 / 7] * 7, 400e6 * (1 + SETTLED / 4)
    assert (allocate("sp", one_receiver(limit, granted)) == granted).all()
    with_silent = one_receiver(limit, [*granted, 3e6], active=[True] * 7 + [False])
    assert allocate("sp", with_silent).tolist() == [*granted, 0.0]


@pytest.mark.parametrize("name", ["sp", "fp"])
@pytest.mark.parametrize("wants", [1e6, 10e6, 18e6])
def test_with_headroom_nobody_is_squeezed_and_probed_in_turns(name, wants):
    """One that wants little next to one that is greedy: the grants become constant, and nearly all is used."""
    rng, granted, history = np.random.default_rng(1), np.array([20e6, 20e6]), []
    for _ in range(40):
        measured = np.minimum(granted, [wants * rng.uniform(0.98, 1.0), 40e6])
        requests = one_receiver(40e6, granted, measured_bps=measured)
        granted = allocate(name, requests, headroom=0.1)
        history.append(granted)
    assert all((later == history[15]).all() for later in history[15:])
    assert wants < granted[0] < 1.25 * wants
    assert granted.sum() == pytest.approx(40e6)


def test_headroom_does_not_starve_one_among_many_that_want_more_than_their_share():
    """Nine want 4.3 of 40 Mb/s, where the fair share is 4: the tenth is not left with the rest of 0.1."""
    granted = np.array([4.4e6] * 9 + [0.1e6])
    for _ in range(60):
        granted = allocate(
            "fp", one_receiver(40e6, granted, measured_bps=np.minimum(granted, [4.3e6] * 9 + [4e7])), headroom=0.1
        )
    assert granted[9] > 3.5e6


@pytest.mark.parametrize("name", ["sp", "fp"])
def test_a_sender_that_was_granted_nothing_comes_back(name):
    """Multiplying leads away from nothing only with the floor under every request."""
    granted = np.array([40e6, 0.0])
    for _ in range(100):
        granted = allocate(name, one_receiver(40e6, granted, measured_bps=np.minimum(granted, [10e6, 40e6])))
    assert granted[1] > 15e6


@pytest.mark.parametrize("name", PAPER)
def test_nobody_asks_for_anything(name):
    requests = one_receiver(30e6, [1e6] * 3, measured_bps=[0.0] * 3)
    np.testing.assert_allclose(allocate(name, requests), [10e6] * 3)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@pytest.mark.parametrize("table", [[], [(1e6, 0.0, [])], [(1e6, 0.0, [(1.0, 1.0, 1.0, 0.0, 1.0, False)])]])
def test_no_receivers_no_entries_nobody_active(name, table):
    assert not allocate(name, requests_of(table)).any()


def test_columns_are_not_changed():
    table = [(1e8, 2e8, [(5e7, 5e7, 8e7, 0.0, 1.0, True), (1e7, 4e7, 9e7, 1.0, 2.0, True)])]
    for name in ALGORITHMS:
        requests, untouched = requests_of(table), requests_of(table)
        allocate(name, requests)
        for column in ("measured_bps", "granted_bps", "available_bps", "active"):
            np.testing.assert_array_equal(getattr(requests, column), getattr(untouched, column))
