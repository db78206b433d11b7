"""Grants that take effect some intervals after they are decided, as in a network with slow control messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from controller.allocation.explanation import Explanation
from controller.policy.interface import Decision, LocationName, Policy, PolicyView
from controller.policy.policy_state import PolicyState


@dataclass(frozen=True)
class DelayedGrants(Policy):
    """A per-receiver policy whose grants apply ``intervals`` intervals late.

    The grants in flight are kept, one column for each interval. A sender for which none has arrived keeps its rate; a
    sender without a rate is unlimited. The rate at which an idle sender may start is not delayed.
    """

    policy: Policy
    intervals: int

    name: ClassVar[str] = "late"
    title: ClassVar[str] = "Late grants"
    controls_uncongested: ClassVar[bool] = False

    def decide(self, view: PolicyView, memory: PolicyState) -> Decision:
        """Return the grants that arrive now, and store those that were decided now."""
        decided = self.policy.decide(view, memory)
        columns = [f"late.{number}" for number in range(self.intervals)]
        grants_in_flight = [*map(memory.pair_column, columns), np.where(view.active, decided.grant_bps, np.nan)]
        oldest_bps = grants_in_flight[0]
        arrived_bps = np.minimum(np.where(np.isnan(oldest_bps), view.limit_bps, oldest_bps), view.available_bps)
        still_in_flight = dict(zip(columns, grants_in_flight[1:], strict=True))
        new_state = decided.memory.updated(by_entry={**decided.memory.by_entry, **still_in_flight})
        return replace(decided, grant_bps=np.where(view.active, arrived_bps, decided.grant_bps), memory=new_state)

    def explain(self, decision: Decision, at: int, format_location: LocationName) -> Explanation:
        """Return the constraint of the pair, as if its grant had not been late."""
        return self.policy.explain(decision, at, format_location)
