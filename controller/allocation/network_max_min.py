"""The allocation of ``max-min``: all demands and all links at once, which only a central controller knows.

DETS shares each receiver's limit separately and ignores the network ("does not explicitly account for in-network
congestions", section I), and no VN may use the idle part of another VN's limit. Here the rates of all pairs are found
together, within the limits of senders and receivers, the access links and the core links of the paths in use, and idle
bandwidth is lent up to each VN's ceiling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation.interface import FULL_USE, BoolArray, FloatArray, IntArray, check_rates
from controller.allocation.max_min import FlowPaths, check_flows, solve
from controller.allocation.parameters import parameter
from controller.errors import ColumnError, InvalidValueError

# Choice: a sender that offers this much more than its limit does not respond to loss, and its offered rate is its
# demand. A TCP sender at a policer loses only a few per cent, whatever its demand.
UNRESPONSIVE = 1.25


@dataclass(frozen=True)
class ByDemands:
    """The parameters of a policy that estimates demands (see ``estimate_demands``)."""

    probe: float = parameter(
        2.0, "a sender that fills its grant is assumed to demand this multiple of it", above=1.0, maximum=1000.0
    )
    headroom: float = parameter(
        0.10,
        "a sender that does not fill its grant is assumed to demand this part more than its rate; above "
        "0.053 it does not fully use its grant, so it is not probed again",
        minimum=0.06,
        maximum=10.0,
    )


@dataclass(frozen=True, slots=True)
class Constraints:
    """The constraints that pairs share: send limits of VNs, receive limits of VNs, links, in this order.

    A limit is guaranteed to its VN; up to its ceiling the VN may borrow idle capacity. On a link, guarantees may use
    the capacity that cross traffic within limits does not use; borrowed rates only the capacity that no cross traffic
    uses.
    """

    vns: int
    links: int
    guaranteed_bps: FloatArray
    """(2 * vns + links,)"""
    ceiling_bps: FloatArray
    """(2 * vns + links,); for VNs not below the guaranteed rate"""

    @classmethod
    def build(
        cls,
        send_limit_bps: FloatArray,
        receive_limit_bps: FloatArray,
        link_capacity_bps: FloatArray,
        send_ceiling_bps: FloatArray | None = None,
        receive_ceiling_bps: FloatArray | None = None,
        link_left_bps: FloatArray | None = None,
    ) -> Constraints:
        """Return the constraints of VNs (limits and ceilings: (vns,)) and links (capacities: (links,)).

        Without ceilings no VN gets more than its limit. Guarantees may use the whole link, borrowed rates only
        ``link_left_bps`` (links,), by default the whole link. Raises ColumnError for a ceiling below its limit, and for
        values that are not rates above 0.
        """
        send_ceiling_bps = send_limit_bps if send_ceiling_bps is None else send_ceiling_bps
        receive_ceiling_bps = receive_limit_bps if receive_ceiling_bps is None else receive_ceiling_bps
        link_left_bps = link_capacity_bps if link_left_bps is None else link_left_bps
        columns = {
            "send_limit_bps": send_limit_bps,
            "receive_limit_bps": receive_limit_bps,
            "link_capacity_bps": link_capacity_bps,
            "link_left_bps": link_left_bps,
            "send_ceiling_bps": send_ceiling_bps,
            "receive_ceiling_bps": receive_ceiling_bps,
        }
        for name, column in columns.items():
            rows = len(link_capacity_bps) if name.startswith("link") else len(send_limit_bps)
            if column.dtype != np.float64 or column.shape != (rows,):
                raise InvalidValueError(name, f"{column.dtype}{column.shape}", f"must be float64 of shape ({rows},)")
            check_rates(name, column, positive=True)
        for name in ("send", "receive"):
            limit, ceiling = columns[f"{name}_limit_bps"], columns[f"{name}_ceiling_bps"]
            low = np.flatnonzero(ceiling < limit)
            if len(low):
                row = int(low[0])
                reason = f"must not be below the limit {limit[row]:.10g}"
                raise ColumnError(f"{name}_ceiling_bps", row, float(ceiling[row]), reason)
        return cls(
            len(send_limit_bps),
            len(link_capacity_bps),
            np.concatenate([send_limit_bps, receive_limit_bps, link_capacity_bps]),
            np.concatenate([send_ceiling_bps, receive_ceiling_bps, link_left_bps]),
        )

    def __len__(self) -> int:
        return len(self.guaranteed_bps)

    def paths(self, sender: IntArray, receiver: IntArray, link_offsets: IntArray, link: IntArray) -> FlowPaths:
        """Return the constraints of each pair: the send limit, the receive limit, and the links of the path.

        ``sender`` and ``receiver`` (pairs,) are rows of VNs; ``link[link_offsets[p]:link_offsets[p + 1]]`` are the
        links of pair ``p``, access links included. Raises ColumnError for a VN or link that does not exist.
        """
        uses = (("sender", sender, self.vns), ("receiver", receiver, self.vns), ("link", link, self.links))
        for name, column, rows in uses:
            bad = np.flatnonzero((column < 0) | (column >= rows))
            if len(bad):
                raise ColumnError(name, int(bad[0]), int(column[bad[0]]), f"does not exist: there are {rows}")
        pairs = len(sender)
        if len(receiver) != pairs or len(link_offsets) != pairs + 1:
            raise InvalidValueError("receiver", len(receiver), f"and link_offsets must fit the {pairs} senders")
        # A pair's uses are its send limit, its receive limit, and then its links.
        offsets = link_offsets + 2 * np.arange(pairs + 1)
        send_use, receive_use = offsets[:-1], offsets[:-1] + 1
        constraint = np.empty(2 * pairs + len(link), dtype=np.int64)
        is_link = np.ones(len(constraint), dtype=np.bool_)
        is_link[send_use] = is_link[receive_use] = False
        constraint[send_use], constraint[receive_use] = sender, receiver + self.vns
        constraint[is_link] = link + 2 * self.vns
        return FlowPaths(offsets, constraint, len(self))


@dataclass(frozen=True, slots=True)
class FlowCounters:
    """The rates that the meters counted for every pair; (pairs,) each, in bits per second."""

    measured_bps: FloatArray
    granted_bps: FloatArray
    """the effective rate limit; infinite where there is none yet"""
    dropped_bps: FloatArray
    active: BoolArray

    def __post_init__(self) -> None:
        """Raise InvalidValueError or ColumnError for a column of the wrong type, length or values."""
        rows = len(self.measured_bps)
        for name in ("measured_bps", "granted_bps", "dropped_bps", "active"):
            column, dtype = getattr(self, name), np.dtype(np.bool_ if name == "active" else np.float64)
            if column.dtype != dtype or column.shape != (rows,):
                raise InvalidValueError(name, f"{column.dtype}{column.shape}", f"must be {dtype} of shape ({rows},)")
            if name != "active":
                check_rates(name, column, infinite=name == "granted_bps")


@dataclass(frozen=True, slots=True)
class NetworkGrants:
    """Grants of all pairs, (pairs,) each."""

    grant_bps: FloatArray
    guaranteed_bps: FloatArray
    """the part of the grant within limits; the rest is borrowed and can be withdrawn"""
    demand_bps: FloatArray
    bound: IntArray
    """the constraint that binds the pair, or BY_DEMAND"""


def allocate_network(
    paths: FlowPaths, constraints: Constraints, demand_bps: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return the grants (bit/s), the guaranteed part of each, and the constraint that binds each, (pairs,) each.

    1. Guarantees first: weighted max-min within the limits and the links.
    2. Then the excess: weighted max-min of the remaining demand, within what step 1 left of the ceilings and links.
    """
    check_flows(paths, constraints.ceiling_bps, demand_bps, weight)
    guaranteed = solve(paths, constraints.guaranteed_bps, demand_bps, weight)  # 1
    if (constraints.ceiling_bps == constraints.guaranteed_bps).all():
        return guaranteed.rate_bps, guaranteed.rate_bps, guaranteed.bound
    rate_bps = guaranteed.rate_bps
    idle_bps: FloatArray = np.maximum(constraints.ceiling_bps - constraint_load(paths, rate_bps), 0.0)
    excess = solve(paths, idle_bps, np.maximum(demand_bps - rate_bps, 0.0), weight)  # 2
    return rate_bps + excess.rate_bps, rate_bps, excess.bound


