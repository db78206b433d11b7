"""Seawall's policies: every link is shared among the sending VNs by their weights, whatever they send.

One class for each law of section 4. All VLANs under a law are decided together, so that a VN's share of a link does not
depend on which of them it is in; each VLAN's parameters hold for its own VNs. Two further policies are for comparison:
strawman.py is the paper's first, flawed scheme, exact_max_min.py computes the exact shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from controller.allocation.explanation import Explanation
from controller.allocation.interface import FULL_USE
from controller.allocation.network_max_min import ByDemands
from controller.allocation.parameters import parameter, switch
from controller.allocation.segments import Segments, fill_level
from controller.columns import FloatArray, IntArray
from controller.metering.fabric_readings import ReadingKind
from controller.policy.explanation_text import format_rate_text, lower_ceiling
from controller.policy.interface import Decision, LocationName, NewPairs, Policy, PolicyView, StaleMode
from controller.policy.policy_state import PolicyState
from controller.seawall import laws
from controller.seawall.entity_allocator import Allocation, Law, LoopConstants, PairTraffic, RateLoopState, allocate
from controller.seawall.link_feedback import along_paths, marked_shares
from controller.seawall.link_state import LinkState, PathLoops
from controller.seawall.loops import BETA, Loops
from controller.units import MIN_RATE_BPS

# Choice: the load of a link, in capacities, at which the proportional law is in equilibrium: its buffer stays empty.
TARGET = 0.98
# Choice: the same for a loop with more than its share, by the part ABOVE. TCP flows of the other loops can show a
# higher demand only if the link has capacity left. A host's own drops are invisible.
ROOM_TARGET, HOST_TARGET = 0.95, 0.93
ABOVE = 0.05
NO_CEILING_BPS = 1e15
# Choice: a reading up to this many intervals late is no silence. The previous rate counts, and no limit rises.
LATE_INTERVALS = 2

# The state of each loop; only laws with a curve have the second part.
_LOOP = ("rate_bps", "peak_bps", "unknown")
_OF_CURVE = ("goal_bps", "increment_bps", "since_drop_intervals", "marked_mean")


@dataclass(frozen=True)
class SeawallDecision(Decision):
    """A decision and its input, for explanations. ``marks`` (uses,) are the marks of each link alone."""

    loops: Loops
    allocation: Allocation
    state: LinkState
    marks: FloatArray

    @cached_property
    def _tightest(self) -> IntArray:
        """Return each pair's use of the link with the lowest rate, the first of several; (rows,)."""
        loops, left_bps = self.loops, self.allocation.left_bps
        # The uses in descending order: the first one of a pair is assigned last.
        lowest = np.flatnonzero(left_bps <= loops.at_uses(loops.lowest(left_bps)))[::-1]
        tightest = np.zeros(len(self.view.rows), dtype=np.int64)
        tightest[loops.entry_of_use[lowest]] = lowest
        return tightest

    @property
    def marked(self) -> FloatArray:
        """Return the marks computed for each pair's bottleneck."""
        return self.marks[self._tightest]

    @property
    def lost(self) -> FloatArray:
        """Return the share lost at each pair's bottleneck."""
        return self.state.lost[self._tightest]

    @property
    def bottlenecks(self) -> IntArray:
        """Return the link with the lowest rate for each pair."""
        return self.loops.use_link[self._tightest]

    def bottleneck_name(self, number: int, format_location: LocationName) -> str:
        """Return the link's name."""
        assert self.view.links is not None
        return f"link {self.view.links.names[number]}"


