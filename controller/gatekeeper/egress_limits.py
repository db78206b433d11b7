"""The sending side: it halves the limit of a sender that it is told of, lets it rise again, and schedules the sending
port by guarantees (Gatekeeper, section 3)."""

from __future__ import annotations

import numpy as np

from controller.allocation.groups import Groups, fill
from controller.allocation.interface import BoolArray, FloatArray, IntArray
from controller.allocation.max_min import FlowPaths, solve
from controller.gatekeeper.ingress_watch import Pairs

# Choice: a limit far above what is offered comes down to this part of the offer first, or halving it changes nothing.
ABOVE_OFFER = 1.25


def started(limit_bps: FloatArray, most_bps: FloatArray) -> FloatArray:
    """Return the limits with those of new pairs (NaN) put in: all they may send. The paper: "the physical link"."""
    return np.where(np.isnan(limit_bps), most_bps, np.minimum(limit_bps, most_bps))


def risen(
    pairs: Pairs,
    limit_bps: FloatArray,
    most_bps: FloatArray,
    capacity_bps: FloatArray,
    slope_per_s: FloatArray,
    rises: BoolArray,
    elapsed_s: float,
) -> FloatArray:
    """Return (entries,) the limits after a linear rise (paper), of the pairs that may rise, up to ``most_bps``.

    ``capacity_bps`` and ``slope_per_s`` (vns,): the receiver's port, and the part of it by which all of its active
    pairs rise in a second together. Choice: the paper gives no slope, and one for each sender makes N of them overload
    a receiver by N times as much.
    """
    active = np.bincount(pairs.receiver, pairs.active, minlength=len(capacity_bps))
    step_bps = slope_per_s * capacity_bps * elapsed_s / np.maximum(active, 1.0)
    result: FloatArray = np.minimum(limit_bps + np.where(rises, step_bps[pairs.receiver], 0.0), most_bps)
    return result


def halved(
    limit_bps: FloatArray, told: BoolArray, floor_bps: FloatArray, offered_bps: FloatArray, decrease: FloatArray
) -> FloatArray:
    """Return (entries,) the limits after the messages: less by ``decrease``, once, but not below the floor."""
    near_bps = np.where(offered_bps > 0.0, np.minimum(limit_bps, ABOVE_OFFER * offered_bps), limit_bps)
    lower_bps = np.maximum(near_bps * (1.0 - decrease), np.minimum(floor_bps, limit_bps))
    return np.where(told, lower_bps, limit_bps)


def of_senders(pairs: Pairs, limit_bps: FloatArray, together: BoolArray, demand_bps: FloatArray) -> FloatArray:
    """Return (entries,) what the pairs may send where a sender has one limit for all of them (paper: ``LIM_j``).

    ``together`` (vns,) says for which senders. Their limit is the least of their pairs' and shared out by weight.
    """
    mine = together[pairs.sender]
    if not mine.any():
        return limit_bps
    vns = len(together)
    least_bps = np.full(vns, np.inf)
    np.minimum.at(least_bps, pairs.sender[mine], limit_bps[mine])
    parts_bps = _by_sender(pairs, np.where(np.isfinite(least_bps), least_bps, 0.0), demand_bps)
    return np.where(mine, parts_bps, limit_bps)


def least_of_senders(pairs: Pairs, limit_bps: FloatArray, together: BoolArray) -> FloatArray:
    """Return (entries,) the limits to remember: of senders with one limit, the least of their pairs'."""
    mine = together[pairs.sender]
    least_bps = np.full(len(together), np.inf)
    np.minimum.at(least_bps, pairs.sender[mine], limit_bps[mine])
    return np.where(mine, least_bps[pairs.sender], limit_bps)


def scheduled(
    pairs: Pairs,
    demand_bps: FloatArray,
    port: IntArray,
    left_bps: FloatArray,
    guarantee_bps: FloatArray,
    most_bps: FloatArray,
    weight: FloatArray,
) -> FloatArray:
    """Return (entries,) what the egress scheduler of each sending port leaves its pairs (section 3.2).

    ``port`` (vns,) is the row of a VN's sending port in ``left_bps`` (ports,), what other VLANs leave of it;
    ``guarantee_bps``, ``most_bps`` and ``weight`` (vns,) are its send guarantee, ceiling and weight.

    1. Each VN wants what its pairs want.
    2. Guarantees first, then the excess by weight up to the ceilings.
    3. Each VN's part among its pairs. A pair that wants little may have its part of the guarantee all the same.
    """
    vns = len(port)
    wanted_bps = np.minimum(np.bincount(pairs.sender, demand_bps, minlength=vns), most_bps)  # 1
    paths = FlowPaths(np.arange(vns + 1), port.astype(np.int64), len(left_bps))
    first_bps = solve(paths, left_bps, np.minimum(wanted_bps, guarantee_bps), weight).rate_bps  # 2
    rest_bps = np.maximum(left_bps - np.bincount(port, first_bps, minlength=len(left_bps)), 0.0)
    granted_bps = first_bps + solve(paths, rest_bps, np.maximum(wanted_bps - first_bps, 0.0), weight).rate_bps
    parts_bps = _by_sender(pairs, granted_bps, demand_bps)  # 3
    active = np.bincount(pairs.sender, pairs.active, minlength=vns)[pairs.sender]
    standing_bps = guarantee_bps[pairs.sender] / (active - pairs.active + 1.0)
    content = parts_bps >= demand_bps
    result: FloatArray = np.where(content, np.maximum(parts_bps, standing_bps), parts_bps)
    return result


def _by_sender(pairs: Pairs, amount_bps: FloatArray, demand_bps: FloatArray) -> FloatArray:
    """Return (entries,) each sender's amount, (vns,), among its pairs, by weight and demand."""
    order = np.argsort(pairs.sender, kind="stable")
    sizes = np.bincount(pairs.sender, minlength=len(amount_bps))
    groups = Groups(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    parts_bps = np.empty(len(pairs))
    parts_bps[order] = fill(groups, amount_bps, pairs.weight[order], demand_bps[order])
    return parts_bps
