"""Max-min rates by linear programs: slow, and sharing no code or idea with the solver that they are to check.

Needs scipy (the ``test`` extra).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, vstack

from controller.allocation.interface import FloatArray, IntArray
from controller.allocation.max_min import FlowPaths


def linear_max_min(
    paths: FlowPaths, capacity: FloatArray, demand: FloatArray, weight: FloatArray, problem: IntArray
) -> FloatArray:
    """Return the rates (flows,), solved level by level; ``problem`` (flows,) numbers problems that share nothing.

    1. Maximise the sum of the problems' levels t, with every open flow at weight * t at least and all capacities kept.
    2. A flow whose bound has a dual value is at weight * t in every optimum: it is fixed there.
    3. Again with those that are left. Rates should be around 1: the tolerances of the programs are absolute.
    """
    flows, rate = paths.flows, np.full(paths.flows, np.nan)
    problems = int(problem.max()) + 1 if flows else 0
    flow_of_use = np.repeat(np.arange(flows), np.diff(paths.offsets))
    shape = (paths.constraints, flows + problems)
    uses = coo_array((np.ones(len(flow_of_use)), (paths.constraint, flow_of_use)), shape=shape)
    while np.isnan(rate).any():
        left = np.flatnonzero(np.isnan(rate))
        rows, alive = np.arange(len(left)), np.unique(problem[left])
        columns = np.concatenate([flows + problem[left], left])
        values = np.concatenate([weight[left], -np.ones(len(left))])
        at_least = coo_array((values, (np.concatenate([rows, rows]), columns)), shape=(len(left), flows + problems))
        low = np.concatenate([np.where(np.isnan(rate), 0.0, rate), np.zeros(problems)])
        high = np.concatenate([np.where(np.isnan(rate), demand, rate), np.full(problems, 1e9)])
        cost = np.zeros(flows + problems)
        cost[flows + alive] = -1.0
        answer = linprog(  # 1
            cost,
            A_ub=vstack([at_least, uses]).tocsr(),
            b_ub=np.concatenate([np.zeros(len(left)), capacity]),
            bounds=np.column_stack([low, high]),
            method="highs-ds",
        )
        if answer.status != 0:
            raise RuntimeError(f"no solution: {answer.message}")
        fixed = left[-answer.ineqlin.marginals[: len(left)] > 1e-9]  # 2
        if set(problem[fixed]) != set(alive):
            raise RuntimeError("a level was found that binds no flow")
        rate[fixed] = np.minimum(weight[fixed] * answer.x[flows + problem[fixed]], demand[fixed])
    return rate
