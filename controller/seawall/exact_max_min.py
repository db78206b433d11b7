"""Seawall's promise computed directly: the controller knows all senders, weights and links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from controller.allocation.explanation import DEMAND, LIFTED_BPS, Explanation, constraint_name
from controller.allocation.max_min import BY_DEMAND, FlowPaths
from controller.allocation.network_max_min import (
    MIN_DEMAND_BPS,
    ByDemands,
    Constraints,
    FlowCounters,
    estimate_demands,
)
from controller.columns import FloatArray, IntArray
from controller.metering.fabric_readings import ReadingKind
from controller.policy.interface import Decision, LocationName, Policy, PolicyView, StaleMode
from controller.policy.policy_state import PolicyState
from controller.seawall.entity_max_min import entity_max_min
from controller.seawall.laws import idle_shares
from controller.seawall.link_state import PathLoops
from controller.seawall.policy import TARGET
from controller.units import MIN_RATE_BPS


@dataclass(frozen=True)
class ExactDecision(Decision):
    """A decision and its input, for explanations. ``demand_bps`` and ``bound`` have shape (rows,)."""

    paths: FlowPaths
    constraints: Constraints
    demand_bps: FloatArray
    bound: IntArray

    @property
    def bottlenecks(self) -> IntArray:
        """Return the limit or the link that binds each pair; below 0 where the pair's demand is met."""
        return self.bound

    def bottleneck_name(self, number: int, format_location: LocationName) -> str:
        """Return the name of a limit or a link."""
        assert self.view.links is not None
        return constraint_name(self.constraints, format_location, self.view.links.names.__getitem__, number)


@dataclass(frozen=True)
class _Problem:
    """The part of the problem that depends on pairs and links only."""

    ways: PathLoops
    paths: FlowPaths


@dataclass(frozen=True)
class SeawallExact(ByDemands, Policy):
    """Weighted max-min between sending VNs on every link, from demands and capacities.

    1. The demand of each pair (network_max_min.estimate_demands).
    2. The links' capacity for these VLANs, less a margin; and each VN's ceilings.
    3. Max-min between entities (entity_max_min).
    4. A sender with a low demand still gets an idle share, so that it can show a higher demand at once.
    """

    name: ClassVar[str] = "seawall-exact"
    title: ClassVar[str] = "Seawall's promise, computed"
    borrows: ClassVar[bool] = True
    weighted: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    silence: ClassVar[StaleMode] = StaleMode.HOLD
    required_readings: ClassVar[frozenset[ReadingKind]] = frozenset({ReadingKind.LINKS})

    def decide(self, view: PolicyView, memory: PolicyState) -> ExactDecision:
        """Decide on all pairs. Raises InvalidValueError without links, whose capacity it shares."""
        known = memory.derived.ways if isinstance(memory.derived, _Problem) else None
        path_loops = PathLoops.from_view(view, replace(memory, derived=known), self.name)
        assert view.links is not None
        assert view.cross_traffic_bps is not None
        vns, loops = view.vns, path_loops.loops
        counters = FlowCounters(view.measured_bps, view.limit_bps, view.dropped_bps, view.active)
        probe, headroom = (view.parameters[name][view.sender] for name in ("probe", "headroom"))
        demand_bps = estimate_demands(counters, MIN_DEMAND_BPS, probe, headroom)  # 1
        capacity_bps = np.maximum(TARGET * view.links.capacity_bps - view.cross_traffic_bps, MIN_RATE_BPS)  # 2
        constraints = Constraints.build(vns.send_max_bps, vns.receive_max_bps, capacity_bps)
        if known is path_loops and isinstance(memory.derived, _Problem):
            paths = memory.derived.paths
        else:
            paths = constraints.paths(view.sender, view.receiver, loops.offsets, loops.use_link)
        weight = vns.weight[view.sender]
        shared = entity_max_min(paths, view.sender, constraints.ceiling_bps, demand_bps, weight)  # 3
        bound = np.where(view.active, shared.bound, BY_DEMAND)
        active = loops.sum_of_entries(view.active)
        idle_share_bps = idle_shares(loops, active > 0.0, vns.weight[loops.sender], capacity_bps)
        mine = loops.at_uses(np.where(view.active, 0.0, 1.0))  # an idle pair counts as one more active pair
        idle_share_bps = loops.lowest(idle_share_bps[loops.use_loop] / (active[loops.use_loop] + mine))
        idle_share_bps = np.where(bound == BY_DEMAND, np.minimum(idle_share_bps, view.ceiling_bps), 0.0)  # 4
        grant_bps = np.maximum(np.maximum(shared.rate_bps, idle_share_bps), MIN_RATE_BPS)
        next_state = memory.updated(derived=_Problem(path_loops, paths))
        return ExactDecision(view, grant_bps, next_state, paths, constraints, demand_bps, bound)

    def explain(self, decision: Decision, at: int, format_location: LocationName) -> Explanation:
        """Return what binds the pair, and what would bind it next."""
        assert isinstance(decision, ExactDecision)
        view, paths, bound = decision.view, decision.paths, int(decision.bound[at])
        assert view.links is not None
        capacity_bps, demand_bps = decision.constraints.ceiling_bps.copy(), decision.demand_bps.copy()
        place_there = entities = 0
        grant_bps = float(decision.grant_bps[at])
        if bound == BY_DEMAND:
            demand_bps[at] = LIFTED_BPS
        else:
            capacity_bps[bound] = LIFTED_BPS
            # The pairs that use the constraint, and the sums of their grants by sender.
            users = np.searchsorted(paths.offsets, np.flatnonzero(paths.constraint == bound), side="right") - 1
            sums_bps = np.bincount(view.sender[users], decision.grant_bps[users])
            entities = int((sums_bps > 0).sum())
            place_there = 1 + int((sums_bps > sums_bps[view.sender[at]] * (1.0 + 1e-9)).sum())
        weight = view.vns.weight[view.sender]
        lifted = entity_max_min(paths, view.sender, capacity_bps, demand_bps, weight)
        lifted_bps = max(float(lifted.rate_bps[at]), grant_bps)
        words = _in_words(decision, at, format_location)
        return Explanation(at, grant_bps, words(bound), place_there, entities, lifted_bps, words(int(lifted.bound[at])))


def _in_words(decision: ExactDecision, at: int, format_location: LocationName) -> Callable[[int], str]:
    """Return a function from a bound's number to its text, for the sender of one pair."""
    view = decision.view
    assert view.links is not None
    names, own = view.links.names, f"{format_location(int(view.sender[at]))}'s send"

    def words(bound: int) -> str:
        if bound == BY_DEMAND:
            return DEMAND
        found = constraint_name(decision.constraints, format_location, names.__getitem__, bound)
        return found.replace(own, "its own send", 1)

    return words
