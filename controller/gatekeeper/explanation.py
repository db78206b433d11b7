"""Texts of what binds a pair under Gatekeeper."""

from __future__ import annotations

import numpy as np

from controller.allocation.explanation import Explanation
from controller.gatekeeper.decision import GatekeeperDecision
from controller.policy.explanation_text import format_rate_text
from controller.policy.interface import LocationName

FREE = "the lower of both ceilings"
ESTIMATED = " (drops estimated: no queue counters)"
_AT = 1e-9


def explain(decision: GatekeeperDecision, at: int, format_location: LocationName) -> Explanation:
    """Return what binds the pair at a position of the decision: the lowest of three limits, and the second lowest."""
    ceiling_bps = float(decision.view.ceiling_bps[at])
    bounds = [
        (ceiling_bps, FREE),
        (float(decision.scheduled_bps[at]), _sending_port(decision, at, format_location)),
        (float(decision.limit_bps[at]), _egress_limit(decision, at, format_location)),
    ]
    bounds.sort(key=lambda one: one[0])  # of equal ones the first: without congestion the ceilings
    (_, bound), (next_bps, next_constraint) = bounds[:2]
    grant_bps = float(decision.grant_bps[at])
    estimated = "" if decision.view.vns.has_queue[decision.view.receiver[at]] else ESTIMATED
    return Explanation(at, grant_bps, bound + estimated, 0, 0, max(next_bps, grant_bps), next_constraint)


def _sending_port(decision: GatekeeperDecision, at: int, format_location: LocationName) -> str:
    view = decision.view
    sender = int(view.sender[at])
    guarantee_bps = float(view.vns.send_limit_bps[sender])
    borrowed_bps = max(float(decision.sending_bps[sender]) - guarantee_bps, 0.0)
    guarantee, borrowed = format_rate_text(guarantee_bps), format_rate_text(borrowed_bps)
    return f"its share of {format_location(sender)}'s sending port (guarantee {guarantee}, borrowed {borrowed})"


def _egress_limit(decision: GatekeeperDecision, at: int, format_location: LocationName) -> str:
    """Return the text on a pair that its egress limit binds: when it was halved, and by whom it was notified."""
    view = decision.view
    at = _last_notified(decision, at)
    receiver, limit_bps = int(view.receiver[at]), float(decision.limit_bps[at])
    if 0.0 < limit_bps <= float(decision.floor_bps[at]) * (1 + _AT):
        return f"its floor: its part of {format_location(receiver)}'s receive guarantee"
    capacity_bps = float(view.vns.capacity_bps[receiver])
    now = f"rising {format_rate_text(float(decision.rise_bps_per_s[at]))} per s"
    now += f", {format_rate_text(limit_bps)} of {format_rate_text(capacity_bps)}"
    if np.isnan(decision.last_notified_s[at]):
        return f"its egress limit, which it began with, {now}"
    times, since_s = int(decision.halvings[at]), view.now_s - float(decision.first_notified_s[at])
    drops = (
        f"dropped {format_rate_text(float(decision.notified_drops_bps[at]))} of {format_rate_text(capacity_bps)}, "
        f"threshold {format_rate_text(float(decision.threshold_bps[receiver]))}"
    )
    halved = f"halved {times} times in the last {since_s:.1f} s" if times else "not halved since its maximum"
    return f"its egress limit, {halved}, {now}; last notified by {format_location(receiver)} ({drops})"


def _last_notified(decision: GatekeeperDecision, at: int) -> int:
    """Return the pair whose messages count: for a sender with one limit, the pair that was notified last."""
    view = decision.view
    sender = view.sender[at]
    if view.parameters["pair"][sender] > 0.0:
        return at
    mine = np.flatnonzero(view.sender == sender)
    told_s = np.nan_to_num(decision.last_notified_s[mine], nan=-np.inf)
    return int(mine[np.argmax(told_s)]) if np.isfinite(told_s).any() else at
