"""Explains a pair's limit in text: what binds it, and what would bind it next.

A policy explains its own decisions; here it is asked about the state of a running controller, and operators' names are
put into its answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.allocation.explanation import FAIR_RATE, RECEIVE_LIMIT, Explanation
from controller.central.fabric_state import FabricState
from controller.dets.send_rate_controller import MachineState
from controller.fabric.agent_ports import Shaping
from controller.loop import control_step
from controller.metering.enforcement import RATE_STEP_BPS
from controller.policy.explanation_text import explain_lower_limit, format_rate_text

_SHAPED_BY = {
    Shaping.METER: "",
    Shaping.AGENT: "; shaped by the agent on the host behind {}",
    Shaping.BOTH: "; shaped by the agent on the host behind {}, with a meter behind it",
}


@dataclass(frozen=True, slots=True)
class PairExplanation:
    """What binds the limit of one pair. Rates in bits per second; ``str`` makes a sentence of it."""

    vlan_vid: int
    sender: str
    receiver: str
    """the two VNs as ``SWITCH:PORT``"""
    limit_bps: float
    """the effective limit"""
    constraint: str
    """the binding constraint, as text"""
    rank: int
    """1 if no other sharer of the constraint is granted more, and so on; 0 if it is not shared"""
    sharers: int
    next_constraint: str
    """what would bind it if that constraint were lifted, all else equal"""
    next_limit_bps: float
    """the limit in that case"""
    sent_bps: float
    """what the sender offers in all, before its send limit; NaN: unknown"""
    send_limit_dropped_bps: float
    """the drops of its send limit; NaN: unknown"""
    shaping: Shaping = Shaping.METER
    """who shapes it"""

    def __str__(self) -> str:
        """Return the explanation as one line."""
        share = f", share {self.rank} of {self.sharers}" if self.sharers else ""
        return (
            f"VLAN {self.vlan_vid}, {self.sender} to {self.receiver}: {format_rate_text(self.limit_bps)}; "
            f"bound by {self.constraint}{share}; "
            f"next bound: {self.next_constraint} at {format_rate_text(self.next_limit_bps)}"
            f"{self._drops()}{_SHAPED_BY[self.shaping].format(self.sender)}"
        )

    def _drops(self) -> str:
        if not self.send_limit_dropped_bps >= RATE_STEP_BPS:
            return ""
        dropped, sent = format_rate_text(self.send_limit_dropped_bps), format_rate_text(self.sent_bps)
        return f"; {self.sender}'s send limit drops {dropped} of the {sent} that it sends in all"


def explain_pair(fabric: FabricState, row: int) -> PairExplanation:
    """Explain the limit that pair ``row`` of the pair table has since the last interval."""
    state, vns = fabric.state, fabric.shared_vns
    sender, receiver = int(state.entries.sender[row]), int(state.entries.receiver[row])
    from_place, to_place = fabric.location_name(sender), fabric.location_name(receiver)
    vlan_vid = int(vns.vlan_vid[sender])
    if state.machines.control[row] != MachineState.LIMITED:
        explanation = _explain_limits(fabric, row, sender, receiver)
    else:
        explanation = _explain_grant(fabric, row, sender, receiver)
    capacity_bps = float(vns.capacity_bps[sender])
    if explanation.lifted_bps > capacity_bps:
        explanation = replace(
            explanation, lifted_bps=capacity_bps, next_constraint=f"the capacity of port {from_place}"
        )
    receive = f"{to_place}'s receive limit of VLAN {vlan_vid}{_less_floods(fabric, receiver)}"
    fair = f"the fair rate of {to_place}'s allocator"

    def in_words(bound: str) -> str:
        return bound.replace(RECEIVE_LIMIT, receive).replace(FAIR_RATE, fair)

    return PairExplanation(
        vlan_vid,
        from_place,
        to_place,
        float(control_step.effective_limits_bps(state, vns)[row]),
        in_words(explanation.constraint),
        explanation.rank,
        explanation.sharers,
        in_words(explanation.next_constraint),
        explanation.lifted_bps,
        float(fabric.send_limits.offered_bps[sender]),
        float(fabric.send_limits.dropped_bps[sender]),
    )


def _less_floods(fabric: FabricState, receiver: int) -> str:
    received_flood_bps = float(fabric.floods.received_bps[receiver])
    return f", of which floods take {format_rate_text(received_flood_bps)}" if received_flood_bps else ""


def _explain_grant(fabric: FabricState, row: int, sender: int, receiver: int) -> Explanation:
    """Explain a granted rate by the policy's decision."""
    state = fabric.state
    # Before the first interval there are no decisions.
    for group, decision in zip(fabric.control.groups, state.allocators.decisions, strict=False):
        view = decision.view
        at = int(np.searchsorted(view.rows, row))
        if view.entries is state.entries and at < len(view.rows) and view.rows[at] == row:
            return group.policy.explain(decision, at, fabric.location_name)
    return _explain_limits(fabric, row, sender, receiver)  # it is new, or has a new policy, since the last interval


def _explain_limits(fabric: FabricState, row: int, sender: int, receiver: int) -> Explanation:
    """Explain the limit of a pair without a grant: the lower of its two limits (or ceilings) binds it."""
    send_bps, receive_bps = fabric.vns.send_max_bps[sender], fabric.shared_vns.receive_max_bps[receiver]
    return explain_lower_limit(row, float(send_bps), float(receive_bps))
