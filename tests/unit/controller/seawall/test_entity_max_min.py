"""Max-min between entities: a sender's share of a link does not depend on how many entries it has."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.allocation.max_min import BY_DEMAND, FlowPaths, max_min
from controller.errors import InvalidValueError
from controller.seawall.entity_max_min import MAX_ROUNDS, entity_max_min


def paths_of(ways, constraints):
    offsets = np.concatenate([[0], np.cumsum([len(way) for way in ways])]).astype(np.int64)
    return FlowPaths(offsets, np.array([link for way in ways for link in way], dtype=np.int64), constraints)


def share(ways, entity, capacity, demand=None, weight=None):
    flows = len(ways)
    return entity_max_min(
        paths_of(ways, len(capacity)),
        np.array(entity, dtype=np.int64),
        np.array(capacity, dtype=np.float64),
        np.full(flows, 1e9) if demand is None else np.array(demand, dtype=np.float64),
        np.ones(flows) if weight is None else np.array(weight, dtype=np.float64),
    )


@pytest.mark.parametrize(
    ("ways", "entity", "capacity", "given", "rate_bps", "bound"),
    [
        # Three destinations gain nothing.
        ([[0]] * 4, [0, 0, 0, 1], [90.0], {}, [15, 15, 15, 45], [0, 0, 0, 0]),
        # Weights are of the entities.
        ([[0]] * 3, [0, 0, 1], [80.0], {"weight": [3, 3, 1]}, [30, 30, 20], [0, 0, 0]),
        # What one entry does not want its entity has.
        ([[0]] * 3, [0, 0, 1], [100.0], {"demand": [10, 1000, 1000]}, [10, 40, 50], [BY_DEMAND, 0, 0]),
        # Parking lot, one entity over both links: the paper's share is half of each link.
        ([[0, 1], [0], [1]], [0, 1, 2], [100.0, 100.0], {}, [50, 50, 50], [1, 0, 1]),
        # An entry held elsewhere leaves its part to its siblings.
        ([[0, 1], [0], [0]], [0, 0, 1], [100.0, 4.0], {}, [4, 46, 50], [1, 0, 0]),
        # What it sends elsewhere does not cost it its part: 35 to 65 if it is slowed as one.
        ([[0], [1], [0]], [0, 0, 1], [100.0, 30.0], {}, [50, 30, 50], [0, 1, 0]),
    ],
)
def test_entities_share_links(ways, entity, capacity, given, rate_bps, bound):
    result = share(ways, entity, capacity, **given)
    assert result.rate_bps == pytest.approx(rate_bps)
    assert result.bound.tolist() == bound


def test_two_links_that_wait_for_each_other_are_used_up():
    ways = [[0, 1], [1], [0, 1], [0], [0, 1]]
    result = share(ways, [0, 0, 0, 1, 1], [1.0, 1.0])
    for link in (0, 1):
        assert sum(rate for way, rate in zip(ways, result.rate_bps, strict=True) if link in way) == pytest.approx(1.0)


def test_demands_that_are_met_one_by_one_end_in_time():
    """Each is a little above the share that the one before leaves."""
    flows = 400
    demand = [1.0 / flows * (1 + 0.99 * one / flows) for one in range(flows)]
    result = share([[0]] * flows, list(range(flows)), [1.0], demand=demand)
    assert result.rounds <= MAX_ROUNDS
    assert 0.99 <= result.rate_bps.sum() <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("entity", "weight", "refusal"),
    [([0, 0], [1, 2], r"weight.*must be one of all flows of entity 0"), ([0], None, r"entity.*shape \(2,\)")],
)
def test_columns_that_do_not_fit_are_refused(entity, weight, refusal):
    with pytest.raises(InvalidValueError, match=refusal):
        share([[0], [0]], entity, [1.0], weight=weight)


@st.composite
def problems(draw, entities=4):
    links = draw(st.integers(1, 4))
    flows = draw(st.integers(1, 9))
    ways = [sorted(draw(st.sets(st.integers(0, links - 1), min_size=1))) for _ in range(flows)]
    entity = [draw(st.integers(0, entities - 1)) for _ in range(flows)]
    capacity = [draw(st.floats(1.0, 1000.0)) for _ in range(links)]
    demand = [draw(st.one_of(st.just(1e9), st.floats(0.0, 500.0))) for _ in range(flows)]
    weights = [draw(st.floats(0.1, 10.0)) for _ in range(entities)]
    return ways, entity, capacity, demand, [weights[one] for one in entity]


@given(problems())
def test_nothing_is_overbooked_and_everybody_is_bound(problem):
    ways, entity, capacity, demand, weight = problem
    result = share(ways, entity, capacity, demand, weight)
    used = np.zeros(len(capacity))
    for way, rate in zip(ways, result.rate_bps, strict=True):
        used[way] += rate
    assert (used <= np.array(capacity) * (1 + 1e-9)).all()
    assert (result.rate_bps <= np.array(demand) * (1 + 1e-9)).all()
    for flow, bound in enumerate(result.bound.tolist()):
        if bound == BY_DEMAND:
            assert result.rate_bps[flow] == pytest.approx(demand[flow])
        else:
            assert bound in ways[flow]
            assert used[bound] == pytest.approx(capacity[bound])


@given(problems())
def test_entities_of_one_flow_are_plain_max_min(problem):
    ways, entity, capacity, demand, weight = problem
    each = list(range(len(entity)))
    ours = share(ways, each, capacity, demand, weight)
    plain = max_min(paths_of(ways, len(capacity)), np.array(capacity), np.array(demand), np.array(weight))
    assert ours.rate_bps == pytest.approx(plain.rate_bps, rel=1e-6, abs=1e-6)


@given(problems(), st.integers(1, 5))
def test_splitting_over_more_destinations_gains_nothing(problem, parts):
    """On one bottleneck: the sum of an entity does not rise with the number of its entries."""
    _, entity, capacity, demand, weight = problem
    ways = [[0]] * len(entity)
    whole = share(ways, entity, capacity[:1], demand, weight)
    first = entity[0]
    ways, split = ways + [[0]] * parts, [*entity, *[first] * parts]
    more = share(ways, split, capacity[:1], [1e9] * len(split), [*weight, *[weight[0]] * parts])
    greedy = share([[0]] * len(entity), entity, capacity[:1], [1e9] * len(entity), weight)
    mine = np.array(split) == first
    assert more.rate_bps[mine].sum() <= greedy.rate_bps[np.array(entity) == first].sum() * (1 + 1e-9)
    assert whole.rate_bps.sum() <= capacity[0] * (1 + 1e-9)
