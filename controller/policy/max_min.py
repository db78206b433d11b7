"""The ``max-min`` policy: the rates of all pairs of its VLANs at once, within limits, links and ceilings.

It keeps all senders of its VLANs under control, with or without congestion, because it needs all demands. Cross traffic
is subtracted from links first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.allocation.explanation import DEMAND, Explanation, constraint_name, explain_network
from controller.allocation.max_min import BY_DEMAND, FlowPaths
from controller.allocation.network_max_min import (
    MIN_DEMAND_BPS,
    ByDemands,
    Constraints,
    FlowCounters,
    NetworkGrants,
    allocate_network,
    estimate_demands,
)
from controller.columns import FloatArray, IntArray
from controller.errors import InvalidValueError
from controller.fabric.link_table import LinkTable
from controller.metering.fabric_readings import ReadingKind
from controller.policy.demand_trials import DemandTrials
from controller.policy.explanation_text import explain_idle_share, lower_ceiling
from controller.policy.interface import Decision, LocationName, Policy, PolicyView
from controller.policy.policy_state import PolicyState
from controller.units import MIN_RATE_BPS


@dataclass(frozen=True)
class NetworkDecision(Decision):
    """A decision of one interval, and its input; all columns of ``grants`` and ``weight`` have shape (rows,)."""

    paths: FlowPaths
    constraints: Constraints
    grants: NetworkGrants
    weight: FloatArray

    @property
    def bottlenecks(self) -> IntArray:
        """Return the limit or the link that binds each pair; below 0 where the pair's demand is met."""
        return self.grants.bound

    def bottleneck_name(self, number: int, format_location: LocationName) -> str:
        """Return the name of a limit or a link."""
        assert self.view.links is not None
        return constraint_name(self.constraints, format_location, self.view.links.names.__getitem__, number)


@dataclass(frozen=True)
class MaxMinPolicy(ByDemands, Policy):
    """Network-wide weighted max-min with guarantees, ceilings and demands from the counters."""

    name: ClassVar[str] = "max-min"
    title: ClassVar[str] = "Network-wide weighted max-min"
    borrows: ClassVar[bool] = True
    weighted: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    required_readings: ClassVar[frozenset[ReadingKind]] = frozenset({ReadingKind.LINKS})

    def decide(self, view: PolicyView, memory: PolicyState) -> NetworkDecision:
        """Decide on all pairs of the VLANs, each with its own VLAN's parameters.

        1. The demand of each sender; a sender that fills its grant demands at least its guarantee. A VN below its
           guarantee whose uplink is full demands more than it sends, for a trial.
        2. The capacity of the links; cross traffic above its limits counts only after all guarantees.
        3. Guarantees first, then the excess by weight up to the ceilings.
        4. Each sender gets at least its idle share, even if it demands less.

        Choice: step 4. A TCP sender's rate is not its demand. If its limit is slightly above its rate, it loses its
        bursts, backs off, and is limited even lower: of a guarantee of 20 Mb/s two flows got 0.3 on Open vSwitch. An
        unused grant costs nothing; when it is suddenly used, it counts as a demand from the next interval on, and until
        then the receiving queue serves guarantees first. A sender that a limit or a link binds gets no more than that.

        Raises InvalidValueError without links, whose capacity it shares.
        """
        if view.links is None or view.cross_traffic_bps is None or view.cross_guaranteed_bps is None:
            raise InvalidValueError("links", view.links, f"are needed: {self.name} shares out all of them")
        vns, sender, receiver = view.vns, view.sender, view.receiver
        counters = FlowCounters(view.measured_bps, view.limit_bps, view.dropped_bps, view.active)
        guaranteed_bps = np.minimum(vns.send_limit_bps[sender], vns.receive_limit_bps[receiver])
        probe, headroom = (view.parameters[name][receiver] for name in ("probe", "headroom"))
        demand_bps = estimate_demands(counters, MIN_DEMAND_BPS, probe, headroom, guaranteed_bps)  # 1
        sent_bps = np.bincount(sender, view.measured_bps, minlength=len(vns)).astype(np.float64)
        trials = DemandTrials.from_state(memory).updated(
            sent_bps, vns.send_limit_bps, view.links.up, view.cross_traffic_bps, view.links.capacity_bps
        )
        demand_bps = np.maximum(demand_bps, view.measured_bps * trials.factors(sent_bps, vns.send_limit_bps)[sender])
        constraints = Constraints.build(  # 2
            vns.send_limit_bps,
            vns.receive_limit_bps,
            np.maximum(view.links.capacity_bps - view.cross_guaranteed_bps, MIN_RATE_BPS),
            vns.send_max_bps,
            vns.receive_max_bps,
            np.maximum(view.links.capacity_bps - view.cross_traffic_bps, MIN_RATE_BPS),
        )
        paths = _paths(memory, constraints, view, view.links)
        weight = vns.weight[sender]
        grant_bps, within_bps, bound = allocate_network(paths, constraints, demand_bps, weight)  # 3
        bound = np.where(view.active, bound, BY_DEMAND)
        idle_share_bps = np.where(bound == BY_DEMAND, _idle_shares_bps(view), 0.0)  # 4
        grant_bps = np.maximum(grant_bps, idle_share_bps)
        grants = NetworkGrants(grant_bps, np.maximum(within_bps, idle_share_bps), demand_bps, bound)
        next_state = memory.updated(by_vn=trials.columns(), derived=(view.links, paths))
        return NetworkDecision(view, grant_bps, next_state, paths, constraints, grants, weight)

    def explain(self, decision: Decision, at: int, format_location: LocationName) -> Explanation:
        """Return what binds the pair, by the problem that was solved."""
        assert isinstance(decision, NetworkDecision)
        view, constraints = decision.view, decision.constraints
        assert view.links is not None
        sender = int(view.sender[at])
        if not view.active[at]:
            limits = lower_ceiling(view, at)
            return explain_idle_share(limits, limits.grant_bps)
        own, vlan_vid, links = f"{format_location(sender)}'s send", int(view.vns.vlan_vid[sender]), view.links.names

        def name(bound: int) -> str:
            """Return the text of a bound: "its own send ..." for the sender's own, "... of VLAN N" for other VNs'."""
            words = constraint_name(constraints, format_location, links.__getitem__, bound)
            if words.startswith(own):
                return words.replace(own, "its own send", 1)
            return words if words == DEMAND or words.startswith("link ") else f"{words} of VLAN {vlan_vid}"

        return explain_network(decision.paths, constraints, decision.grants, decision.weight, at, name)


def _paths(memory: PolicyState, constraints: Constraints, view: PolicyView, links: LinkTable) -> FlowPaths:
    """Return the paths of the pairs; usually they are cached from the previous interval."""
    if isinstance(memory.derived, tuple) and memory.derived[0] is links:
        paths: FlowPaths = memory.derived[1]
        return paths
    return constraints.paths(view.sender, view.receiver, *links.pair_links(view.entries, view.rows))


def _idle_shares_bps(view: PolicyView) -> FloatArray:
    """Return each pair's idle share, (rows,): an equal share of the receiver's limit among its active senders.

    A VN that lent all of its limit has it back at once when it sends again; the next grants take it from the borrowers.
    """
    # ``- view.active + 1.0``: each sender counts itself as active, and once.
    active = np.bincount(view.receiver, weights=view.active, minlength=len(view.vns))
    share_bps: FloatArray = view.vns.receive_limit_bps[view.receiver] / (active[view.receiver] - view.active + 1.0)
    return np.minimum(share_bps, np.maximum(view.available_bps, MIN_RATE_BPS))
