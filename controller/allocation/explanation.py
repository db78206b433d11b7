"""Why a pair was granted its rate: the constraints that bind it, and the rate without them.

A constraint binds a pair if the pair's grant rises when that constraint alone is raised a little. So the algorithm runs
again on its own input: with each constraint raised in turn, and then with the binding constraints lifted. Where no
constraint binds alone, as with two equal ones, the smallest set that binds together is named. A formula
for each algorithm would not do: formulas were wrong at ceilings and behind a sender's own limit, and RAA-FP has no
formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.allocation.interface import AllocationInput, BoolArray, FloatArray, IntArray, State
from controller.allocation.max_min import BY_DEMAND, FlowPaths
from controller.allocation.network_max_min import Constraints, NetworkGrants, allocate_network, constraint_load
from controller.errors import InvalidValueError
from controller.units import format_rate

# A bound is raised by this factor to test whether the grant rises.
RAISED = 1.001
# Two grants are the same if they differ by less than this part.
_TOLERANCE = 1e-9
# The value of a lifted limit: more than any port carries, but finite, as columns of rates must be.
LIFTED_BPS = 1e15

DEMAND = "its demand"
# A sender with a low demand may get more than its demand (see controller.policy.max_min).
IDLE_SHARE = "an equal share of the guarantee, above its demand"
NOTHING_TO_SEND = "having nothing to send"
SEND_LIMIT = "its own send limit"
RECEIVE_LIMIT = "the receive limit"
FAIR_RATE = "the present fair rate"
SHARING = "the algorithm's division of the receive limit"
NO_OTHER = "no other limit"

Bounds = tuple[int, ...]
RateWith = Callable[[Sequence[int], bool], float]
"""``rate_with(bounds, lifted)``: a pair's grant with these bounds raised by RAISED, or lifted; all others unchanged."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The constraint that binds one pair's grant. Rates in bits per second."""

    entry: int
    grant_bps: float
    constraint: str
    """the binding constraints as text, joined by "and" if there are several"""
    rank: int
    """1 if no other sharer is granted more, 2 if one is, and so on; 0 if the constraint is not shared"""
    sharers: int
    """the number of pairs with a grant that share the constraint; of several constraints, the largest number"""
    lifted_bps: float
    """the grant if the binding constraint were lifted, all else equal; other sharers of a limit may profit more"""
    next_constraint: str
    """the constraint that would bind the grant in that case"""

    def __str__(self) -> str:
        share = f", share {self.rank} of {self.sharers}" if self.sharers else ""
        grant, lifted = format_rate(self.grant_bps), format_rate(self.lifted_bps)
        return f"{grant}; bound by {self.constraint}{share}; without it {lifted}, bound by {self.next_constraint}"


def binding_constraints(candidates: Sequence[int], rate_bps: float, rate_with: RateWith) -> Bounds:
    """Return the ``candidates`` that bind a rate: each bound that lets the rate rise when it alone is raised.

    If there is none, return the smallest set of bounds that lets the rate rise when all of the set are raised; empty if
    even all candidates together do not.
    """

    def rises(bounds: Sequence[int]) -> bool:
        return rate_with(bounds, False) > rate_bps * (1 + _TOLERANCE)

    alone = tuple(bound for bound in candidates if rises([bound]))
    if alone or not rises(candidates):
        return alone
    together = list(candidates)
    while True:  # omit one bound at a time, as long as the rate still rises
        one_fewer = ([other for other in together if other != bound] for bound in together)
        smaller = next((bounds for bounds in one_fewer if rises(bounds)), None)
        if smaller is None:
            return tuple(together)
        together = smaller


# -- the whole network


@dataclass(frozen=True, slots=True)
class _NetworkProblem:
    """The problem that ``max-min`` solved.

    A bound is BY_DEMAND, the row of a constraint (its limit), or, for a ceiling above the limit, the row plus the
    number of constraints. ``has_ceiling`` (constraints,) is the mask of the ceilings above their limits.
    """

    paths: FlowPaths
    constraints: Constraints
    demand_bps: FloatArray
    weight: FloatArray
    has_ceiling: BoolArray

    def changed(self, entry: int, bounds: Sequence[int], lifted: bool) -> _NetworkProblem:
        """Return the problem with some bounds raised or lifted. A limit can be lifted no higher than its ceiling."""
        rows, factor = len(self.constraints), np.inf if lifted else RAISED
        guaranteed_bps, ceiling_bps = self.constraints.guaranteed_bps.copy(), self.constraints.ceiling_bps.copy()
        demand_bps = self.demand_bps.copy()
        for bound in sorted(bounds, reverse=True):  # a ceiling before its limit
            if bound == BY_DEMAND:
                demand_bps[entry] = LIFTED_BPS if lifted else demand_bps[entry] * RAISED
            elif bound >= rows:
                ceiling_bps[bound - rows] *= factor
            elif self.has_ceiling[bound]:
                guaranteed_bps[bound] = min(guaranteed_bps[bound] * factor, ceiling_bps[bound])
            else:
                guaranteed_bps[bound] = ceiling_bps[bound] = guaranteed_bps[bound] * factor
        constraints = replace(self.constraints, guaranteed_bps=guaranteed_bps, ceiling_bps=ceiling_bps)
        return replace(self, constraints=constraints, demand_bps=demand_bps)

    def rate_bps(self, entry: int) -> float:
        """Return the pair's rate, in bit/s."""
        return float(allocate_network(self.paths, self.constraints, self.demand_bps, self.weight)[0][entry])

    def binding(self, entry: int) -> tuple[float, Bounds]:
        """Return the pair's rate and the bounds that bind it.

        Only exhausted constraints on the pair's path can bind.
        """
        rate_bps, within_bps, _ = allocate_network(self.paths, self.constraints, self.demand_bps, self.weight)
        pair_bps = float(rate_bps[entry])
        rows = self.paths.constraint[self.paths.offsets[entry] : self.paths.offsets[entry + 1]]
        guaranteed_bps, ceiling_bps = self.constraints.guaranteed_bps[rows], self.constraints.ceiling_bps[rows]
        has_ceiling = self.has_ceiling[rows]
        limit_load_bps, load_bps = (constraint_load(self.paths, bps)[rows] for bps in (within_bps, rate_bps))
        limit_full = (limit_load_bps >= guaranteed_bps * (1 - _TOLERANCE)) & (guaranteed_bps < ceiling_bps)
        ceiling_full = load_bps >= ceiling_bps * (1 - _TOLERANCE)
        candidates = [BY_DEMAND] if pair_bps >= self.demand_bps[entry] * (1 - _TOLERANCE) else []
        # A limit without a ceiling above it is its own ceiling.
        candidates += rows[np.where(has_ceiling, limit_full, ceiling_full)].tolist()
        candidates += (rows[has_ceiling & ceiling_full] + len(self.constraints)).tolist()
        if len(candidates) == 1:
            return pair_bps, tuple(candidates)
        return pair_bps, binding_constraints(
            candidates, pair_bps, lambda bounds, lifted: self.changed(entry, bounds, lifted).rate_bps(entry)
        )


