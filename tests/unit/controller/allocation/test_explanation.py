"""Explanations against an oracle: raise, or lift, each bound of an entry, and see what the algorithm grants."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.algorithms import ALGORITHMS
from support.allocation_requests import one_receiver

from controller.allocation import AllocationInput
from controller.allocation.explanation import (
    DEMAND,
    FAIR_RATE,
    NOTHING_TO_SEND,
    RECEIVE_LIMIT,
    SEND_LIMIT,
    SHARING,
    constraint_name,
    explain_network,
    explain_receiver,
)
from controller.allocation.max_min import BY_DEMAND
from controller.allocation.network_max_min import Constraints, NetworkGrants, allocate_network, constraint_load
from controller.dets.forward_explicit import RATE
from controller.errors import InvalidValueError
from controller.policy.registry import make_policy

OFTEN = settings(max_examples=200)
LITTLE = 1.001
HUGE = 1e15
SAME = 1e-9
seeds = st.integers(0, 2**32 - 1)
TWO = {"limit_bps": np.full(2, 10.0), "received_bps": np.zeros(2)}  # receivers


# -- one receiver


def receiver(rng):
    """One receiver of some senders: some at their capacity, some silent, some that send less than they may."""
    entries = int(rng.integers(1, 9))
    granted_bps = rng.lognormal(17.0, 1.5, entries)
    return AllocationInput(
        offsets=np.array([0, entries]),
        limit_bps=rng.lognormal(19.0, 1.0, 1),
        received_bps=rng.lognormal(19.0, 1.0, 1),
        measured_bps=granted_bps * rng.choice([1.0, 0.97, 0.5], entries),
        granted_bps=granted_bps,
        available_bps=rng.lognormal(18.0, 1.5, entries),
        drops=np.zeros(entries, dtype=np.bool_),
        weight=np.where(rng.random(entries) < 0.5, 1.0, rng.lognormal(0.0, 1.0, entries)),
        active=rng.random(entries) < 0.9,
    )


def put(column, row, value):
    column = column.copy()
    column[row] = value
    return column


def with_bounds(requests, entry, words, change):
    """The same requests with some of the two limits of an entry changed."""
    if SEND_LIMIT in words:
        changed_bps = put(requests.available_bps, entry, change(requests.available_bps[entry]))
        requests = replace(requests, available_bps=changed_bps)
    if RECEIVE_LIMIT in words:
        requests = replace(requests, limit_bps=put(requests.limit_bps, 0, change(requests.limit_bps[0])))
    return requests


@pytest.mark.parametrize(
    ("name", "parameters"), [*((name, {}) for name in ALGORITHMS), ("sp", {"headroom": 0.1}), ("fp", {"headroom": 0.1})]
)
@OFTEN
@given(seeds, st.booleans())
def test_what_binds_an_entry_of_a_receiver_is_what_lets_it_have_more(name, parameters, seed, started):
    rng = np.random.default_rng(seed)
    requests, algorithm = receiver(rng), make_policy(name, parameters)
    state = algorithm.first_state(1)
    if started:
        _, state = algorithm.allocate(requests, state)
    entry = int(rng.integers(requests.entries))

    def granted(changed, memory=state):
        return algorithm.allocate(changed, memory)[0][entry]

    why, grant = explain_receiver(algorithm.allocate, requests, state, entry), granted(requests)
    assert why.grant_bps == grant
    if not requests.active[entry]:
        assert why.constraint == NOTHING_TO_SEND
        return
    limits, named = (SEND_LIMIT, RECEIVE_LIMIT), why.constraint.split(" and ")

    def rises(words):
        return granted(with_bounds(requests, entry, words, lambda x: x * LITTLE)) > grant * (1 + SAME)

    raising = [one for one in limits if rises([one])]
    if set(named) <= set(limits):
        assert raising in (named, [])
        assert rises(named)
        lifted = with_bounds(requests, entry, named, lambda x: HUGE)
        assert why.lifted_bps == granted(lifted)
        left = [one for one in limits if one not in named]
        more = granted(with_bounds(lifted, entry, left, lambda x: x * LITTLE)) > why.lifted_bps * (1 + SAME)
        assert (why.next_constraint in left) == (more and len(left) > 0)
        return
    assert raising == []
    if why.constraint == FAIR_RATE:
        higher = {RATE: state[RATE] * LITTLE}
        assert granted(requests, higher) > grant * (1 + SAME)
        assert why.lifted_bps == granted(requests, {RATE: np.array([HUGE])})
    elif why.constraint == DEMAND:
        more_bps = put(requests.measured_bps, entry, requests.measured_bps[entry] * LITTLE)
        assert granted(replace(requests, measured_bps=more_bps)) > grant * (1 + SAME)
    else:
        assert (name, why.constraint) == ("fp", SHARING)  # it pairs senders: a little more may pair them otherwise


def greedy(limit_bps, available_bps):
    granted_bps = [limit_bps / len(available_bps)] * len(available_bps)
    return one_receiver(limit_bps, granted_bps, available_bps=available_bps, received_bps=limit_bps)


@pytest.mark.parametrize("name", ["fs", "sp", "fp", "level"])
@pytest.mark.parametrize(
    ("entry", "bound", "place", "sharers", "lifted", "following"),
    [
        (0, SEND_LIMIT, 0, 0, 40.0, RECEIVE_LIMIT),
        (1, RECEIVE_LIMIT, 1, 3, 60.0, SEND_LIMIT),
        (2, RECEIVE_LIMIT, 1, 3, 90.0, SEND_LIMIT),
    ],
)
def test_without_its_own_limit_an_entry_has_its_share(name, entry, bound, place, sharers, lifted, following):
    """Of 120, with 20 for the first and 50 for the others: without its own limit the first would have 40."""
    algorithm, requests = make_policy(name), greedy(120.0, [20.0, 60.0, 90.0])
    why = explain_receiver(algorithm.allocate, requests, algorithm.first_state(1), entry)
    assert (why.constraint, why.rank, why.sharers) == (bound, place, sharers)
    assert why.lifted_bps == pytest.approx(lifted)
    assert why.next_constraint == following


def test_two_equal_bounds_are_both_named():
    algorithm = make_policy("fs")
    why = explain_receiver(algorithm.allocate, greedy(90.0, [30.0, 80.0, 80.0]), algorithm.first_state(1), 0)
    assert why.constraint == f"{SEND_LIMIT} and {RECEIVE_LIMIT}"


def test_a_fair_rate_that_falls_by_half_does_not_look_at_the_limit():
    algorithm = make_policy("fe")
    requests = replace(greedy(100.0, [90.0, 90.0]), received_bps=np.array([500.0]))
    _, state = algorithm.allocate(requests, algorithm.first_state(1))
    why = explain_receiver(algorithm.allocate, requests, state, 0)
    assert (why.constraint, why.grant_bps) == (FAIR_RATE, 25.0)
    assert (why.lifted_bps, why.next_constraint) == (90.0, SEND_LIMIT)


@pytest.mark.parametrize(
    ("requests", "entry", "refusal"),
    [
        (greedy(10.0, [5.0, 5.0]), -1, "there are 2"),
        (greedy(10.0, [5.0, 5.0]), 2, "there are 2"),
        (replace(greedy(10.0, [5.0]), offsets=np.array([0, 1, 1]), **TWO), 0, "receivers: 2 must be 1"),
    ],
)
def test_what_is_no_entry_of_one_receiver_is_refused(requests, entry, refusal):
    algorithm = make_policy("fs")
    with pytest.raises(InvalidValueError, match=refusal):
        explain_receiver(algorithm.allocate, requests, algorithm.first_state(requests.receivers), entry)


# -- the whole network


def grants_of(paths, constraints, demand_bps, weight):
    return NetworkGrants(
        *allocate_network(paths, constraints, demand_bps, weight)[:2], demand_bps, np.empty(0, np.int64)
    )


def network(rng):
    """VNs at one switch with ports of their own, many rates in tens, so that bounds are often equal."""
    vns, flows = int(rng.integers(2, 5)), int(rng.integers(1, 8))
    limits = [rng.integers(1, 13, vns) * 10.0 for _ in range(2)]
    tops = [limit * rng.choice([1.0, 1.0, 1.5, 2.0, 4.5], vns) for limit in limits]
    links_bps = rng.integers(2, 31, 2 * vns) * 10.0
    constraints = Constraints.build(*limits, links_bps, *tops)
    pairs = np.array([(s, r) for s in range(vns) for r in range(vns) if s != r])
    pairs = pairs[np.sort(rng.permutation(len(pairs))[:flows])]
    link = np.column_stack([pairs[:, 0], vns + pairs[:, 1]]).ravel()
    paths = constraints.paths(pairs[:, 0], pairs[:, 1], np.arange(0, len(link) + 1, 2), link)
    count = len(pairs)
    demand_bps = np.where(rng.random(count) < 0.5, 1e6, rng.integers(1, 20, count) * 5.0)
    weight = np.where(rng.random(count) < 0.7, 1.0, rng.lognormal(0.0, 0.7, count))
    return paths, constraints, demand_bps, weight


@OFTEN
@given(seeds)
def test_grants_of_the_network_are_within_every_bound_and_leave_nothing_that_can_be_used(seed):
    paths, constraints, demand_bps, weight = network(np.random.default_rng(seed))
    grants, guaranteed, bound = allocate_network(paths, constraints, demand_bps, weight)
    assert (grants >= guaranteed).all()
    assert (grants <= demand_bps * (1 + 1e-12)).all()
    assert (constraint_load(paths, guaranteed) <= constraints.guaranteed_bps * (1 + 1e-12)).all()
    use = constraint_load(paths, grants)
    assert (use <= constraints.ceiling_bps * (1 + 1e-12)).all()
    full = use >= constraints.ceiling_bps * (1 - 1e-9)
    for flow, its in enumerate(np.split(paths.constraint, paths.offsets[1:-1])):
        if bound[flow] == BY_DEMAND:
            assert grants[flow] >= demand_bps[flow] * (1 - 1e-12)
        else:
            assert bound[flow] in its
            assert full[bound[flow]]


def changed(constraints, demand_bps, entry, bounds, factor, apart):
    """The same problem with some bounds multiplied: a limit is held by its ceiling, unless they are one."""
    low, high, demand_bps = constraints.guaranteed_bps.copy(), constraints.ceiling_bps.copy(), demand_bps.copy()
    rows = len(low)
    for bound in bounds:
        if bound == -1:
            demand_bps[entry] = min(demand_bps[entry] * factor, HUGE)
        elif bound >= rows or not apart[bound]:
            high[bound % rows] *= factor
    for bound in bounds:
        if 0 <= bound < rows:
            low[bound] = min(low[bound] * factor, high[bound])
    return replace(constraints, guaranteed_bps=low, ceiling_bps=high), demand_bps


@settings(OFTEN, max_examples=500)
@example(seed=179)  # a bound that can be left out once another one has gone
@given(seeds)
def test_what_binds_an_entry_of_the_network_is_what_lets_it_have_more(seed):
    rng = np.random.default_rng(seed)
    paths, constraints, demand_bps, weight = network(rng)
    entry, rows = int(rng.integers(paths.flows)), len(constraints)
    own = paths.constraint[paths.offsets[entry] : paths.offsets[entry + 1]].tolist()
    apart = constraints.ceiling_bps > constraints.guaranteed_bps
    own = [-1, *own, *(row + rows for row in own if apart[row])]

    def rate(problem, bounds, factor):
        capacities, wanted = changed(*problem, entry, bounds, factor, apart)
        return allocate_network(paths, capacities, wanted, weight)[0][entry]

    def raising(problem, bounds):
        now = rate(problem, [], LITTLE)
        return [one for one in bounds if rate(problem, [one], LITTLE) > now * (1 + SAME)]

    problem = constraints, demand_bps
    why = explain_network(paths, constraints, grants_of(paths, *problem, weight), weight, entry, str)
    named = [int(word) for word in why.constraint.split(" and ")]
    assert sorted(raising(problem, own)) in (sorted(named), [])
    assert rate(problem, named, LITTLE) > why.grant_bps * (1 + SAME)
    for one in named if len(named) > 1 and not raising(problem, own) else []:  # none of them could be left out
        assert rate(problem, [other for other in named if other != one], LITTLE) <= why.grant_bps * (1 + SAME)
    assert why.lifted_bps == pytest.approx(rate(problem, named, np.inf), rel=1e-12)
    lifted = changed(*problem, entry, named, np.inf, apart)
    following = (
        [] if why.next_constraint == "no other limit" else [int(word) for word in why.next_constraint.split(" and ")]
    )
    assert sorted(raising(lifted, own)) in (sorted(following), [])
    assert not following or rate(lifted, following, LITTLE) > why.lifted_bps * (1 + SAME)


def test_a_guarantee_that_is_used_up_binds_though_the_excess_is_bound_elsewhere():
    """VN 1 sends 90 to VNs 0 and 2: 30 are guaranteed by VN 0, which may borrow up to 60, the rest by VN 2."""
    constraints = Constraints.build(
        np.array([70.0, 90.0, 40.0]), np.array([30.0, 40.0, 90.0]), np.empty(0), None, np.array([60.0, 40.0, 180.0])
    )
    none = np.zeros(3, dtype=np.int64)
    paths = constraints.paths(np.array([1, 1]), np.array([0, 2]), none, np.empty(0, dtype=np.int64))
    demand_bps, weight = np.full(2, 1e6), np.ones(2)
    words = partial(constraint_name, constraints, "VN {}".format, str)
    why = explain_network(paths, constraints, grants_of(paths, constraints, demand_bps, weight), weight, 0, words)
    assert (why.grant_bps, why.constraint) == (30.0, "VN 0's receive limit")
    assert (why.lifted_bps, why.next_constraint) == (45.0, "VN 1's send limit")
