"""How many intervals each algorithm needs after senders start, stop and change their demand.

A model of one receiver in virtual time: in every interval each sender delivers the lesser of its demand and its grant,
its meter drops the rest, and the grants made from these counters work in the next interval (or later, by ``delay``). No
TCP, no bursts: what is measured here is the algorithm alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from support.allocation_requests import one_receiver
from support.policy_views import policy_view

from controller.allocation.interface import FloatArray
from controller.allocation.max_min import FlowPaths, max_min
from controller.dets.forward_explicit import ForwardExplicit
from controller.fabric.link_table import LinkTable
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.policy.policy_groups import PolicyChoice, apply_choices, groups_of
from controller.policy.policy_state import PolicyState

M = 1e6
GREEDY = 1e9
SEND_LIMIT_BPS = 400 * M
# What a sender that was idle may start with, until its first grant.
FIRST_GRANT_BPS = 1 * M
SETTLED_WITHIN = 0.05
INTERVALS = 400
LAST = 60
FP_WITH_HEADROOM = "fp, headroom 0.1"

Step = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True, slots=True)
class DemandScenario:
    """Demands before and after a change at a receiver of this limit, and the grants in force before (None: settled)."""

    name: str
    limit_bps: float
    before_bps: tuple[float, ...]
    after_bps: tuple[float, ...]
    granted_bps: tuple[float, ...] | None = None


SCENARIOS = (
    DemandScenario("9 senders join 1", 400 * M, (GREEDY,) + (0.0,) * 9, (GREEDY,) * 10),
    DemandScenario("5 of 10 stop", 400 * M, (GREEDY,) * 10, (GREEDY,) * 5 + (0.0,) * 5),
    DemandScenario("3 of 10 want only 20 Mb/s", 400 * M, (GREEDY,) * 10, (GREEDY,) * 7 + (20 * M,) * 3),
    DemandScenario("3 of 10 want more than 20 Mb/s", 400 * M, (GREEDY,) * 7 + (20 * M,) * 3, (GREEDY,) * 10),
    DemandScenario(
        "section III: of 80, 80, 20, 20 the first stops",
        200 * M,
        (GREEDY,) * 4,
        (0.0, GREEDY, GREEDY, GREEDY),
        (80 * M, 80 * M, 20 * M, 20 * M),
    ),
)


def policy_step(name: str, limit_bps: float, senders: int, parameters: Mapping[str, object] | None = None) -> Step:
    """Return a function of (delivered, granted, demand), (senders,) each, to the next grants of such a policy.

    The senders and their receiver are at ports of one switch that are wide enough. Silent senders are granted nothing.
    """
    vns = _star(limit_bps, senders, name, parameters)
    (group,) = groups_of(vns, {1: PolicyChoice(name, parameters or {})})
    rows, receiver = np.arange(senders), np.full(senders, senders)
    entries, links = PairTable(rows, receiver, rows + 1), LinkTable.access_links(vns)
    memory = PolicyState(len(vns)).aligned(rows, links.names)

    def step(delivered_bps: FloatArray, granted_bps: FloatArray, demand_bps: FloatArray) -> FloatArray:
        nonlocal memory
        received_bps = np.append(np.zeros(senders), delivered_bps.sum())
        given = {"received_bps": received_bps, "congested": received_bps > vns.receive_limit_bps}
        given |= {"available_bps": np.full(senders, SEND_LIMIT_BPS), "parameters": group.parameters, "links": links}
        view = policy_view(entries, vns, demand_bps, delivered_bps, granted_bps, **given)
        decision = group.policy.decide(view, memory)
        memory = decision.memory
        return np.where(view.active, decision.grant_bps, 0.0)

    return step


def _star(limit_bps: float, senders: int, name: str, parameters: Mapping[str, object] | None) -> VnTable:
    rows = senders + 1
    receive_bps = np.full(rows, SEND_LIMIT_BPS)
    receive_bps[senders] = limit_bps
    vns = VnTable(
        vlan_vid=np.ones(rows, dtype=np.int64),
        dpid=np.ones(rows, dtype=np.uint64),
        port_no=np.arange(1, rows + 1),
        send_limit_bps=np.full(rows, SEND_LIMIT_BPS),
        receive_limit_bps=receive_bps,
        weight=np.ones(rows),
        capacity_bps=np.full(rows, 1e12),
        send_ceiling_bps=np.full(rows, np.nan),
        receive_ceiling_bps=np.full(rows, np.nan),
        uses_ceiling=np.zeros(rows, dtype=np.bool_),
        port_ceilings=np.zeros(rows, dtype=np.bool_),
        always_controlled=np.zeros(rows, dtype=np.bool_),
        has_queue=np.ones(rows, dtype=np.bool_),
    )
    return apply_choices(vns, {1: PolicyChoice(name, parameters or {})})


def make_step(name: str, limit_bps: float, senders: int) -> Step:
    """Return the step of a policy by name, FP_WITH_HEADROOM included."""
    if name == FP_WITH_HEADROOM:
        return policy_step("fp", limit_bps, senders, {"headroom": 0.1})
    return policy_step(name, limit_bps, senders)


def simulate(
    step: Step, granted_bps: FloatArray, demand_bps: FloatArray, intervals: int
) -> tuple[FloatArray, FloatArray]:
    """Return what was delivered (intervals, senders) and the grants after that.

    A sender with something to send and no grant has FIRST_GRANT_BPS.
    """
    delivered = np.empty((intervals, len(demand_bps)))
    for interval in range(intervals):
        granted_bps = np.where((demand_bps > 0) & (granted_bps <= 0), FIRST_GRANT_BPS, granted_bps)
        delivered[interval] = np.minimum(demand_bps, granted_bps)
        granted_bps = step(delivered[interval], granted_bps, demand_bps)
    return delivered, granted_bps


def ideal(limit_bps: float, demand_bps: FloatArray) -> FloatArray:
    """Return what one who knew all demands would deliver: max-min fair rates."""
    senders = len(demand_bps)
    paths = FlowPaths(np.arange(senders + 1), np.zeros(senders, dtype=np.int64), 1)
    return max_min(paths, np.array([limit_bps]), demand_bps, np.ones(senders)).rate_bps


def settle(name: str, scenario: DemandScenario) -> dict[str, Any]:
    """Return how one algorithm takes one change.

    ``intervals``: until every sender's delivered rate is, and stays, within 5 % of its mean over the last 60 of 400
    intervals; None if it goes on swinging by more. ``used``: the mean sum of these last rates over the ideal sum, and
    ``used_first_20`` that of the first 20 intervals. ``unfair``: the largest deviation of a sender's mean from its
    ideal rate, as a part of it.
    """
    before, after = np.array(scenario.before_bps), np.array(scenario.after_bps)
    step = make_step(name, scenario.limit_bps, len(before))
    if scenario.granted_bps is None:
        granted_bps = simulate(step, np.zeros(len(before)), before, INTERVALS)[1]
    else:
        granted_bps = np.array(scenario.granted_bps)
    delivered, _ = simulate(step, granted_bps, after, INTERVALS)
    wanted, mean = ideal(scenario.limit_bps, after), delivered[-LAST:].mean(axis=0)
    off = (np.abs(delivered - mean) > SETTLED_WITHIN * mean).any(axis=1)
    last_off = int(np.flatnonzero(off)[-1]) + 1 if off.any() else 0
    sending = wanted > 0
    return {
        "algorithm": name,
        "scenario": scenario.name,
        "intervals": last_off if last_off < INTERVALS - LAST else None,
        "used": float(mean.sum() / wanted.sum()),
        "used_first_20": float(delivered[:20].sum() / (20 * wanted.sum())),
        "unfair": float(np.max(np.abs(mean[sending] / wanted[sending] - 1))),
    }


def swing(k: float, delay: int) -> float:
    """Return how far RAA-FE's rate swings (largest to smallest of the last 50 intervals, in parts of the limit).

    Ten greedy senders; 0.1 % is added to one early measurement; grants work ``delay`` intervals after the next.
    """
    algorithm, received = ForwardExplicit(k), [100 * M] * (delay + 1)
    state = algorithm.first_state(1)
    some = np.full(10, 10 * M)
    for interval in range(300):
        measured = received[-1 - delay] * (1.001 if interval == 5 else 1.0)
        requests = one_receiver(100 * M, some, received_bps=measured)
        grants_bps, state = algorithm.allocate(requests, state)
        received.append(float(grants_bps.sum()))
    return float(np.ptp(received[-50:])) / (100 * M)