def constraint_load(paths: FlowPaths, rate_bps: FloatArray) -> FloatArray:
    """Return the load that rates (flows,) put on each constraint, (constraints,), in bit/s."""
    use_bps = np.repeat(rate_bps, np.diff(paths.offsets))
    return np.bincount(paths.constraint, use_bps, minlength=paths.constraints).astype(np.float64, copy=False)


# Minimum demand of an active sender, so that probing can start from it.
MIN_DEMAND_BPS = 1e6


def estimate_demands(
    counters: FlowCounters,
    least_bps: float,
    probe: FloatArray | float,
    headroom: FloatArray | float,
    guaranteed_bps: FloatArray | None = None,
) -> FloatArray:
    """Return the estimated demand of each pair in bit/s, (pairs,): 0 if inactive, at least ``least_bps`` if active.

    A sender with many drops at its meter does not respond to loss: its demand is what it offers. A sender that fills
    its grant, or has few drops, may want more than counters show: its demand is ``probe`` times its grant, and with
    ``guaranteed_bps`` (pairs,) at least that, so that it has its guarantee back in one step. The demand of any other
    sender is its rate and ``headroom``, a part of it. ``probe`` and ``headroom`` are scalars or (pairs,).
    """
    measured_bps, granted_bps = counters.measured_bps, counters.granted_bps
    offered_bps = measured_bps + counters.dropped_bps
    unlimited = np.isinf(granted_bps)
    may_want_more = (measured_bps >= FULL_USE * granted_bps) | (counters.dropped_bps > 0) | unlimited
    effective_bps = np.where(unlimited, measured_bps, granted_bps)
    is_unresponsive = (offered_bps >= UNRESPONSIVE * granted_bps) & (counters.dropped_bps > 0)
    probed_bps = np.maximum(offered_bps, effective_bps * probe)
    if guaranteed_bps is not None:
        probed_bps = np.maximum(probed_bps, guaranteed_bps)
    raised_bps = np.where(is_unresponsive, offered_bps, probed_bps)
    demand_bps = np.where(may_want_more, raised_bps, measured_bps * (1 + headroom))
    result: FloatArray = np.where(counters.active, np.maximum(demand_bps, least_bps), 0.0)
    return result
