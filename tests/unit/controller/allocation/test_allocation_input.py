"""What bad columns, parameters and states get: an error that names them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.algorithms import ALGORITHMS

from controller.allocation import AllocationInput
from controller.errors import ColumnError, InvalidValueError
from controller.policy.registry import make_policy, policies

GOOD = AllocationInput(
    offsets=np.array([0, 2, 3]),
    limit_bps=np.array([1e8, 2e8]),
    received_bps=np.array([1e8, 0.0]),
    measured_bps=np.array([1e7, 0.0, 3e7]),
    granted_bps=np.array([1e7, np.inf, 3e7]),
    available_bps=np.array([1e8, 0.0, 1e8]),
    drops=np.zeros(3, dtype=np.bool_),
    weight=np.array([1.0, 2.0, 0.5]),
    active=np.array([True, False, True]),
)


def changed(column, row, value):
    values = getattr(GOOD, column).copy()
    values[row] = value
    return dataclasses.replace(GOOD, **{column: values})


RATES = ["limit_bps", "received_bps", "measured_bps", "granted_bps", "available_bps"]


@pytest.mark.parametrize("column", RATES)
@pytest.mark.parametrize("value", [np.nan, -1.0, -np.inf, np.inf])
def test_the_first_value_that_is_no_rate_is_named(column, value):
    if (column, value) == ("granted_bps", np.inf):
        assert changed(column, 1, value).granted_bps[1] == np.inf
        return
    with pytest.raises(ColumnError) as caught:
        changed(column, slice(1, None), value)
    error = caught.value
    assert (error.column, error.row) == (column, 1)
    assert error.value == value or np.isnan(value)
    assert str(error).startswith(f"{column}[1]: ")


@pytest.mark.parametrize(
    ("column", "value"), [("limit_bps", 0.0), ("weight", 0.0), ("weight", 1e7), ("weight", np.nan)]
)
def test_zero_limits_and_weights_out_of_range_are_refused(column, value):
    with pytest.raises(ColumnError, match=rf"{column}\[1\]"):
        changed(column, 1, value)


@pytest.mark.parametrize(
    ("offsets", "named"),
    [([0, 2, 4], "measured_bps"), ([0, 2], "limit_bps"), ([0, 3, 2], r"offsets\[2\]"), ([1, 2, 3], r"offsets\[0\]")],
)
def test_columns_that_do_not_fit_the_offsets(offsets, named):
    with pytest.raises(InvalidValueError, match=named):
        dataclasses.replace(GOOD, offsets=np.array(offsets))


@pytest.mark.parametrize(
    "changes",
    [
        {"offsets": np.array([0, 2, 3], dtype=np.int32)},
        {"offsets": np.array([], dtype=np.int64)},
        {"active": np.array([1, 0, 1])},
        {"weight": np.array([1, 2, 3])},
        {"measured_bps": np.zeros((3, 1))},
    ],
)
def test_columns_of_another_type_or_shape(changes):
    with pytest.raises(InvalidValueError, match=next(iter(changes))):
        dataclasses.replace(GOOD, **changes)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if policies[name].remembers])
def test_a_state_of_another_size(name):
    with pytest.raises(InvalidValueError, match="must be for 2 receivers"):
        make_policy(name).allocate(GOOD, make_policy(name).first_state(1))


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("fp", {"d": 1}, "parameters.d: 1 must be above 1"),
        ("fp", {"d": "2"}, "parameters.d: '2' must be a number"),
        ("fp", {"d": True}, "parameters.d: True must be a number"),
        ("fp", {"d": float("nan")}, "parameters.d: nan must be a number"),
        ("sp", {"inflation": -0.1}, "parameters.inflation: -0.1 must be at least 0"),
        ("sp", {"d": 2}, "parameters.d: 2 is not a parameter of sp, which takes: inflation, floor, headroom"),
        ("fs", {"k": 1}, "parameters.k: 1 is not a parameter of fs, which takes: none"),
        ("fe", {"k": 2.5}, "parameters.k: 2.5 must be above 0 and at most 2"),
    ],
)
def test_parameters_are_checked(name, parameters, message):
    for key in ("parameters", "vlans.10.parameters"):
        with pytest.raises(InvalidValueError) as caught:
            make_policy(name, parameters, parameters_key=key)
        assert str(caught.value).startswith(message.replace("parameters", key, 1))


@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_a_whole_number_that_no_float_can_hold_is_out_of_bounds(value):
    with pytest.raises(InvalidValueError, match=r"parameters\.d: -?10+ must be ") as refused:
        make_policy("fp", {"d": value})
    assert refused.value.value == value


@pytest.mark.parametrize("name", ["FP", "", None, 3, ["fp"]])
def test_an_unknown_algorithm_is_told_the_known_ones(name):
    with pytest.raises(InvalidValueError, match="fs, sp, fp, fe"):
        make_policy(name)