@dataclass(frozen=True)
class _SenderShares(Policy):
    """The common part of all laws.

    1. The loops: one for each sending VN on each link (section 4.3). No loop has more than its VN's send ceiling.
    2. The links' feedback: load, computed marks, losses. The feedback of a pair with an unread meter is unknown.
    3. The bandwidth allocators of all entities (entity_allocator.allocate).
    4. At most a receiver's ceiling, shared by weight.

    Deviation: the paper's receivers see the whole path, and so do the loops of all its links. A controller sees the
    single link. With feedback of the whole path two equally full links mark twice: alone on both, a sender gets 94 % of
    them, not 98.
    """

    alpha: float = parameter(0.5, "decrease of a rate when all of its traffic is marked", above=0.0, maximum=1.0)
    a: float = parameter(0.05, "part of a link's remaining capacity by which its rates rise", above=0.0, maximum=1.0)
    beta: float = parameter(
        BETA, "the part of a rate that follows what each destination gets", minimum=0.0, maximum=1.0
    )
    kappa: float = parameter(laws.KAPPA, "maximum rate, as a multiple of the recent use", minimum=1.0, maximum=100.0)
    path: float = switch(False, "whether feedback is of the whole path, as in the paper, or of each link alone")

    law: ClassVar[Law]
    borrows: ClassVar[bool] = True
    weighted: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    silence: ClassVar[StaleMode] = StaleMode.HOLD
    required_readings: ClassVar[frozenset[ReadingKind]] = frozenset(
        {ReadingKind.LINKS, ReadingKind.PORTS, ReadingKind.QUEUES}
    )

    def decide(self, view: PolicyView, memory: PolicyState) -> SeawallDecision:
        """Decide on all pairs. Raises InvalidValueError without links, whose capacity it shares."""
        path_loops = PathLoops.from_view(view, memory, self.name)  # 1
        loops, links = path_loops.loops, LinkState.from_view(view, memory, path_loops)  # 2
        constants = self._constants(view, loops)
        state, weight = self._state(memory, view, loops, links), view.vns.weight[loops.sender]
        active = loops.sum_of_entries(view.active) > 0
        idle_share_bps = laws.idle_shares(loops, active, weight, links.capacity_bps)
        marked = marked_shares(
            links.marked_load_bps(view.elapsed_s)[loops.use_link],
            links.capacity_bps[loops.use_link],
            constants.curve.alpha[loops.use_loop],
            constants.curve.a[loops.use_loop],
            _targets(path_loops, state.rate_bps, idle_share_bps)[loops.use_loop],
        )
        # Choice: the proportional law has marks before any loss, so unknown losses do not stop it.
        lost = np.nan_to_num(links.lost) if self.law is Law.PROPORTIONAL else links.lost
        is_stale = (view.unread_intervals > LATE_INTERVALS).astype(np.float64)
        lost = np.where(loops.at_uses(is_stale) > 0.0, np.nan, lost)
        feedback_lost, feedback_marked = lost, marked
        of_whole_path = view.parameters["path"] > 0
        if of_whole_path.any():
            use_of_whole_path = of_whole_path[loops.sender[loops.use_loop]]
            feedback_lost = np.where(use_of_whole_path, along_paths(loops, lost), lost)
            feedback_marked = np.where(use_of_whole_path, along_paths(loops, marked), marked)
        allocation = allocate(  # 3
            self.law,
            loops,
            state,
            PairTraffic(links.used_bps, view.drops, view.active),
            feedback_lost,
            feedback_marked,
            idle_share_bps,
            weight,
            view.vns.send_max_bps[loops.sender],
            links.capacity_bps,
            constants,
        )
        grant_bps = np.minimum(allocation.rate_bps, receiver_shares(view, allocation.rate_bps, links))  # 4
        next_state = memory.updated(
            by_link=links.columns(),
            uses=(loops.sender, loops.link, self._columns(allocation.state)),
            derived=path_loops,
        )
        return SeawallDecision(view, np.maximum(grant_bps, MIN_RATE_BPS), next_state, loops, allocation, links, marked)

    def first_bps(self, new_pairs: NewPairs) -> FloatArray:
        """Return an equal share of the receiver's limit among its senders: about the start rate of the loop."""
        vns = new_pairs.vns
        share_bps = vns.receive_max_bps[new_pairs.receiver] / np.maximum(new_pairs.senders, 1)
        first_bps: FloatArray = np.minimum(vns.send_max_bps[new_pairs.sender], share_bps)
        return first_bps

    def explain(self, decision: Decision, at: int, format_location: LocationName) -> Explanation:
        """Return what binds the pair: the link with the lowest rate for it, or a ceiling.

        Feedback of the whole path also limits the loops of links that are not the bottleneck. So among links with about
        equal rates, the link with the highest share of own marks is named.
        """
        assert isinstance(decision, SeawallDecision)
        view, loops, allocation = decision.view, decision.loops, decision.allocation
        uses = np.arange(loops.offsets[at], loops.offsets[at + 1])
        left_bps = allocation.left_bps[uses]
        is_near_lowest = left_bps <= left_bps.min() * (1.0 + 2.0 * (1.0 - TARGET))
        # Among the uses near the lowest rate the one with the most marks, and of these the one with the lowest rate.
        bottleneck_use = int(uses[np.lexsort((left_bps, np.where(is_near_lowest, -decision.marks[uses], 1.0)))[0]])
        other_bounds = [
            (float(allocation.left_bps[use]), _link_words(decision, int(use))) for use in uses if use != bottleneck_use
        ]
        receiver = int(view.receiver[at])
        ceilings = lower_ceiling(view, at)
        grant_bps = float(decision.grant_bps[at])
        other_bounds.append((ceilings.grant_bps, ceilings.constraint))
        link = (float(left_bps.min()), _link_words(decision, bottleneck_use))
        if grant_bps < link[0] * (1.0 - 1e-9):  # lower than any link's share
            bound = (
                ceilings.constraint
                if grant_bps >= ceilings.grant_bps
                else f"what {format_location(receiver)} may receive"
            )
            return Explanation(at, grant_bps, bound, 0, 0, link[0], link[1])
        sharing_uses = np.flatnonzero(loops.use_loop == loops.use_loop[bottleneck_use])
        rank = 1 + int((allocation.left_bps[sharing_uses] > allocation.left_bps[bottleneck_use] * (1.0 + 1e-9)).sum())
        next_bps, next_constraint = min(other_bounds)
        return Explanation(at, grant_bps, link[1], rank, len(sharing_uses), max(next_bps, grant_bps), next_constraint)

    def _constants(self, view: PolicyView, loops: Loops) -> LoopConstants:
        """Return the constants of each loop: its sender's VLAN's, or the default for a law that does not use one."""

        def column(name: str) -> FloatArray:
            values = view.parameters.get(name)
            return np.full(len(loops), getattr(SeawallDctcp, name)) if values is None else values[loops.sender]

        alpha = column("alpha")
        alpha_lost = alpha if self.law is Law.CUBIC else np.full(len(loops), SeawallCubic.alpha)
        curve = map(column, ("a", "gamma", "delta", "t_s", "hold"))
        return LoopConstants(column("beta"), column("kappa"), laws.CurveConstants(alpha, alpha_lost, *curve))

    def _state(self, memory: PolicyState, view: PolicyView, loops: Loops, links: LinkState) -> RateLoopState:
        """Return the loops' state. A new loop continues from its pairs' limits, if all of these pairs have one."""
        columns = {name: memory.vn_link_column(name, loops.sender, loops.link) for name in _LOOP}
        rate_bps = columns["rate_bps"]
        fresh = np.isnan(rate_bps)
        if fresh.any():
            granted = np.isfinite(view.limit_bps)
            limit_sum_bps = loops.sum_of_entries(np.where(granted, view.limit_bps, 0.0))
            continues = fresh & (loops.sum_of_entries(~granted) == 0)
            start_bps = np.minimum(limit_sum_bps, links.capacity_bps[loops.link])
            columns["rate_bps"] = np.where(continues, start_bps, rate_bps)
        if self.law is Law.PROPORTIONAL:
            return RateLoopState(**columns, curve=laws.Curve.initial(len(loops)))
        curve = laws.Curve(*(memory.vn_link_column(name, loops.sender, loops.link) for name in _OF_CURVE))
        return RateLoopState(**columns, curve=curve)

    def _columns(self, state: RateLoopState) -> dict[str, FloatArray]:
        columns = {name: getattr(state, name) for name in _LOOP}
        if self.law is Law.PROPORTIONAL:
            return columns
        return columns | {name: getattr(state.curve, name) for name in _OF_CURVE}


