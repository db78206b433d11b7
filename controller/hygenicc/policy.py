"""The ``hygenicc`` policy: sources respond to congestion marks (HyGenICC, Algorithms 1 and 2) in every interval.

The paper's hypervisors count marks at the receiver, send them back in headers, and limit the source. Here both ends are
counters of one controller: marks come as readings, and nothing is sent back on the wire. ``controller.hygenicc.law``
lists the deviations from the listing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.allocation.explanation import Explanation
from controller.allocation.parameters import parameter, switch
from controller.allocation.segments import Segments, fill
from controller.columns import BoolArray, FloatArray, IntArray
from controller.errors import InvalidValueError
from controller.hygenicc.bottlenecks import REMEMBERED_INTERVALS, BottleneckTable, find_bottlenecks
from controller.hygenicc.law import (
    NEVER,
    Bottlenecks,
    Constants,
    LimiterState,
    capacity_shares,
    equal_parts,
    floors,
    is_cut_sufficient,
    limiter_shares,
    marked_shares,
    next_rates,
    reachable,
    with_start_rates,
)
from controller.metering.fabric_readings import ReadingKind
from controller.policy.explanation_text import format_rate_text
from controller.policy.interface import Decision, LocationName, NewPairs, Policy, PolicyView, StaleMode
from controller.policy.policy_state import PolicyState
from controller.units import MIN_RATE_BPS

# Choice: a pair that uses this part of its limit, or loses frames at its meter, is held back: its demand is unlimited.
HELD_ABOVE = 0.90
HEADROOM = 1.25  # the demand of any other pair, as a multiple of its rate
# Choice: congestion is declared, and admission decided, by the marks of this many intervals.
SURE_INTERVALS = 3.0
CONGESTED_SHARE = 0.10
CLOSED_SHARE = 0.50
# Choice: all new senders that wait for a receiver together have this part of its limit, whatever their number.
WAITING_PART = 0.02
FIRST_INTERVAL_S = 0.055


@dataclass(frozen=True)
class MarksDecision(Decision):
    """A decision, for explanations; columns of shape (rows,).

    ``share`` is phi. ``before_bps`` and ``rate_bps`` are the limiters' rates before and after, ``share_bps`` the
    Capacity Share of the sender, ``least_bps`` the floor, ``quiet`` the intervals since the limiter's last mark.
    ``sharers`` is the number of VNs that send from the sender's port, ``bottleneck`` a number of ``BottleneckTable``,
    ``waits`` whether admission holds a pair.
    """

    share: FloatArray
    before_bps: FloatArray
    rate_bps: FloatArray
    share_bps: FloatArray
    least_bps: FloatArray
    quiet: FloatArray
    sharers: IntArray
    bottleneck: IntArray
    waits: BoolArray

    @property
    def marked(self) -> FloatArray:
        """The share of each pair's frames that were marked in the last interval, (rows,)."""
        return self.share

    @property
    def bottlenecks(self) -> IntArray:
        """The bottleneck of each pair, where its frames are marked: the receiver's limit or a link."""
        return self.bottleneck

    def bottleneck_name(self, number: int, format_location: LocationName) -> str:
        """Return a bottleneck's name: receiving VNs come first, then links, then unnamed links."""
        links, vns = self.view.links, len(self.view.vns)
        assert links is not None
        if number < vns:
            return f"the limit of {format_location(number)}"
        number -= vns
        return f"link {links.names[number]}" if number < len(links.names) else "a link of unknown capacity"


@dataclass(frozen=True)
class Limiters:
    """The token buckets at the sources: ``limiter`` (rows,) is the limiter of each pair, its own or its VN's.

    ``first`` (limiters,) is one row of each limiter, ``pair`` (limiters,) whether it belongs to a pair.
    """

    limiter: IntArray
    first: IntArray
    pair: BoolArray

    @classmethod
    def scoped(cls, sender: IntArray, by_pair: BoolArray, vns: int) -> Limiters:
        """Return the limiters of pairs; the pairs of ``by_pair`` have their own ones."""
        # Numbers of limiters: first the rows of VNs, then the pairs.
        key = np.where(by_pair, vns + np.arange(len(sender)), sender)
        _, first, of = np.unique(key, return_index=True, return_inverse=True)
        return cls(of.astype(np.int64), first, by_pair[first])

    def __len__(self) -> int:
        return len(self.first)

    def sum(self, column: FloatArray | BoolArray) -> FloatArray:
        """Return the sums of a column (rows,) by limiter, (limiters,)."""
        return np.bincount(self.limiter, column, minlength=len(self)).astype(np.float64)


