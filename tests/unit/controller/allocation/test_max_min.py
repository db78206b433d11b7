"""Network-wide max-min by the property that defines it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.allocation import native
from controller.allocation.max_min import BY_DEMAND, FlowPaths, max_min
from controller.errors import ColumnError, InvalidValueError
from controller.units import MAX_WEIGHT, MIN_WEIGHT


@pytest.fixture(params=["numpy", "compiled"], autouse=True)
def form(request, monkeypatch):
    """Every test here runs on both forms of the solver."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "library", None)
    elif native.library is None:
        pytest.skip("the compiled kernel was not built")
    return request.param


def paths_of(rows, constraints):
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return FlowPaths(offsets, np.array([c for row in rows for c in row], dtype=np.int64), constraints)


def instance(rng):
    """(paths as rows, capacities, demands, weights), around 1; half of them whole numbers, so that levels coincide."""
    constraints, flows = int(rng.integers(1, 30)), int(rng.integers(0, 16))
    if rng.random() < 0.5:  # few, so that flows share them
        constraints = min(constraints, 6)
    longest = min(constraints, 6)
    rows = [rng.choice(constraints, int(rng.integers(1, longest + 1)), replace=False).tolist() for _ in range(flows)]
    whole = rng.random() < 0.5
    capacity = rng.integers(1, 5, constraints) * 1.0 if whole else rng.uniform(0.2, 4.0, constraints)
    demand = rng.choice([0.0, 0.25, 0.5, 1.0, 9.0], flows) if whole else rng.exponential(1.0, flows)
    demand[rng.random(flows) < 0.3] = np.inf
    weight = np.ones(flows) if rng.random() < 0.5 else rng.choice([0.5, 1.0, 2.0, 3.0, MIN_WEIGHT, MAX_WEIGHT], flows)
    return rows, capacity, demand, weight


@settings(max_examples=500)
@given(st.integers(0, 2**32), st.sampled_from([1.0, 1.0, 1e-6, 1e3, 1e9, 1e15]))
def test_every_flow_has_its_demand_or_a_bottleneck(seed, factor):
    """The definition, which one allocation alone fulfils: a full constraint on which nobody has more per weight.

    Rates may be of any size (``factor``).
    """
    rows, capacity, demand, weight = instance(np.random.default_rng(seed))
    capacity, demand, paths = capacity * factor, demand * factor, paths_of(rows, len(capacity))
    result = max_min(paths, capacity, demand, weight)
    rate = result.rate_bps
    use = np.bincount(paths.constraint, np.repeat(rate, np.diff(paths.offsets)), minlength=len(capacity))
    assert (rate >= 0).all()
    assert (rate <= demand).all()
    assert (use <= capacity * (1 + 1e-12)).all()
    for flow, bound in enumerate(result.bound):
        if bound == BY_DEMAND:
            assert rate[flow] == demand[flow]
        else:
            assert bound in rows[flow]
            assert use[bound] >= capacity[bound] * (1 - 1e-12)
            sharers = [other for other, row in enumerate(rows) if bound in row]
            assert max(rate[sharers] / weight[sharers]) <= rate[flow] / weight[flow] * (1 + 1e-9)


def test_both_forms_agree_on_a_larger_one(form, monkeypatch):
    if form == "numpy":
        return
    rng = np.random.default_rng(4)
    sender, receiver = rng.integers(0, 100, (2, 5000))
    paths = paths_of(np.column_stack([sender, 100 + receiver]).tolist(), 200)
    arguments = paths, rng.uniform(1e8, 1e9, 200), rng.exponential(2e7, 5000), rng.uniform(0.5, 2.0, 5000)
    compiled = max_min(*arguments)
    monkeypatch.setattr(native, "library", None)
    plain = max_min(*arguments)
    np.testing.assert_allclose(compiled.rate_bps, plain.rate_bps, rtol=1e-12)
    np.testing.assert_array_equal(compiled.bound, plain.bound)
    assert 0 < (plain.bound == BY_DEMAND).sum() < 5000


def test_no_flows_and_flows_without_constraints():
    assert len(max_min(paths_of([], 2), np.ones(2), np.zeros(0), np.zeros(0)).rate_bps) == 0
    result = max_min(paths_of([[], [0]], 1), np.array([np.inf]), np.array([5.0, 7.0]), np.ones(2))
    np.testing.assert_array_equal(result.rate_bps, [5.0, 7.0])
    np.testing.assert_array_equal(result.bound, [BY_DEMAND, BY_DEMAND])


def test_a_constraint_of_which_nothing_is_left():
    result = max_min(paths_of([[0], [0, 1], [1]], 2), np.array([0.0, 6.0]), np.full(3, np.inf), np.ones(3))
    np.testing.assert_array_equal(result.rate_bps, [0.0, 0.0, 6.0])


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [
        ("capacity_bps", 1, np.nan),
        ("capacity_bps", 0, -1.0),
        ("demand_bps", 1, np.nan),
        ("demand_bps", 0, -2.0),
        ("weight", 1, 0.0),
        ("weight", 0, np.inf),
        ("weight", 0, np.nan),
    ],
)
def test_bad_values_are_named(column, row, value):
    columns = {"capacity_bps": np.ones(2), "demand_bps": np.ones(2), "weight": np.ones(2)}
    columns[column][row] = value
    with pytest.raises(ColumnError) as caught:
        max_min(paths_of([[0], [1]], 2), **columns)
    assert (caught.value.column, caught.value.row) == (column, row)


def test_columns_of_the_wrong_shape_and_flows_without_a_bound():
    paths = paths_of([[0], []], 1)
    with pytest.raises(InvalidValueError, match="weight"):
        max_min(paths, np.ones(1), np.ones(2), np.ones(3))
    with pytest.raises(ColumnError, match=r"demand_bps\[1\]"):
        max_min(paths, np.ones(1), np.array([1.0, np.inf]), np.ones(2))


@pytest.mark.parametrize(
    ("offsets", "constraint", "named"),
    [
        ([0, 2, 1], [0], r"offsets\[2\]"),
        ([0, 1], [0, 1], r"offsets\[1\]"),
        ([1, 2], [0, 1], r"offsets\[0\]"),
        ([0, 1], [2], r"constraint\[0\]"),
        ([0, 1], [-1], r"constraint\[0\]"),
        ([0, 1, 3], [1, 0, 0], r"constraint\[2\]"),
    ],
)
def test_paths_that_cannot_be(offsets, constraint, named):
    with pytest.raises(ColumnError, match=named):
        FlowPaths(np.array(offsets, dtype=np.int64), np.array(constraint, dtype=np.int64), 2)


@pytest.mark.parametrize("constraint", [np.array([0], dtype=np.int32), np.array([[0]], dtype=np.int64)])
def test_paths_of_another_type_or_shape_are_refused(constraint):
    with pytest.raises(InvalidValueError, match=r"constraint: .* must be int64 of one dimension"):
        FlowPaths(np.array([0, 1], dtype=np.int64), constraint, 2)