@dataclass(frozen=True)
class Seawall(_SenderShares):
    """The default: proportional to marks that the controller computes, which come before any loss.

    Choice: ``alpha``, ``a``; the paper gives no values. ``beta`` is section 4.3's, ``kappa`` a choice (4.5).
    """

    name: ClassVar[str] = "seawall"
    title: ClassVar[str] = "Seawall"
    law: ClassVar[Law] = Law.PROPORTIONAL


@dataclass(frozen=True)
class _OnACurve(_SenderShares):
    """Class 3 (section 4.4): the constants of the curve.

    The paper gives no values: it follows past work (section 4.6), CUBIC and DCTCP (4.4). Choice: ``a`` (the paper's
    step w has no unit), ``delta``, ``t_s`` (T_s), and ``hold``, which the paper does not have.
    """

    a: float = parameter(0.01, "part of a link's remaining capacity by which the rise grows", above=0.0, maximum=1.0)
    delta: float = parameter(0.4, "how fast the concave part nears its goal", above=0.0, maximum=1.0)
    t_s: float = parameter(10.0, "intervals of the concave part", minimum=1.0, maximum=1000.0)
    hold: float = parameter(
        laws.HOLD_INTERVALS, "intervals after a decrease without another one", minimum=0.0, maximum=100.0
    )