@dataclass(frozen=True)
class HyGenICC(Policy):
    """Rates fall while frames are marked and rise while none is, within each VN's share of its port.

    In the paper, every 5 round trips (section V), a rate rises by C / 1000 (Algorithm 1, line 37; here ``slow``) or C /
    100 (line 33; ``fast``), and falls by C / 1000 for each mark (line 35; ``beta``). ``timeout`` is line 30's; the
    paper gives no value. ``scope`` and ``start`` are 0 (section IV.A), and ``admit`` is 1, for connections (section
    II). The paper has neither ``gamma`` nor the cuts 1 and 2.
    """

    cut: float = parameter(
        0.0,
        "how marks lower a rate: 0 by beta times the share of marked frames (the paper); 1 at least to "
        "the rate that the bottleneck carries; 2 to the level at which all its senders fill it",
        maximum=2.0,
        minimum=0.0,
        whole=True,
    )
    beta: float = parameter(0.25, "part of a rate that is taken off when all frames are marked", above=0.0, maximum=1.0)
    slow: float = parameter(
        0.12, "rise in an interval soon after marks, as a part of an equal share", maximum=1.0, above=0
    )
    fast: float = parameter(
        0.2, "rise in an interval after the timeout without marks, as a part of an equal share", above=0.0, maximum=1.0
    )
    timeout: float = parameter(4.0, "intervals without a mark until rates rise by fast", minimum=1.0, maximum=1000.0)
    gamma: float = parameter(
        0.98, "part of the bottleneck's capacity at which cuts 1 and 2 aim", above=0.5, maximum=1.0
    )
    scope: float = switch(True, "1: each pair has a rate; 0: each sending VN has one, as in the paper")
    start: float = switch(True, "1: new pairs start at a part of the Capacity Share; 0: at all of it")
    admit: float = switch(False, "1: new pairs wait at the minimum rate while their receiver is congested")

    name: ClassVar[str] = "hygenicc"
    title: ClassVar[str] = "HyGenICC"
    weighted: ClassVar[bool] = True
    declares_congestion: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    silence: ClassVar[StaleMode] = StaleMode.HOLD
    required_readings: ClassVar[frozenset[ReadingKind]] = frozenset({ReadingKind.LINKS, ReadingKind.MARKS})

    def first_bps(self, new_pairs: NewPairs) -> FloatArray:
        """Return the start rates of new pairs: an equal part of the receiver, until the first decision."""
        vns = new_pairs.vns
        part = vns.receive_limit_bps[new_pairs.receiver] / new_pairs.senders
        if "admit" in new_pairs.parameters:
            closed = new_pairs.congested & (new_pairs.parameters["admit"][new_pairs.receiver] > 0)
            part = np.where(closed, np.maximum(WAITING_PART * part, MIN_RATE_BPS), part)
        first_bps: FloatArray = np.minimum(vns.send_limit_bps[new_pairs.sender], part)
        return first_bps

    def decide(self, view: PolicyView, memory: PolicyState) -> MarksDecision:
        """Decide on all pairs of the VLANs, each with its own VLAN's parameters.

        1. The marked share of each pair's frames; unknown where the meter or the marks were not read.
        2. The Capacity Share of each sending VN at its port.
        3. Limiters, of VNs or of pairs, and the bottleneck of each.
        4. The law. New senders start at their share, or wait at the floor or less while their receiver admits none.
           Marks on saved-up bursts from before the last cut cause no cut.
        5. The pairs of a VN share its rate or its Capacity Share; a pair that needs less leaves the rest to the others.

        Columns ``limiter_...`` are (limiters,), ``vn_...`` (vns,), ``link_...`` (links,); all others are (rows,).

        Raises InvalidValueError without links: shares are shares of ports.
        """
        links, vns, sender, receiver = view.links, view.vns, view.sender, view.receiver
        if links is None or view.cross_guaranteed_bps is None:
            raise InvalidValueError("links", links, f"are needed: {self.name} shares out ports")
        parameters = {name: column[receiver] for name, column in view.parameters.items()}
        link_room_bps = np.maximum(links.capacity_bps - view.cross_guaranteed_bps, MIN_RATE_BPS)
        ceiling_bps, elapsed_s = view.ceiling_bps, view.elapsed_s or FIRST_INTERVAL_S
        # 1
        phi, has_marks, has_excess = _marks(view)
        vn_congestion = _congestion(view, memory, phi)
        # 2
        demand_bps = _desired_bps(view, ceiling_bps)
        vn_demand_bps = np.bincount(sender, demand_bps, minlength=len(vns)).astype(np.float64)
        vn_share_bps = capacity_shares(link_room_bps, links.up, vn_demand_bps, vns.weight, vns.send_max_bps)
        share_bps = vn_share_bps[sender]
        # 3
        limiters = Limiters.scoped(sender, parameters["scope"] > 0, len(vns))
        first_row, limiter_is_of_pair = limiters.first, limiters.pair
        limiter_sender = sender[first_row]
        has_recent_marks = np.nan_to_num(memory.pair_column("quiet")) < REMEMBERED_INTERVALS
        remembered_bps = np.where(has_recent_marks, memory.pair_column("link_bps"), np.nan)
        bottleneck_table = find_bottlenecks(view, links, link_room_bps, has_marks, has_excess, remembered_bps)
        bottlenecks, limiter_bottleneck = _bottlenecks(limiters, bottleneck_table, view)
        # 4
        limiter_last_bps, limiter_quiet, limiter_since_cut_s = (
            np.where(limiter_is_of_pair, memory.pair_column(name)[first_row], memory.vn_column(name)[limiter_sender])
            for name in ("rate_bps", "quiet", "stood_s")
        )
        limiter_is_new = np.isnan(limiter_last_bps)
        pair_max_bps = np.minimum(share_bps, ceiling_bps)
        limiter_max_bps = np.where(limiter_is_of_pair, pair_max_bps[first_row], share_bps[first_row])
        limiter_min_bps = floors(limiter_max_bps, elapsed_s)
        was_held = memory.pair_column("waits")  # NaN for a new pair
        is_receiver_closed = vn_congestion["closed"][receiver] > 0
        # New pairs of a closed receiver wait, and go on waiting while it is closed.
        is_held = (parameters["admit"] > 0) & is_receiver_closed & ((was_held > 0) | np.isnan(was_held))
        limiter_is_held = limiters.sum(is_held) > 0
        limiters_before = LimiterState(
            np.where(limiter_is_new, np.nan, limiter_last_bps), np.where(limiter_is_new, NEVER, limiter_quiet)
        )
        limiter_start = parameters["start"][first_row]
        limiter_before_bps = with_start_rates(limiters_before, limiter_max_bps, bottlenecks.sharers, limiter_start)
        limiter_passed_bps = limiters.sum(view.passed_bps[view.rows])
        limiter_phi = limiter_shares(phi, view.measured_bps, limiters.limiter, len(limiters))
        limiter_cut_suffices = is_cut_sufficient(
            limiter_passed_bps, limiter_before_bps, limiter_since_cut_s, bottlenecks
        )
        limiter_phi = np.where((limiter_phi > 0) & limiter_cut_suffices, np.nan, limiter_phi)  # no further cut
        limiter_weight = vns.weight[limiter_sender]
        limiter_bottleneck_bps = bottlenecks.capacity_bps[bottlenecks.bottleneck]
        limiter_path_bps = np.minimum(vns.capacity_bps[limiter_sender], limiter_bottleneck_bps)
        limiter_part_bps = equal_parts(limiter_weight, limiter_path_bps, bottlenecks)
        limiters_after = next_rates(
            LimiterState(limiter_before_bps, limiters_before.quiet),
            limiter_phi,
            limiter_weight,
            bottlenecks,
            limiter_path_bps,
            limiter_min_bps,
            reachable(limiter_passed_bps, limiter_before_bps, limiter_max_bps, limiter_part_bps),
            limiters.sum(demand_bps),
            Constants(*(parameters[name][first_row] for name in ("cut", "beta", "slow", "fast", "timeout", "gamma"))),
        )
        # 5
        limiter_waiting_bps = np.minimum(_waiting_rates(view, is_held)[first_row], limiter_min_bps)
        limiter_waits = limiter_is_held & limiter_is_of_pair
        limiter_rate_bps = np.where(limiter_waits, limiter_waiting_bps, limiters_after.rate_bps)
        rate_bps = limiter_rate_bps[limiters.limiter]
        amount_bps = np.where(limiter_is_of_pair, share_bps[first_row], limiter_rate_bps)[limiters.limiter]
        used_bps = np.where(view.active, np.minimum(rate_bps, demand_bps), 0.0)
        grant_bps = np.minimum(_within(sender, amount_bps, used_bps, rate_bps), ceiling_bps)
        limiter_columns = {
            "rate_bps": limiter_rate_bps,
            "quiet": limiters_after.quiet,
            "stood_s": np.where(limiter_rate_bps < limiter_before_bps, 0.0, limiter_since_cut_s + elapsed_s),
        }
        next_state = memory.updated(
            by_vn=vn_congestion | {name: _of_vns(column, limiters, view) for name, column in limiter_columns.items()},
            by_entry={name: column[limiters.limiter] for name, column in limiter_columns.items()}
            | {"waits": is_held.astype(np.float64), "link_bps": bottleneck_table.unknown_link_capacity_bps},
        )
        link_senders = np.bincount(links.up[vn_demand_bps > 0], minlength=len(link_room_bps))
        return MarksDecision(
            view,
            grant_bps,
            next_state,
            share=phi,
            before_bps=limiter_before_bps[limiters.limiter],
            rate_bps=rate_bps,
            share_bps=share_bps,
            least_bps=limiter_min_bps[limiters.limiter],
            quiet=limiters_after.quiet[limiters.limiter],
            sharers=link_senders[links.up[sender]],
            bottleneck=limiter_bottleneck[limiters.limiter],
            waits=is_held,
            congested=vn_congestion["hot"] >= SURE_INTERVALS,
        )

    def explain(self, decision: Decision, at: int, format_location: LocationName) -> Explanation:
        """Return what binds the pair: marks, the recovery after marks, its share of its port, or its limits.

        ``at`` is the pair's row in the decision. The lower one of share and limits is compared first: it binds if the
        grant reaches it, and otherwise would bind next. Else the sender's other pairs bind if the grant is below the
        law's rate.
        """
        assert isinstance(decision, MarksDecision)
        sender, receiver = int(decision.view.sender[at]), int(decision.view.receiver[at])
        grant_bps, rate_bps = float(decision.grant_bps[at]), float(decision.rate_bps[at])
        own = (float(decision.share_bps[at]), f"its share of port {format_location(sender)} ({_senders(decision, at)})")
        limits = (
            float(decision.view.ceiling_bps[at]),
            f"the limits of {format_location(sender)} and {format_location(receiver)}",
        )
        (first_bps, first), (later_bps, later) = sorted([limits, own], key=lambda bound: bound[0])
        if _reaches(grant_bps, first_bps):
            return Explanation(at, grant_bps, first, 0, 0, later_bps, later)
        if not _reaches(grant_bps, rate_bps):
            return Explanation(at, grant_bps, f"the other traffic of {format_location(sender)}", 0, 0, first_bps, first)
        return Explanation(at, grant_bps, _by_marks(decision, at, format_location), 0, 0, first_bps, first)