def constraint_name(
    constraints: Constraints, vn_name: Callable[[int], str], link_name: Callable[[int], str], bound: int
) -> str:
    """Return the text of a bound of ``max-min``, with names of VNs and links by row.

    A bound is BY_DEMAND, the row of a constraint, or, for the constraint's ceiling, that row plus the number of
    constraints.
    """
    if bound == BY_DEMAND:
        return DEMAND
    row, kind = bound % len(constraints), "ceiling" if bound >= len(constraints) else "limit"
    # Rows: the send limits of VNs, their receive limits, then links.
    if row >= 2 * constraints.vns:
        return f"link {link_name(row - 2 * constraints.vns)}"
    direction, vn = ("send", row) if row < constraints.vns else ("receive", row - constraints.vns)
    return f"{vn_name(vn)}'s {direction} {kind}"


def explain_network(
    paths: FlowPaths,
    constraints: Constraints,
    grants: NetworkGrants,
    weight: FloatArray,
    entry: int,
    name: Callable[[int], str],
) -> Explanation:
    """Return the explanation of one pair's ``max-min`` grant. ``name`` gives the text of a bound (constraint_name).

    A grant above the pair's max-min rate is an idle share (``controller.policy.max_min``): the demand binds it. Raises
    InvalidValueError for a pair that does not exist.
    """
    _check_entry(entry, paths.flows)
    has_ceiling = constraints.ceiling_bps > constraints.guaranteed_bps
    problem = _NetworkProblem(paths, constraints, grants.demand_bps, weight, has_ceiling)
    grant_bps = float(grants.grant_bps[entry])
    rate_bps, bounds = problem.binding(entry)
    is_idle_share = grant_bps > rate_bps * (1 + _TOLERANCE)
    if is_idle_share:
        bounds = (BY_DEMAND,)
    lifted_bps, next_bounds = problem.changed(entry, bounds, True).binding(entry)
    # The bound of a ceiling is its constraint's row plus the number of constraints.
    sharers = [_pairs_using(paths, bound % len(constraints)) for bound in bounds if bound != BY_DEMAND]
    return Explanation(
        entry,
        grant_bps,
        IDLE_SHARE if is_idle_share else _joined(map(name, bounds)),
        *(_rank(grants.grant_bps, max(sharers, key=len), entry) if sharers else (0, 0)),
        max(lifted_bps, grant_bps) if is_idle_share else lifted_bps,
        _joined(map(name, next_bounds)),
    )


# -- one receiver

Allocate = Callable[[AllocationInput, State], tuple[FloatArray, State]]