@dataclass(frozen=True)
class SeawallCubic(_OnACurve):
    """The paper's Class 3 on losses alone (section 4.4); with ``path`` 1 as published. Choice: ``alpha``."""

    alpha: float = parameter(0.2, "decrease of a rate at a loss", above=0.0, maximum=1.0)

    name: ClassVar[str] = "seawall-cubic"
    title: ClassVar[str] = "Seawall, on losses"
    law: ClassVar[Law] = Law.CUBIC


@dataclass(frozen=True)
class SeawallDctcp(_OnACurve):
    """The paper's Class 3 on losses and on marks that the controller computes (section 4.4).

    ``alpha`` and ``gamma`` are DCTCP's (RFC 8257); the paper gives no values.
    """

    gamma: float = parameter(1 / 16, "how fast the mean share of marks follows", above=0.0, maximum=1.0)

    name: ClassVar[str] = "seawall-dctcp"
    title: ClassVar[str] = "Seawall, on losses and marks"
    law: ClassVar[Law] = Law.DCTCP


def _targets(path_loops: PathLoops, rate_bps: FloatArray, idle_share_bps: FloatArray) -> FloatArray:
    """Return the target load of each loop's link, a part of its capacity, (loops,); lower above the loop's share."""
    above = np.nan_to_num(rate_bps) / idle_share_bps - 1.0
    room = np.where(path_loops.up[path_loops.loops.link], HOST_TARGET, ROOM_TARGET)
    target: FloatArray = TARGET - (TARGET - room) * np.clip(above / ABOVE, 0.0, 1.0)
    return target


def receiver_shares(view: PolicyView, rate_bps: FloatArray, links: LinkState) -> FloatArray:
    """Return each pair's part of its receiver's ceiling in bit/s, (rows,): weighted max-min among its senders.

    A ceiling below the access link's capacity is a bottleneck without link feedback. It is known, so the shares are
    computed. A sender that does not fill its limit is assumed to demand a little more than it sends.
    """
    vns = view.vns
    assert view.links is not None
    below_link = vns.receive_max_bps < links.capacity_bps[view.links.down]
    if not below_link[view.receiver].any():
        return view.ceiling_bps
    weight = vns.weight[view.sender]
    fills_limit = (view.measured_bps >= FULL_USE * view.limit_bps) | view.drops | np.isinf(view.limit_bps)
    demand_bps = np.where(fills_limit, rate_bps, np.minimum(rate_bps, (1.0 + ByDemands.headroom) * view.measured_bps))
    demand_bps = np.where(view.active, np.minimum(demand_bps, view.ceiling_bps), 0.0)
    senders = np.bincount(view.receiver, minlength=len(vns))
    receivers = np.flatnonzero(senders)
    groups = Segments(np.concatenate([[0], np.cumsum(senders[receivers])]).astype(np.int64))
    shared_bps = np.where(below_link, TARGET * vns.receive_max_bps, NO_CEILING_BPS)[receivers]
    level_bps = groups.broadcast(fill_level(groups, shared_bps, weight, demand_bps))
    share_bps: FloatArray = np.minimum(level_bps * weight, view.ceiling_bps)
    return share_bps


def _link_words(decision: SeawallDecision, use: int) -> str:
    """Return a link's part of an explanation."""
    loops, view = decision.loops, decision.view
    assert view.links is not None
    link, loop = int(loops.use_link[use]), int(loops.use_loop[use])
    weight, lost = view.vns.weight[loops.sender], decision.state.lost[use]
    words = f"link {view.links.names[link]}: weight {weight[loop]:g} of {weight[loops.link == link].sum():g}"
    lost_words = "losses unknown" if np.isnan(lost) else f"{lost:.1%} lost"
    rate = format_rate_text(float(decision.allocation.state.rate_bps[loop]))
    return f"{words}, {decision.marks[use]:.1%} marked, {lost_words}; {rate} for all its receivers there"