def _reaches(rate_bps: float, bound_bps: float) -> bool:
    return rate_bps >= bound_bps * (1 - 1e-6)


def _senders(decision: MarksDecision, at: int) -> str:
    count = int(decision.sharers[at])
    return f"1 of {count} active VNs" if count > 1 else "the only active VN"


def _by_marks(decision: MarksDecision, at: int, format_location: LocationName) -> str:
    """Return the text on a pair that congestion marks bind: its marks, or its recovery."""
    share, quiet = float(decision.share[at]), float(decision.quiet[at])
    moved_bps = float(decision.rate_bps[at] - decision.before_bps[at])
    if decision.waits[at]:
        return f"admission: it came while {format_location(int(decision.view.receiver[at]))} was congested"
    if np.isnan(share):
        return "its last rate: its marks are unknown"
    if share > 0:
        where = decision.bottleneck_name(int(decision.bottleneck[at]), format_location)
        text = f"marks: {share:.0%} of its packets in the last interval ({where})"
        return f"{text}, decreased by {format_rate_text(-moved_bps)}" if moved_bps < 0 else text
    if _reaches(float(decision.least_bps[at]), float(decision.rate_bps[at])):
        return "the minimum rate, at which marks still arrive"
    since = "no mark yet" if quiet >= NEVER else f"no mark for {quiet:.0f} intervals"
    return f"recovering: {since}, + {format_rate_text(max(moved_bps, 0.0))} an interval"


