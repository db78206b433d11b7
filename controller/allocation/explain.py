"""Why an entry was granted what it was: the constraint that binds it, and what it would get without that one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from controller.allocation.interface import FloatArray, IntArray, Requests
from controller.allocation.max_min import BY_DEMAND, FlowPaths
from controller.allocation.network_max_min import Constraints, NetworkGrants, share_network
from controller.errors import InvalidValueError
from controller.units import format_rate

# A grant this close to a bound, as a part of it, is at the bound.
_AT = 1e-9

DEMAND = "what it demands"
# Who wants little may have more than that all the same (see network_allocator.standing_rates).
STANDING = "an equal share of the guarantee, which is more than it demands"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What binds one entry's grant. Rates in bits per second."""

    entry: int
    grant_bps: float
    bound: str
    """the binding constraint in words"""
    place: int
    """1 if no other sharer is granted more, 2 if one is, and so on; 0 when nobody shares the constraint"""
    sharers: int
    """how many entries with a grant share the constraint"""
    lifted_bps: float
    """the grant if the constraint were lifted, all else equal"""
    next_bound: str
    """what would bind it then"""

    def __str__(self) -> str:
        share = f", share {self.place} of {self.sharers}" if self.sharers else ""
        grant, lifted = format_rate(self.grant_bps), format_rate(self.lifted_bps)
        return f"{grant}; bound by {self.bound}{share}; without it {lifted}, bound by {self.next_bound}"


def constraint_name(
    constraints: Constraints, vn_name: Callable[[int], str], link_name: Callable[[int], str], row: int
) -> str:
    """Return a constraint in words, given names of VNs and links by row."""
    if row == BY_DEMAND:
        return DEMAND
    if row >= 2 * constraints.vns:
        return f"link {link_name(row - 2 * constraints.vns)}"
    direction, vn = ("send", row) if row < constraints.vns else ("receive", row - constraints.vns)
    kind = "ceiling" if constraints.ceiling_bps[row] > constraints.guaranteed_bps[row] else "limit"
    return f"{vn_name(vn)}'s {direction} {kind}"


def explain_network(
    paths: FlowPaths,
    constraints: Constraints,
    grants: NetworkGrants,
    weight: FloatArray,
    entry: int,
    vn_name: Callable[[int], str],
    link_name: Callable[[int], str],
) -> Explanation:
    """Explain one entry of ``max-min`` grants, by solving again without the constraint that binds it.

    Raises InvalidValueError for an entry that does not exist.
    """
    _check_entry(entry, paths.flows)
    bound = int(grants.bound[entry])
    demand_bps, lifted = grants.demand_bps, constraints
    if bound == BY_DEMAND:
        demand_bps = demand_bps.copy()
        demand_bps[entry] = np.inf
    else:
        columns = (constraints.guaranteed_bps.copy(), constraints.ceiling_bps.copy())
        for column in columns:
            column[bound] = np.inf
        lifted = replace(constraints, guaranteed_bps=columns[0], ceiling_bps=columns[1])
    rate_bps, _, next_bounds = share_network(paths, lifted, demand_bps, weight)
    place, sharers = (0, 0) if bound == BY_DEMAND else _place(grants.grant_bps, _users(paths, bound), entry)

    def name(row: int) -> str:
        return constraint_name(constraints, vn_name, link_name, row)

    return Explanation(
        entry,
        float(grants.grant_bps[entry]),
        STANDING if bound == BY_DEMAND and grants.grant_bps[entry] > grants.demand_bps[entry] else name(bound),
        place,
        sharers,
        float(max(rate_bps[entry], grants.grant_bps[entry])),
        name(int(next_bounds[entry])),
    )


def explain_receiver(requests: Requests, grants_bps: FloatArray, entry: int) -> Explanation:
    """Explain one entry of a per-receiver algorithm's grants (entries,).

    The receive limit binds a grant that could be larger. Without it the sender's capacity binds. Raises
    InvalidValueError for an entry that does not exist.
    """
    _check_entry(entry, requests.entries)
    receiver = int(np.searchsorted(requests.offsets, entry, side="right")) - 1
    rows = np.arange(requests.offsets[receiver], requests.offsets[receiver + 1])
    grant_bps, available_bps = float(grants_bps[entry]), float(requests.available_bps[entry])
    if not requests.active[entry]:
        return Explanation(entry, grant_bps, "having nothing to send", 0, 0, grant_bps, "having nothing to send")
    own = "its own send limit"
    if grant_bps >= available_bps * (1 - _AT):
        limit_bps = float(requests.limit_bps[receiver])
        return Explanation(entry, grant_bps, own, 0, 0, max(grant_bps, limit_bps), "the receive limit")
    shared = float(grants_bps[rows].sum()) >= float(requests.limit_bps[receiver]) * (1 - _AT)
    bound = "the receive limit" if shared else "the fair rate in force"
    place, sharers = _place(grants_bps, rows[requests.active[rows]], entry)
    return Explanation(entry, grant_bps, bound, place, sharers, available_bps, own)


def _check_entry(entry: int, entries: int) -> None:
    if not 0 <= entry < entries:
        raise InvalidValueError("entry", entry, f"does not exist: there are {entries}")


def _users(paths: FlowPaths, constraint: int) -> IntArray:
    uses = np.flatnonzero(paths.constraint == constraint)
    users: IntArray = np.searchsorted(paths.offsets, uses, side="right") - 1
    return users


def _place(grants_bps: FloatArray, rows: IntArray, entry: int) -> tuple[int, int]:
    granted = rows[grants_bps[rows] > 0]
    higher = grants_bps[granted] > grants_bps[entry] * (1 + _AT)
    return int(higher.sum()) + 1, len(granted)
