"""Guarantees, ceilings, demands and explanations of the network-wide allocation."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from controller.allocation.explanation import constraint_name, explain_network
from controller.allocation.max_min import BY_DEMAND
from controller.allocation.network_max_min import (
    Constraints,
    FlowCounters,
    NetworkGrants,
    allocate_network,
    estimate_demands,
)
from controller.errors import ColumnError, InvalidValueError

M = 1e6


def star(limits, ceilings, capacity, pairs):
    """VNs at a switch: ``limits`` and ``ceilings`` [(send, receive)], VN v at port v // 2 (two VLANs a port)."""
    ports = (len(limits) + 1) // 2
    limits, ceilings = np.array(limits, dtype=float), np.array(ceilings, dtype=float)
    constraints = Constraints.build(
        limits[:, 0].copy(),
        limits[:, 1].copy(),
        np.full(2 * ports, float(capacity)),
        ceilings[:, 0].copy(),
        ceilings[:, 1].copy(),
    )
    pairs = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    links = np.column_stack([pairs[:, 0] // 2, ports + pairs[:, 1] // 2]).ravel()
    return constraints, constraints.paths(pairs[:, 0], pairs[:, 1], np.arange(0, len(links) + 1, 2), links)


def counters(measured, granted, dropped=None, active=None):
    measured = np.array(measured, dtype=float)
    dropped = np.zeros(len(measured)) if dropped is None else np.array(dropped, dtype=float)
    active = np.ones(len(measured), dtype=bool) if active is None else np.array(active)
    return FlowCounters(measured, np.array(granted, dtype=float), dropped, active)


def granted(paths, constraints, seen, weight, least_bps=1e6):
    """The grants for what these counters show, with the default parameters."""
    demand_bps = estimate_demands(seen, least_bps, 2.0, 0.1)
    grant_bps, guaranteed_bps, bound = allocate_network(paths, constraints, demand_bps, weight)
    return NetworkGrants(grant_bps, guaranteed_bps, demand_bps, np.where(seen.active, bound, BY_DEMAND))


# Two VLANs (even and odd VNs) at three ports of 100 Mb/s; limits 40 and 50 Mb/s; either may borrow the rest.
LIMITS = [(40 * M, 40 * M), (50 * M, 50 * M)] * 3
CEILINGS = [(100 * M, 100 * M)] * 6
PAIRS = [(0, 2), (1, 3)]


def test_idle_capacity_is_lent_and_guarantees_come_first():
    constraints, paths = star(LIMITS, CEILINGS, 100 * M, PAIRS)
    alone, guaranteed, _ = allocate_network(paths, constraints, np.array([np.inf, 0.0]), np.ones(2))
    np.testing.assert_allclose(alone, [100 * M, 0.0])
    np.testing.assert_allclose(guaranteed, [40 * M, 0.0])
    both, guaranteed, _ = allocate_network(paths, constraints, np.full(2, np.inf), np.ones(2))
    np.testing.assert_allclose(guaranteed, [40 * M, 50 * M])
    np.testing.assert_allclose(both, [45 * M, 55 * M])
    weighted, _, _ = allocate_network(paths, constraints, np.full(2, np.inf), np.array([4.0, 1.0]))
    np.testing.assert_allclose(weighted, [48 * M, 52 * M])


def test_what_was_lent_is_taken_back_with_the_next_grants():
    """VLAN 2 was idle with its least grant; it fills that for one interval, and has its limit with the next."""
    constraints, paths = star(LIMITS, CEILINGS, 100 * M, PAIRS)
    idle = granted(paths, constraints, counters([98 * M, 0], [98 * M, 1 * M], active=[True, False]), np.ones(2))
    np.testing.assert_allclose(idle.grant_bps, [100 * M, 0.0])
    back = granted(paths, constraints, counters([98 * M, 1 * M], [98 * M, 1 * M], [0, 60 * M]), np.ones(2))
    np.testing.assert_allclose(back.grant_bps, [45 * M, 55 * M])


def test_without_ceilings_nobody_gets_more_than_its_limit():
    constraints, paths = star(LIMITS, LIMITS, 100 * M, PAIRS)
    grants, guaranteed, bound = allocate_network(paths, constraints, np.full(2, np.inf), np.ones(2))
    np.testing.assert_allclose(grants, [40 * M, 50 * M])
    np.testing.assert_array_equal(guaranteed, grants)
    assert set(bound) <= {0, 1, 6 + 2, 6 + 3}


def test_the_guarantee_does_not_depend_on_ceilings():
    demand = np.full(2, np.inf)
    plain = allocate_network(*reversed(star(LIMITS, LIMITS, 100 * M, PAIRS)), demand, np.ones(2))[0]
    lent = allocate_network(*reversed(star(LIMITS, CEILINGS, 100 * M, PAIRS)), demand, np.ones(2))[1]
    np.testing.assert_array_equal(plain, lent)


@pytest.mark.parametrize(
    ("measured", "granted", "dropped", "wanted"),
    [
        (5.0, 10.0, 0.0, 5.5),  # sends what it wants: headroom
        (9.8, 10.0, 0.0, 20.0),  # fills its grant: probed
        (9.0, 10.0, 0.3, 20.0),  # drops a little, as TCP does: probed
        (10.0, 10.0, 7.0, 17.0),  # drops much: wants what it offers
        (10.0, 10.0, 70.0, 80.0),  # the same, beyond the probe
        (30.0, np.inf, 0.0, 60.0),  # has no limit yet
        (0.0, 10.0, 0.0, 1.0),  # has not sent yet: the least
        (0.0, 0.0, 0.0, 1.0),  # was granted nothing
    ],
)
def test_demands(measured, granted, dropped, wanted):
    given_counters = counters([measured, measured], [granted, granted], [dropped, dropped], [True, False])
    np.testing.assert_allclose(estimate_demands(given_counters, 1.0, 2.0, 0.1), [wanted, 0.0])


def test_a_sender_that_is_not_greedy_is_not_probed_for_ever():
    rate_bps = np.array([1.0])
    for _ in range(20):
        rate_bps = estimate_demands(counters(np.minimum(rate_bps, 20.0), rate_bps), 0.1, 2.0, 0.1)
    np.testing.assert_allclose(rate_bps, [22.0])


def test_core_links_bind_and_the_explanation_says_so():
    """Two senders behind a core link of 60, one receiver in front; and one sender next to the receiver."""
    constraints = Constraints.build(np.full(4, 50.0), np.full(4, 200.0), np.array([60.0]))
    paths = constraints.paths(np.array([0, 1, 2]), np.array([3, 3, 3]), np.array([0, 1, 2, 2]), np.array([0, 0]))
    weight = np.array([1.0, 2.0, 1.0])
    grants = granted(paths, constraints, counters([40.0] * 3, [40.0] * 3, [90.0] * 3), weight, 1.0)
    np.testing.assert_allclose(grants.grant_bps, [20.0, 40.0, 50.0])
    words = partial(constraint_name, constraints, "vn{}".format, "core{}".format)
    why = [explain_network(paths, constraints, grants, weight, entry, words) for entry in range(3)]
    assert (why[0].constraint, why[0].rank, why[0].sharers) == ("link core0", 2, 2)
    assert (why[0].lifted_bps, why[0].next_constraint) == (50.0, "vn0's send limit")
    assert (why[1].rank, why[1].lifted_bps) == (1, 50.0)
    assert (why[2].constraint, why[2].lifted_bps, why[2].next_constraint) == ("vn2's send limit", 130.0, "its demand")
    assert str(why[0]) == "20; bound by link core0, share 2 of 2; without it 50, bound by vn0's send limit"


def test_an_entry_that_has_what_it_demands_is_told_what_binds_next():
    constraints, paths = star(LIMITS, CEILINGS, 100 * M, PAIRS)
    grants = granted(paths, constraints, counters([10 * M, 10 * M], [50 * M, 50 * M]), np.ones(2))
    why = explain_network(paths, constraints, grants, np.ones(2), 0, partial(constraint_name, constraints, str, str))
    assert why.constraint == "its demand"
    np.testing.assert_allclose((why.grant_bps, why.lifted_bps), (11 * M, 89 * M))
    assert (why.rank, why.sharers) == (0, 0)


def test_bad_input_is_named():
    with pytest.raises(ColumnError, match=r"send_ceiling_bps\[1\]: 4.0 must not be below the limit 5"):
        Constraints.build(np.full(2, 5.0), np.full(2, 5.0), np.ones(1), np.array([5.0, 4.0]))
    with pytest.raises(ColumnError, match=r"link_capacity_bps\[0\]"):
        Constraints.build(np.full(2, 5.0), np.full(2, 5.0), np.zeros(1))
    with pytest.raises(InvalidValueError, match="receive_limit_bps"):
        Constraints.build(np.full(2, 5.0), np.full(3, 5.0), np.ones(1))
    constraints = Constraints.build(np.full(2, 5.0), np.full(2, 5.0), np.ones(1))
    one, none = np.array([0]), np.array([0, 0])
    with pytest.raises(ColumnError, match=r"receiver\[0\]: 2"):
        constraints.paths(one, np.array([2]), none, np.array([], dtype=np.int64))
    with pytest.raises(ColumnError, match=r"link\[0\]: 1"):
        constraints.paths(one, one, np.array([0, 1]), np.array([1]))
    for receiver, offsets in ((np.array([0, 1]), none), (one, np.array([0]))):
        with pytest.raises(InvalidValueError, match="and link_offsets must fit the 1 senders"):
            constraints.paths(one, receiver, offsets, np.array([], dtype=np.int64))
    with pytest.raises(ColumnError, match=r"dropped_bps\[0\]"):
        counters([1.0], [1.0], [np.nan])
    with pytest.raises(InvalidValueError, match=r"granted_bps: 'float64\(2,\)' must be float64 of shape \(1,\)"):
        counters([1.0], [1.0, 1.0], [0.0])