def _marks(view: PolicyView) -> tuple[FloatArray, BoolArray, BoolArray]:
    """Return phi of each pair, whether frames arrived marked, and whether its phantom meter had excess, (rows,)."""
    nothing = np.zeros(len(view.rows), dtype=np.bool_)
    marks = view.marks
    if marks is None:
        return np.full(len(view.rows), np.nan), nothing, nothing
    marked_bps = marks.marked_bps[view.rows]
    passed_bps = view.passed_bps[view.rows]
    share = marked_shares(marked_bps, passed_bps, marks.arrived_bps, marks.beyond_bps, view.receiver)
    share = np.where(view.active, share, np.nan)
    return share, np.nan_to_num(marked_bps) > 0, np.nan_to_num(marks.beyond_bps)[view.receiver] > 0


def _congestion(view: PolicyView, memory: PolicyState, share: FloatArray) -> dict[str, FloatArray]:
    """Return the congestion states of VNs, (vns,) each.

    ``hot``, ``full`` and ``calm`` count the intervals in a row with congestion, with heavy and without congestion;
    ``closed`` is 1 for VNs that admit no new senders.
    """
    phi = limiter_shares(share, view.measured_bps, view.receiver, len(view.vns))
    states = {}
    for name, holds in (
        ("hot", phi >= CONGESTED_SHARE),
        ("full", phi >= CLOSED_SHARE),
        ("calm", phi < CONGESTED_SHARE),
    ):
        count = np.nan_to_num(memory.vn_column(name))
        states[name] = np.where(np.isnan(phi), count, np.where(holds, count + 1.0, 0.0))
    closes, opens = states["full"] >= SURE_INTERVALS, states["calm"] >= SURE_INTERVALS
    was_closed = np.nan_to_num(memory.vn_column("closed"))
    return states | {"closed": np.where(closes, 1.0, np.where(opens, 0.0, was_closed))}


