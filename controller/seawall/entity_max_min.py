"""Weighted max-min between senders on every link, independent of the number of pairs of each.

``max_min`` shares a link among flows, so a sender with more receivers gets more. Here the *entity* is the unit: all
pairs of an entity together get its part of a link (Seawall, sections 1 and 4: the share of entity k on link l is its
weight over the weights of the entities that are active there).

Choice: links are shared one by one. Raising all flows of an entity at one pace, slowed by the link with most of its
flows, is simpler, but what the entity sends over one link then lowers its share of another: A and B share 100 Mb/s, A
also sends 30 Mb/s over another link, and gets 35 instead of 50 on the shared one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation.interface import BoolArray, FloatArray, IntArray
from controller.allocation.max_min import BY_DEMAND, FlowPaths, check_flows
from controller.errors import InvalidValueError

_SAME = 1e-9
# Demands can be chosen so that every round closes one flow. A few rounds are usual.
MAX_ROUNDS = 64


@dataclass(frozen=True, slots=True)
class EntityShares:
    """The rates (flows,), what binds each (a constraint or BY_DEMAND), and the number of rounds."""

    rate_bps: FloatArray
    bound: IntArray
    rounds: int


@dataclass(frozen=True, slots=True)
class _Parts:
    """A row for each entity on each of its constraints: the constraint, and the entity's weight, (rows,) each.

    ``of_use`` (uses,) is the row of each use.
    """

    of_use: IntArray
    constraint: IntArray
    weight: FloatArray

    @classmethod
    def build(cls, paths: FlowPaths, entity: IntArray, weight: FloatArray, flow: IntArray) -> _Parts:
        # One number for each entity and constraint; ``flow`` (uses,) is the flow of each use.
        keys = entity[flow] * max(paths.constraints, 1) + paths.constraint
        _, first, of_use = np.unique(keys, return_index=True, return_inverse=True)
        return cls(of_use.reshape(-1), paths.constraint[first], weight[flow[first]])

    def shares(self, capacity_bps: FloatArray, use_bps: FloatArray, is_open: BoolArray) -> FloatArray:
        """Return (uses,) the share of its constraint for each open flow; infinite for closed flows.

        ``capacity_bps`` is (constraints,); ``use_bps`` and ``is_open`` (uses,) are the rate of each use's flow, and
        whether the flow is open.

        A level is a constraint's capacity per unit of weight. An entity with open flows is due its weight times the
        level: its open flows share in equal parts what its closed flows leave of that. An entity whose closed flows
        have more than it is due takes no part: its closed flows keep their rates.
        """
        rows, constraints = len(self.constraint), len(capacity_bps)
        count = np.bincount(self.of_use, is_open, minlength=rows)
        closed_bps = np.bincount(self.of_use, np.where(is_open, 0.0, use_bps), minlength=rows)
        taking = count > 0
        while True:
            kept_bps = np.bincount(self.constraint, np.where(taking, 0.0, closed_bps), minlength=constraints)
            weights = np.bincount(self.constraint, np.where(taking, self.weight, 0.0), minlength=constraints)
            level_bps = np.zeros(constraints)
            np.divide(np.maximum(capacity_bps - kept_bps, 0.0), weights, out=level_bps, where=weights > 0)
            mine_bps = level_bps[self.constraint] * self.weight
            over = taking & (closed_bps > mine_bps * (1 + _SAME))
            if not over.any():
                break
            taking &= ~over
        part_bps = np.where(taking, np.maximum(mine_bps - closed_bps, 0.0), 0.0) / np.maximum(count, 1.0)
        share_bps: FloatArray = np.where(is_open, part_bps[self.of_use], np.inf)
        return share_bps


def entity_max_min(
    paths: FlowPaths, entity: IntArray, capacity_bps: FloatArray, demand_bps: FloatArray, weight: FloatArray
) -> EntityShares:
    """Return the rates of flows whose entities share every constraint by their weights.

    ``entity`` (flows,) is each flow's entity; ``weight`` (flows,) is the entity's weight, equal for all its flows.
    ``capacity_bps`` (constraints,), ``demand_bps`` (flows,). Raises as ``check_flows`` does, and InvalidValueError
    where two flows of an entity have different weights.

    1. Each constraint shares its capacity among the entities with open flows there; a flow's bound is the lowest share
       on its path.
    2. Flows with a demand up to their bound get it, and are closed. The other flows' shares can only rise by that; go
       to 1.
    3. If there is no such flow: if all open flows of a constraint have their lowest share there, they get it, and are
       closed.
    4. If there is no such constraint (each of two constraints is the tighter one for another flow), the flow with the
       lowest share by weight is closed at it.
    5. Step 4 may leave capacity. Flows with more demand, and no exhausted constraint on their path, share it in the
       same way.

    No closed flow exceeds its share on any constraint, so nothing is overbooked. After MAX_ROUNDS all open flows are
    closed at their shares: the time of a 55 ms loop must not depend on demands.
    """
    check_flows(paths, capacity_bps, demand_bps, weight)
    _check_entities(entity, weight, paths.flows)
    flow = np.repeat(np.arange(paths.flows), np.diff(paths.offsets))
    parts = _Parts.build(paths, entity, weight, flow)
    rate_bps, bound = np.zeros(paths.flows), np.full(paths.flows, BY_DEMAND)
    wanting, rounds = demand_bps > 0.0, 0
    while wanting.any() and rounds < MAX_ROUNDS:
        left_bps = capacity_bps - np.bincount(paths.constraint, rate_bps[flow], minlength=paths.constraints)
        full = np.isfinite(capacity_bps) & (left_bps <= _SAME * capacity_bps)
        stopped = full[paths.constraint] & wanting[flow]
        bound[flow[stopped]] = paths.constraint[stopped]
        wanting[flow[stopped]] = False  # 5
        rest_bps = np.where(wanting, demand_bps - rate_bps, 0.0)
        more_bps, bound_now, took = _share(
            paths, flow, parts, np.where(full, 0.0, left_bps), rest_bps, weight, MAX_ROUNDS - rounds
        )
        rate_bps, rounds = rate_bps + more_bps, rounds + took
        bound = np.where(wanting, bound_now, bound)
        wanting &= bound != BY_DEMAND
    return EntityShares(rate_bps, bound, rounds)


def _share(
    paths: FlowPaths,
    flow: IntArray,
    parts: _Parts,
    capacity_bps: FloatArray,
    demand_bps: FloatArray,
    weight: FloatArray,
    most_rounds: int,
) -> tuple[FloatArray, IntArray, int]:
    """Return rates, bounds, (flows,) each, and rounds of steps 1 to 4; ``flow`` (uses,) is the flow of each use."""
    rate_bps, bound = np.zeros(paths.flows), np.full(paths.flows, BY_DEMAND)
    is_open, rounds = demand_bps > 0.0, 0
    bounded = np.flatnonzero(np.diff(paths.offsets))
    while is_open.any():
        rounds += 1
        open_use = is_open[flow]
        share_bps = parts.shares(capacity_bps, rate_bps[flow], open_use)  # 1
        least_bps = np.full(paths.flows, np.inf)
        least_bps[bounded] = np.minimum.reduceat(share_bps, paths.offsets[:-1][bounded])
        content = is_open & (demand_bps <= least_bps * (1 + _SAME))
        rate_bps[content] = demand_bps[content]
        if content.any() and rounds < most_rounds:  # 2
            is_open = is_open & ~content
            continue
        tightest = open_use & (share_bps <= least_bps[flow] * (1 + _SAME))
        looser = np.bincount(paths.constraint, open_use & ~tightest, minlength=paths.constraints) > 0
        closing = tightest & ~looser[paths.constraint]  # 3
        if rounds >= most_rounds:  # the last round: all other flows are closed at their shares
            closing = tightest & ~content[flow]
        elif not closing.any():  # 4
            closing = tightest & (flow == np.where(is_open, least_bps / weight, np.inf).argmin())
        rate_bps[flow[closing]] = least_bps[flow[closing]]
        bound[flow[closing]] = paths.constraint[closing]
        is_open = is_open & ~content
        is_open[flow[closing]] = False
    return rate_bps, bound, rounds


def _check_entities(entity: IntArray, weight: FloatArray, flows: int) -> None:
    """Raise InvalidValueError if an entity's flows have different weights."""
    if entity.dtype != np.int64 or entity.shape != (flows,):
        raise InvalidValueError("entity", f"{entity.dtype}{entity.shape}", f"must be int64 of shape ({flows},)")
    order = np.argsort(entity, kind="stable")
    same = entity[order][1:] == entity[order][:-1]
    differ = np.flatnonzero(same & (weight[order][1:] != weight[order][:-1]))
    if len(differ):
        first, second = weight[order][differ[0]], weight[order][differ[0] + 1]
        reason = f"must be one of all flows of entity {entity[order][differ[0]]}: another one has {second:g}"
        raise InvalidValueError("weight", float(first), reason)
