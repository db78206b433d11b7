"""The sending side: limits halve on notifications and rise again; a scheduler shares the port (section 2, figure 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation.max_min import FlowPaths, solve
from controller.allocation.segments import Segments, fill
from controller.columns import BoolArray, FloatArray, IntArray
from controller.gatekeeper.ingress_monitor import Pairs

# Choice: a limit far above the offered rate is first lowered to this part of it, or halving it would have no effect.
ABOVE_OFFER = 1.25
# Choice: a controller that was stopped for longer missed drops in that time, so limits rise in a step by at most this
# many seconds. No interval under this policy is longer.
MAX_RISE_S = 0.5
SAME = 1e-9  # rates with a smaller relative difference are equal


def started(limit_bps: FloatArray, most_bps: FloatArray) -> FloatArray:
    """Return the limits, with those of new pairs (NaN) set to the maximum. The paper: "the physical link"."""
    return np.where(np.isnan(limit_bps), most_bps, np.minimum(limit_bps, most_bps))


def slopes(pairs: Pairs, capacity_bps: FloatArray, slope_per_s: FloatArray) -> FloatArray:
    """Return (pairs,) the rise of each pair's limit per second.

    ``capacity_bps`` and ``slope_per_s`` (vns,): the receiver's port, and the part of it by which all its active pairs
    together rise in a second. Choice: the paper gives no slope; a slope per sender would make N senders overload a
    receiver N times as much.
    """
    active = np.bincount(pairs.receiver, pairs.active, minlength=len(capacity_bps))
    return (slope_per_s * capacity_bps / np.maximum(active, 1.0))[pairs.receiver]


def risen(
    limit_bps: FloatArray, most_bps: FloatArray, slope_bps_per_s: FloatArray, rises: BoolArray, since_s: FloatArray
) -> FloatArray:
    """Return (pairs,) the limits after a linear rise (paper) of the pairs in ``rises``, up to ``most_bps``.

    ``since_s`` (pairs,) is the time that they rise for.
    """
    rise_bps = slope_bps_per_s * np.minimum(since_s, MAX_RISE_S)
    result: FloatArray = np.minimum(limit_bps + np.where(rises, rise_bps, 0.0), most_bps)
    return result


def halved(
    limit_bps: FloatArray,
    notified: BoolArray,
    floor_bps: FloatArray,
    room_bps: FloatArray,
    offered_bps: FloatArray,
    decrease: FloatArray,
) -> FloatArray:
    """Return (pairs,) the limits after the messages; all arguments have this shape.

    The limits of ``notified`` pairs are lowered by the part ``decrease`` (section 2: "by half on each congestion
    message"), once. Deviation: not below ``floor_bps``. A limit above ABOVE_OFFER times ``offered_bps``, or above
    ``room_bps``, the pair's part of the receiver's port, is first lowered to that.
    """
    near_bps = np.where(offered_bps > 0.0, np.minimum(limit_bps, ABOVE_OFFER * offered_bps), limit_bps)
    near_bps = np.minimum(near_bps, room_bps)
    lower_bps = np.maximum(near_bps * (1.0 - decrease), np.minimum(floor_bps, limit_bps))
    return np.where(notified, lower_bps, limit_bps)


def shared_limits(pairs: Pairs, limit_bps: FloatArray, together: BoolArray, demand_bps: FloatArray) -> FloatArray:
    """Return (pairs,) the rates allowed to pairs; some senders have one limit for all their pairs (paper: ``LIM_j``).

    ``limit_bps`` (pairs,) is each pair's own limit. ``together`` (vns,) is the mask of the senders with one limit: the
    lowest of their pairs' limits. It is shared by weight, up to the pairs' ``demand_bps`` (pairs,); what that leaves
    is allowed to each of the sender's pairs, for when it needs more.
    """
    has_one_limit = together[pairs.sender]
    if not has_one_limit.any():
        return limit_bps
    vns = len(together)
    lowest_bps = np.full(vns, np.inf)
    np.minimum.at(lowest_bps, pairs.sender[has_one_limit], limit_bps[has_one_limit])
    parts_bps, spare_bps = _by_sender(pairs, np.where(np.isfinite(lowest_bps), lowest_bps, 0.0), demand_bps)
    return np.where(has_one_limit, parts_bps + spare_bps, limit_bps)


def lowest_limits(pairs: Pairs, limit_bps: FloatArray, together: BoolArray) -> FloatArray:
    """Return (pairs,) the limits to store: for senders with one limit, the lowest of their pairs' limits."""
    has_one_limit = together[pairs.sender]
    if not has_one_limit.any():
        return limit_bps
    lowest_bps = np.full(len(together), np.inf)
    np.minimum.at(lowest_bps, pairs.sender[has_one_limit], limit_bps[has_one_limit])
    return np.where(has_one_limit, lowest_bps[pairs.sender], limit_bps)


@dataclass(frozen=True, slots=True)
class SendingVns:
    """The scheduler's data of VNs, (vns,) each: the row of the sending port, guarantee, ceiling and weight."""

    port: IntArray
    guarantee_bps: FloatArray
    most_bps: FloatArray
    weight: FloatArray


def scheduled(
    pairs: Pairs, demand_bps: FloatArray, vns: SendingVns, promised_bps: FloatArray, left_bps: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the rates that each sending port's scheduler allows to pairs (pairs,) and VNs (vns,) (section 2).

    ``promised_bps`` (ports,) is the capacity for guarantees, ``left_bps`` the capacity that cross traffic leaves.

    1. Each VN's demand is the sum of its pairs' demands.
    2. Guarantees first, then the excess by weight up to the ceilings.
    3. A scheduler limits no VN while its port is idle. So a VN with all its demand met is allowed the rest of the port,
       and at least its guarantee, for when it needs more.
    4. Each VN's rate is shared among its pairs in the same way.
    """
    ports, rows = len(left_bps), len(vns.port)
    vn_demand_bps = np.minimum(np.bincount(pairs.sender, demand_bps, minlength=rows), vns.most_bps)  # 1
    paths = FlowPaths(np.arange(rows + 1), vns.port, ports)  # a flow is a VN; its only constraint is its port
    guaranteed_bps = solve(paths, promised_bps, np.minimum(vn_demand_bps, vns.guarantee_bps), vns.weight).rate_bps  # 2
    rest_bps = np.maximum(left_bps - np.bincount(vns.port, guaranteed_bps, minlength=ports), 0.0)
    granted_bps = (
        guaranteed_bps + solve(paths, rest_bps, np.maximum(vn_demand_bps - guaranteed_bps, 0.0), vns.weight).rate_bps
    )
    idle_bps = np.maximum(left_bps - np.bincount(vns.port, granted_bps, minlength=ports), 0.0)[vns.port]  # 3
    content = granted_bps >= vn_demand_bps * (1 - SAME)  # (vns,) whose demand is met
    free_bps = np.minimum(np.maximum(granted_bps + idle_bps, vns.guarantee_bps), vns.most_bps)
    offered_bps = np.where(content, free_bps, granted_bps)
    parts_bps, spare_bps = _by_sender(pairs, offered_bps, demand_bps)  # 4
    active = np.bincount(pairs.sender, pairs.active, minlength=rows)[pairs.sender]
    # Each pair counts itself as active, and once.
    idle_bps_of_vn = vns.guarantee_bps[pairs.sender] / (active - pairs.active + 1.0)
    content = parts_bps >= demand_bps * (1 - SAME)  # (pairs,)
    pair_bps = np.where(content, np.maximum(parts_bps + spare_bps, idle_bps_of_vn), parts_bps)
    return np.minimum(pair_bps, vns.most_bps[pairs.sender]), offered_bps


def _by_sender(pairs: Pairs, amount_bps: FloatArray, demand_bps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (pairs,) each sender's amount, (vns,), shared among its pairs by weight and demand; and the excess.

    The excess may go to any pair whose demand is met.
    """
    order = np.argsort(pairs.sender, kind="stable")
    sizes = np.bincount(pairs.sender, minlength=len(amount_bps))
    groups = Segments(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    parts_bps = np.empty(len(pairs))
    parts_bps[order] = fill(groups, amount_bps, pairs.weight[order], demand_bps[order])
    spare_bps = amount_bps - np.bincount(pairs.sender, parts_bps, minlength=len(amount_bps))
    spare_bps = np.where(spare_bps > SAME * amount_bps, spare_bps, 0.0)
    return parts_bps, spare_bps[pairs.sender]