def _desired_bps(view: PolicyView, ceiling_bps: FloatArray) -> FloatArray:
    """Return the demand of each pair in bit/s, (rows,); infinite where the pair's limit or ceiling holds it back."""
    fills_limit = view.measured_bps >= HELD_ABOVE * np.minimum(view.limit_bps, ceiling_bps)
    held_back = view.active & (fills_limit | view.drops)
    return np.where(held_back, np.inf, np.where(view.active, HEADROOM * view.measured_bps, 0.0))


def _waiting_rates(view: PolicyView, held: BoolArray) -> FloatArray:
    """Return each pair's rate while it waits, (rows,): an equal part, so that present senders keep their rates."""
    waiting = np.bincount(view.receiver, held, minlength=len(view.vns))
    part = WAITING_PART * view.vns.receive_limit_bps / np.maximum(waiting, 1.0)
    rate_bps: FloatArray = np.maximum(part, MIN_RATE_BPS)[view.receiver]
    return rate_bps


def _bottlenecks(limiters: Limiters, bottlenecks: BottleneckTable, view: PolicyView) -> tuple[Bottlenecks, IntArray]:
    """Return the bottlenecks of limiters, and the index of each limiter's bottleneck, (limiters,).

    A limiter of several pairs has the bottleneck of its pair with the highest rate.
    """
    pair_index = bottlenecks.bottleneck
    highest_row = limiters.first  # (limiters,) the row of the limiter's pair with the highest rate
    if len(limiters) < len(pair_index):
        order = np.lexsort((-view.measured_bps, limiters.limiter))  # by limiter, then from the highest rate down
        highest_row = order[np.searchsorted(limiters.limiter[order], np.arange(len(limiters)))]
    index = pair_index[highest_row]
    # Choice: a pair that sent nothing in the last interval does not count for the others, though it is active for a
    # while (IDLE_INTERVALS): they rise by parts of the rate that it leaves.
    sends = (limiters.sum(view.active & (view.passed_bps[view.rows] != 0.0)) > 0).astype(np.float64)
    senders = np.bincount(index, sends, minlength=len(bottlenecks.load_bps)).astype(np.float64)
    return Bottlenecks(index, bottlenecks.load_bps, bottlenecks.capacity_bps, senders, 1.0 - sends), index


def _within(sender: IntArray, amount_bps: FloatArray, uses_bps: FloatArray, rate_bps: FloatArray) -> FloatArray:
    """Return the rates of pairs within the amount of their sending VN, (rows,).

    Pairs have equal parts of ``amount_bps`` (rows,), each at most its use ``uses_bps``. The unused rest may go to any
    of the pairs, up to its ``rate_bps``.
    """
    order = np.argsort(sender, kind="stable")  # pairs grouped by sender
    _, starts = np.unique(sender[order], return_index=True)
    groups = Segments(np.append(starts, len(sender)).astype(np.int64))
    vn_amount_bps = amount_bps[order][starts]
    parts_bps = fill(groups, vn_amount_bps, np.ones(len(sender)), uses_bps[order])
    rest_bps = groups.broadcast(vn_amount_bps - groups.sum(parts_bps))
    grant_bps = np.empty(len(sender))
    grant_bps[order] = np.maximum(parts_bps, np.minimum(rate_bps[order], parts_bps + rest_bps))
    return grant_bps


def _of_vns(column: FloatArray, limiters: Limiters, view: PolicyView) -> FloatArray:
    """Return a column of limiters by VN, (vns,); NaN where VNs have no limiter of their own."""
    by_vn = np.full(len(view.vns), np.nan)
    own = np.flatnonzero(~limiters.pair)
    by_vn[view.sender[limiters.first[own]]] = column[own]
    return by_vn
