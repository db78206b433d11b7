"""Weighted max-min between senders on every link, however many entries each of them has.

``max_min`` shares a link among flows, so a sender with more receivers has more of it. Here the *entity* shares it: all
entries of an entity together have its part of a link (Seawall, sections 1 and 4: the share of entity k on link l is its
weight over the weights of those that are active there).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation.interface import FloatArray, IntArray
from controller.allocation.max_min import BY_DEMAND, FlowPaths, check_flows
from controller.errors import InvalidValueError

# What is left of a constraint or a demand is nothing below this part of it.
_NOTHING = 1e-12


@dataclass(frozen=True, slots=True)
class EntityShares:
    """The rates (flows,), what binds each (a constraint or BY_DEMAND), and how many rounds it took."""

    rate_bps: FloatArray
    bound: IntArray
    rounds: int


def entity_max_min(
    paths: FlowPaths, entity: IntArray, capacity_bps: FloatArray, demand_bps: FloatArray, weight: FloatArray
) -> EntityShares:
    """Return the rates of flows whose entities share every constraint by their weights.

    ``entity`` (flows,) says whose a flow is; ``weight`` (flows,) is that of its entity, the same for all its flows.
    ``capacity_bps`` (constraints,), ``demand_bps`` (flows,). Raises as ``check_flows`` does, and InvalidValueError
    where two flows of an entity have different weights.

    Progressive filling:

    1. Every open flow grows. Of an entity's growth on a constraint, its weight, its open flows have equal parts; a flow
       grows as its tightest constraint lets it: ``weight / max over constraints of the entity's open flows there``.
    2. All grow until the first demand is met or the first constraint is full. Those flows are fixed.
    3. Again without them, until none is open. What a fixed flow does not take, the others of its entity do.

    A round fixes one flow at least, so the cost is that of the uses times the rounds.
    """
    check_flows(paths, capacity_bps, demand_bps, weight)
    _check_entities(entity, weight, paths.flows)
    rate_bps, bound = np.zeros(paths.flows), np.full(paths.flows, BY_DEMAND)
    open_flow = demand_bps > 0.0
    left_bps = capacity_bps.astype(np.float64, copy=True)
    rounds, constraints = 0, max(paths.constraints, 1)
    counts = np.diff(paths.offsets)
    flow_of_use = np.repeat(np.arange(paths.flows), counts)
    shared = np.unique(entity[flow_of_use] * constraints + paths.constraint, return_inverse=True)[1].reshape(-1)
    pairs = int(shared.max(initial=-1)) + 1
    while open_flow.any():
        rounds += 1
        open_use = open_flow[flow_of_use]
        siblings = np.bincount(shared, open_use, minlength=pairs)[shared]  # 1
        most = np.ones(paths.flows)
        np.maximum.at(most, flow_of_use, np.where(open_use, siblings, 1.0))
        growth = np.where(open_flow, weight / most, 0.0)
        of_constraint = np.bincount(paths.constraint, growth[flow_of_use], minlength=paths.constraints)
        until_full = np.full(paths.constraints, np.inf)  # 2
        np.divide(left_bps, of_constraint, out=until_full, where=of_constraint > 0)
        until_met = np.full(paths.flows, np.inf)
        np.divide(demand_bps - rate_bps, growth, out=until_met, where=open_flow)
        time = max(min(until_full.min(initial=np.inf), until_met.min(initial=np.inf)), 0.0)
        rate_bps = rate_bps + growth * time
        left_bps = np.maximum(left_bps - of_constraint * time, 0.0)
        met = open_flow & (until_met <= time * (1 + _NOTHING))
        rate_bps[met] = demand_bps[met]
        full = (of_constraint > 0) & ((until_full <= time * (1 + _NOTHING)) | (left_bps <= _NOTHING * capacity_bps))
        stopping = np.flatnonzero(full[paths.constraint] & open_use)
        stopped = flow_of_use[stopping][::-1]
        bound[stopped] = paths.constraint[stopping][::-1]
        bound[met] = BY_DEMAND
        open_flow = open_flow & ~met
        open_flow[stopped] = False  # 3
    return EntityShares(rate_bps, bound, rounds)


def _check_entities(entity: IntArray, weight: FloatArray, flows: int) -> None:
    if entity.dtype != np.int64 or entity.shape != (flows,):
        raise InvalidValueError("entity", f"{entity.dtype}{entity.shape}", f"must be int64 of shape ({flows},)")
    order = np.argsort(entity, kind="stable")
    same = entity[order][1:] == entity[order][:-1]
    differ = np.flatnonzero(same & (weight[order][1:] != weight[order][:-1]))
    if len(differ):
        first, second = weight[order][differ[0]], weight[order][differ[0] + 1]
        reason = f"must be one of all flows of entity {entity[order][differ[0]]}: another one has {second:g}"
        raise InvalidValueError("weight", float(first), reason)
