"""Weighted max-min fair rates over shared constraints: access links, core links, limits of virtual nodes.

A *constraint* is any capacity that several flows share: a link in one direction, or the send or receive limit of a VN.
The arithmetic is the same for all. The constraints of flow ``f`` are ``constraint[offsets[f]:offsets[f + 1]]``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation import native
from controller.allocation.interface import FloatArray, IntArray, check_rates
from controller.errors import ColumnError, InvalidValueError
from controller.units import MAX_WEIGHT, MIN_WEIGHT

BY_DEMAND = -1
"""In ``MaxMinRates.bound``: the flow gets its whole demand."""

# Two levels with at least this ratio are one level with different rounding. To treat them as two would be correct, but
# would solve a symmetric fabric link by link.
_SAME = 1 - 1e-12


@dataclass(frozen=True, slots=True)
class FlowPaths:
    """Which constraints each flow uses, in compressed sparse rows.

    Raises ColumnError, naming column and row, for offsets that fall and for a constraint that does not exist or appears
    twice in one flow.
    """

    offsets: IntArray
    """(flows + 1,) int64"""
    constraint: IntArray
    """(uses,) int64, each below ``constraints``"""
    constraints: int

    def __post_init__(self) -> None:
        """Raise InvalidValueError or ColumnError for offsets and constraints that do not fit each other."""
        for name in ("offsets", "constraint"):
            column = getattr(self, name)
            if column.dtype != np.int64 or column.ndim != 1:
                raise InvalidValueError(name, f"{column.dtype}{column.shape}", "must be int64 of one dimension")
        offsets, constraint = self.offsets, self.constraint
        if len(offsets) == 0 or offsets[0] != 0:
            raise ColumnError("offsets", 0, int(offsets[0]) if len(offsets) else None, "must be 0")
        decreases = np.flatnonzero(offsets[1:] < offsets[:-1])
        if len(decreases):
            row = int(decreases[0]) + 1
            raise ColumnError("offsets", row, int(offsets[row]), f"must not be below {int(offsets[row - 1])} before it")
        if offsets[-1] != len(constraint):
            raise ColumnError("offsets", len(offsets) - 1, int(offsets[-1]), f"must be {len(constraint)}, the uses")
        bad = np.flatnonzero((constraint < 0) | (constraint >= self.constraints))
        if len(bad):
            reason = f"is not a constraint: there are {self.constraints}"
            raise ColumnError("constraint", int(bad[0]), int(constraint[bad[0]]), reason)
        self._check_no_use_twice()

    def _check_no_use_twice(self) -> None:
        """Raise ColumnError for a flow that uses a constraint twice."""
        flow = np.repeat(np.arange(self.flows), np.diff(self.offsets))
        keys = flow * self.constraints + self.constraint  # one number for each (flow, constraint)
        order = np.argsort(keys, kind="stable")
        twice = order[1:][keys[order[1:]] == keys[order[:-1]]]
        if len(twice):
            row = int(twice.min())
            raise ColumnError("constraint", row, int(self.constraint[row]), "appears twice in one flow")

    @property
    def flows(self) -> int:
        """The number of flows."""
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class MaxMinRates:
    """The rates, and the constraint that binds each of them."""

    rate_bps: FloatArray
    """(flows,)"""
    bound: IntArray
    """(flows,) the constraint that binds the flow, or BY_DEMAND"""
    rounds: int
    """the number of rounds of progressive filling; with native code, of evaluations of a constraint"""


def check_flows(paths: FlowPaths, capacity_bps: FloatArray, demand_bps: FloatArray, weight: FloatArray) -> None:
    """Raise InvalidValueError (ColumnError if one row is wrong) unless the columns make a solvable problem.

    Capacities may be 0 (an exhausted constraint) or infinite, and demands infinite, but a flow needs a finite demand or
    a constraint of finite capacity.
    """
    columns = (("capacity_bps", capacity_bps, paths.constraints), ("demand_bps", demand_bps, paths.flows))
    for name, column, rows in (*columns, ("weight", weight, paths.flows)):
        if column.dtype != np.float64 or column.shape != (rows,):
            raise InvalidValueError(name, f"{column.dtype}{column.shape}", f"must be float64 of shape ({rows},)")
    check_rates("capacity_bps", capacity_bps, infinite=True)
    check_rates("demand_bps", demand_bps, infinite=True)
    bad = np.flatnonzero(~((weight >= MIN_WEIGHT) & (weight <= MAX_WEIGHT)))
    if len(bad):
        raise ColumnError("weight", int(bad[0]), float(weight[bad[0]]), f"must be {MIN_WEIGHT:g} to {MAX_WEIGHT:g}")
    unbounded = np.isinf(demand_bps)
    if unbounded.any():
        # finite_uses[i]: how many of the first i uses are of a finite constraint.
        finite_uses = np.concatenate([[0], np.cumsum(np.isfinite(capacity_bps)[paths.constraint])])
        unbounded &= finite_uses[paths.offsets[1:]] == finite_uses[paths.offsets[:-1]]
        if unbounded.any():
            raise ColumnError("demand_bps", int(np.flatnonzero(unbounded)[0]), np.inf, "is bounded by no constraint")


def max_min(paths: FlowPaths, capacity_bps: FloatArray, demand_bps: FloatArray, weight: FloatArray) -> MaxMinRates:
    """Return the weighted max-min fair rates: no rate can grow unless a rate that is lower per weight shrinks.

    ``capacity_bps`` (constraints,), ``demand_bps`` (flows,), ``weight`` (flows,). Raises as check_flows does.

    Progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2), many bottlenecks at a time:

    1. The level of a constraint is its remaining capacity per unit of weight of the open flows. Flows are fixed at
       rates up to this level, so the level can only rise.
    2. The level of a flow is the lowest level of its constraints; the flow's final rate is at least this level times
       its weight.
    3. A flow with a demand up to that rate gets its demand.
    4. A constraint is a bottleneck if it is the lowest one of each flow that uses it and step 3 fixed none of these
       flows: each must get at least this level, and together they cannot get more. They get this level.
    5. Repeat with the flows that are not fixed, until all are fixed. The constraint with the lowest level of all is a
       bottleneck unless step 3 took some of its flows, so every round fixes some.
    """
    check_flows(paths, capacity_bps, demand_bps, weight)
    return solve(paths, capacity_bps, demand_bps, weight)


def solve(paths: FlowPaths, capacity_bps: FloatArray, demand_bps: FloatArray, weight: FloatArray) -> MaxMinRates:
    """Return what ``max_min`` returns, from columns that were checked.

    The open flows are rows of ``flows``. ``uses`` are their constraints, one flow after another: flow i of them has
    ``use_count[i]`` uses from ``offsets[i]`` on.
    """
    compiled = native.max_min(paths.offsets, paths.constraint, capacity_bps, demand_bps, weight)
    if compiled is not None:
        return MaxMinRates(*compiled)
    rate_bps, bound, rounds = np.zeros(paths.flows), np.full(paths.flows, BY_DEMAND), 0
    remaining_bps = capacity_bps.copy()
    unconstrained = np.diff(paths.offsets) == 0
    rate_bps[unconstrained] = demand_bps[unconstrained]
    flows = np.flatnonzero(~unconstrained)
    offsets, uses = paths.offsets[:-1][~unconstrained], paths.constraint
    use_count, constraints = np.diff(paths.offsets)[~unconstrained], paths.constraints
    while len(flows):
        rounds += 1
        # 1
        open_weight = np.bincount(uses, np.repeat(weight[flows], use_count), minlength=constraints)
        level = np.full(constraints, np.inf)
        np.divide(np.maximum(remaining_bps, 0.0), open_weight, out=level, where=open_weight > 0)
        # 2
        flow_level = np.minimum.reduceat(level[uses], offsets)
        level_of_use = np.repeat(flow_level, use_count)
        # 3
        satisfied = demand_bps[flows] <= flow_level * weight[flows]
        # 4
        lowest_flow_level = np.full(constraints, np.inf)
        np.minimum.at(lowest_flow_level, uses, level_of_use)
        is_bottleneck = lowest_flow_level >= level * _SAME
        is_bottleneck[uses[np.repeat(satisfied, use_count)]] = False
        use_limits = is_bottleneck[uses] & (level[uses] * _SAME <= level_of_use)
        bounded = np.logical_or.reduceat(use_limits, offsets) & ~satisfied
        fixed = satisfied | bounded
        rates = np.where(satisfied, demand_bps[flows], flow_level * weight[flows])
        rate_bps[flows[fixed]] = rates[fixed]
        # Of several bottlenecks of a flow the first one binds it: the one with the largest negated position.
        first_use = -np.maximum.reduceat(np.where(use_limits, -np.arange(len(uses)), -len(uses)), offsets)
        bound[flows[bounded]] = uses[first_use[bounded]]
        fixed_uses = np.repeat(fixed, use_count)
        fixed_bps = np.repeat(rates[fixed], use_count[fixed])
        remaining_bps -= np.bincount(uses[fixed_uses], fixed_bps, minlength=constraints)
        # 5
        flows, use_count, uses = flows[~fixed], use_count[~fixed], uses[~fixed_uses]
        offsets = np.concatenate([[0], np.cumsum(use_count[:-1])]) if len(use_count) else use_count
    return MaxMinRates(rate_bps, bound, rounds)
