"""Texts with which policies explain what binds a rate."""

from __future__ import annotations

from dataclasses import replace

from controller.allocation.explanation import LIFTED_BPS, NO_OTHER, RECEIVE_LIMIT, SEND_LIMIT, Explanation
from controller.policy.interface import PolicyView

STARTING = "the idle share, with which an idle sender may start"
_UNITS = ((1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"))


def format_rate_text(rate_bps: float) -> str:
    """Return a rate with one decimal in a suitable unit: ``37.0 Mb/s``."""
    for scale, unit in _UNITS:
        if rate_bps >= scale:
            return f"{rate_bps / scale:.1f} {unit}"
    return f"{rate_bps:.0f} b/s"


def explain_lower_limit(row: int, send_bps: float, receive_bps: float) -> Explanation:
    """Explain the lower of a send limit and a receive limit of the pair ``row``, in bits per second.

    Equal limits both bind; without them, no configured limit would bind.
    """
    if send_bps == receive_bps:
        return Explanation(row, send_bps, f"{SEND_LIMIT} and {RECEIVE_LIMIT}", 0, 0, LIFTED_BPS, NO_OTHER)
    bounds = [(send_bps, SEND_LIMIT), (receive_bps, RECEIVE_LIMIT)]
    (limit_bps, bound), (next_bps, next_constraint) = sorted(bounds)
    return Explanation(row, limit_bps, bound, 0, 0, next_bps, next_constraint)


def lower_ceiling(view: PolicyView, at: int) -> Explanation:
    """Explain the most that the pair ``view.rows[at]`` may carry: the lower of its VNs' limits, or ceilings."""
    vns, sender, receiver = view.vns, int(view.sender[at]), int(view.receiver[at])
    return explain_lower_limit(at, float(vns.send_max_bps[sender]), float(vns.receive_max_bps[receiver]))


def explain_idle_share(limit: Explanation, grant_bps: float) -> Explanation:
    """Explain the rate of an idle sender: its idle share binds it now, and ``limit`` would bind it next."""
    return replace(
        limit, constraint=STARTING, next_constraint=limit.constraint, lifted_bps=limit.grant_bps, grant_bps=grant_bps
    )