def explain_receiver(allocate: Allocate, requests: AllocationInput, state: State, entry: int) -> Explanation:
    """Return the explanation of a pair's grant by the per-receiver algorithm ``allocate``.

    ``requests`` and ``state`` are the algorithm's input and state for one receiver, ``entry`` is the pair's row there.
    The bounds that bind the pair are found and lifted; then the bounds that would bind it next are found.

    Raises InvalidValueError for a pair that does not exist and for an input with more than one receiver.
    """
    _check_entry(entry, requests.entries)
    if requests.receivers != 1:
        raise InvalidValueError("receivers", requests.receivers, "must be 1: explain one receiver at a time")
    grants_bps, _ = allocate(requests, state)
    if not requests.active[entry]:
        return Explanation(entry, float(grants_bps[entry]), NOTHING_TO_SEND, 0, 0, 0.0, NOTHING_TO_SEND)
    bounds = _receiver_bounds(allocate, requests, state, entry, ())
    lifted, lifted_state = _changed(requests, state, entry, bounds, True)
    lifted_bps = _grant(allocate, lifted, lifted_state, entry)
    # A rank among the receiver's pairs means something only if what binds the pair is shared by them.
    is_shared = not bounds or _RECEIVE in bounds or _FAIR in bounds
    next_bounds = _receiver_bounds(allocate, lifted, lifted_state, entry, bounds)
    active_rows = np.flatnonzero(requests.active)
    return Explanation(
        entry,
        float(grants_bps[entry]),
        _text_of(bounds, SHARING),
        *(_rank(grants_bps, active_rows, entry) if is_shared else (0, 0)),
        lifted_bps,
        _text_of(next_bounds, NO_OTHER if _RECEIVE in bounds else SHARING),
    )


_SEND, _RECEIVE, _FAIR, _DEMAND = range(4)  # bounds of a grant by a per-receiver algorithm
_TEXTS = {_SEND: SEND_LIMIT, _RECEIVE: RECEIVE_LIMIT, _FAIR: FAIR_RATE, _DEMAND: DEMAND}


def _receiver_bounds(allocate: Allocate, requests: AllocationInput, state: State, entry: int, lifted: Bounds) -> Bounds:
    """Return the bounds that bind a pair and are not ``lifted``: limits first, then bounds of the state."""

    def rate_with(bounds: Sequence[int], lift: bool) -> float:
        return _grant(allocate, *_changed(requests, state, entry, bounds, lift), entry)

    grant_bps = _grant(allocate, requests, state, entry)
    for group in ((_SEND, _RECEIVE), (_FAIR,), (_DEMAND,)):
        candidates = [bound for bound in group if bound not in lifted]
        binding = binding_constraints(candidates, grant_bps, rate_with)
        if binding:
            return binding
    return ()


def _grant(allocate: Allocate, requests: AllocationInput, state: State, entry: int) -> float:
    """Return one pair's grant, in bit/s."""
    return float(allocate(requests, state)[0][entry])


def _changed(
    requests: AllocationInput, state: State, entry: int, bounds: Sequence[int], lifted: bool
) -> tuple[AllocationInput, State]:
    """Return input and state with some bounds of a pair raised or lifted."""

    def raised(column: FloatArray, row: int) -> FloatArray:
        column = column.copy()
        column[row] = LIFTED_BPS if lifted else column[row] * RAISED
        return column

    for bound in bounds:
        if bound == _SEND:
            requests = replace(requests, available_bps=raised(requests.available_bps, entry))
        elif bound == _RECEIVE:
            requests = replace(requests, limit_bps=raised(requests.limit_bps, 0))
        elif bound == _FAIR:
            state = {name: raised(column, 0) for name, column in state.items()}
        else:
            requests = replace(requests, measured_bps=raised(requests.measured_bps, entry))
    return requests, state


def _text_of(bounds: Bounds, otherwise: str) -> str:
    """Return the names of bounds of a per-receiver algorithm, or ``otherwise`` if there are none."""
    return _joined(_TEXTS[bound] for bound in bounds) if bounds else otherwise


def _joined(names: Iterable[str]) -> str:
    return " and ".join(names) or NO_OTHER


def _check_entry(entry: int, entries: int) -> None:
    if not 0 <= entry < entries:
        raise InvalidValueError("entry", entry, f"does not exist: there are {entries}")


def _pairs_using(paths: FlowPaths, constraint: int) -> IntArray:
    """Return the pairs that use a constraint, ascending."""
    uses = np.flatnonzero(paths.constraint == constraint)
    pairs: IntArray = np.searchsorted(paths.offsets, uses, side="right") - 1
    return pairs


def _rank(grants_bps: FloatArray, rows: IntArray, entry: int) -> tuple[int, int]:
    """Return a pair's rank by grant among ``rows``, from 1, and the number of pairs that have a grant."""
    granted = rows[grants_bps[rows] > 0]
    higher = grants_bps[granted] > grants_bps[entry] * (1 + _TOLERANCE)
    return int(higher.sum()) + 1, len(granted)
