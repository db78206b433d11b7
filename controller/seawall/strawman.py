"""The scheme from which the paper starts (section 4.2): one loop for each sender and destination.

Figure 7 shows its flaw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.allocation.explanation import Explanation
from controller.allocation.parameters import parameter
from controller.columns import FloatArray, IntArray
from controller.metering.fabric_readings import ReadingKind
from controller.policy.explanation_text import lower_ceiling
from controller.policy.interface import Decision, LocationName, Policy, PolicyView, StaleMode
from controller.policy.policy_state import PolicyState
from controller.seawall import laws
from controller.seawall.link_feedback import along_paths
from controller.seawall.link_state import LinkState, PathLoops
from controller.seawall.loops import Loops
from controller.units import MIN_RATE_BPS


@dataclass(frozen=True)
class StrawmanDecision(Decision):
    """A decision. ``narrowest`` (rows,) is the link with the lowest share for each pair."""

    narrowest: IntArray


@dataclass(frozen=True)
class SeawallStrawman(Policy):
    """One loop for each pair, controlled by the losses on its path; an entity with N destinations gets N shares.

    1. Each pair's share of each link on its path, by weight among the active pairs: every pair counts.
    2. After a loss: a decrease; otherwise: a step, as a part of the lowest share of 1.
    3. At most KAPPA times the pair's use, or the lowest share of 1 if that is more; and at most the pair's ceiling.

    Choice: ``alpha`` and ``a``; the paper gives no values.
    """

    alpha: float = parameter(0.5, "decrease of a rate when all of its traffic is lost", above=0.0, maximum=1.0)
    a: float = parameter(0.02, "rise of a rate, as a part of its share of the narrowest link", above=0.0, maximum=1.0)

    name: ClassVar[str] = "seawall-strawman"
    title: ClassVar[str] = "Seawall's strawman"
    borrows: ClassVar[bool] = True
    weighted: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    silence: ClassVar[StaleMode] = StaleMode.HOLD
    required_readings: ClassVar[frozenset[ReadingKind]] = frozenset(
        {ReadingKind.LINKS, ReadingKind.PORTS, ReadingKind.QUEUES}
    )

    def decide(self, view: PolicyView, memory: PolicyState) -> StrawmanDecision:
        """Decide on all pairs, each separately. Raises InvalidValueError without links."""
        path_loops = PathLoops.from_view(view, memory, self.name)
        loops, links = path_loops.loops, LinkState.from_view(view, memory, path_loops)
        share_bps = _shares(loops, view, links.capacity_bps)  # 1
        least_bps = loops.lowest(share_bps)
        before_bps = memory.pair_column("rate_bps")
        found_bps = np.where(np.isfinite(view.limit_bps), view.limit_bps, least_bps)
        rate_bps = np.where(np.isnan(before_bps), found_bps, before_bps)
        alpha, a = (view.parameters[name][view.sender] for name in ("alpha", "a"))
        # The loss on each pair's path, which all uses of the pair have; unknown if the meter was not read.
        of_way = along_paths(loops, links.lost)[loops.offsets[:-1]]
        of_way = np.where(view.unread_intervals > 0, np.nan, of_way)
        moved_bps = laws.strawman(rate_bps, of_way, least_bps, alpha, a)  # 2
        most_bps = np.maximum(laws.KAPPA * view.measured_bps, least_bps)
        next_bps = np.maximum(np.minimum(np.minimum(moved_bps, most_bps), view.ceiling_bps), MIN_RATE_BPS)  # 3
        next_state = memory.updated(by_link=links.columns(), by_entry={"rate_bps": next_bps}, derived=path_loops)
        narrow = np.flatnonzero(share_bps <= loops.at_uses(least_bps))
        narrowest = np.zeros(len(view.rows), dtype=np.int64)
        narrowest[loops.entry_of_use[narrow]] = loops.use_link[narrow]
        return StrawmanDecision(view, next_bps, next_state, narrowest=narrowest)

    def explain(self, decision: Decision, at: int, format_location: LocationName) -> Explanation:
        """Return what binds the pair: its own loop, or the ceilings."""
        assert isinstance(decision, StrawmanDecision)
        view = decision.view
        assert view.links is not None
        ceilings = lower_ceiling(view, at)
        grant_bps = float(decision.grant_bps[at])
        if grant_bps >= ceilings.grant_bps:
            return ceilings
        loop = f"its own loop, by the losses on its path, narrowest at link {view.links.names[decision.narrowest[at]]}"
        return Explanation(at, grant_bps, loop, 0, 0, ceilings.grant_bps, ceilings.constraint)


def _shares(loops: Loops, view: PolicyView, capacity_bps: FloatArray) -> FloatArray:
    """Return (uses,) each pair's share of each link among the active pairs and itself, by weight."""
    weight = view.vns.weight[view.sender]
    counted = loops.at_uses(np.where(view.active, weight, 0.0))
    sums = np.bincount(loops.use_link, counted, minlength=len(capacity_bps))[loops.use_link]
    own = loops.at_uses(weight)
    share_bps: FloatArray = capacity_bps[loops.use_link] * own / (sums - counted + own)
    return share_bps
