"""How a source's rate responds to marks (HyGenICC, Algorithm 1), as columns over limiters.

A *limiter* is a token bucket at the source: of a sending VN (the paper) or of one of its pairs.

Deviation: the paper counts marks since the last update, every 5 round trips, and subtracts ``f * C / 1000`` from the
rate. A control interval holds a hundred times as many frames, and the same formula would subtract several times the
link. Feedback here is phi, the share of marked frames. At the paper's own update rate its decrease is in proportion to
phi and to the rate, so the law is additive increase, multiplicative decrease, and is built as such.

Deviation: lines 25 and 30 of the listing test ``then - now >= timeout``, which is never true; ``now - then`` is meant.
The paper's bucket is refilled from the time of the last sent frame, so that each drop credits the same time again, and
once for each flow. Meters are refilled by one clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from controller.allocation.interface import BoolArray, FloatArray, IntArray
from controller.allocation.segments import Segments, fill_level
from controller.metering.enforcement import RESPONSIVE_BURST_S

# Choice: no rate falls below this part of its share, nor below this many frames per interval, since marks need traffic.
# The paper's rate may become 0 (line 39), and then stays 0.
FLOOR_PART = 0.01
FLOOR_BITS = 3 * 1518 * 8
# Choice: a queue that is too long marks every frame behind its threshold until it is drained. A phantom meter counts
# only the excess. If that is this part of the arrivals, all of them count as marked.
ALL_MARKED = 0.05
NEVER = 1e9  # intervals since the last mark of a limiter without marks


class Cut(IntEnum):
    """How far a rate falls when frames are marked."""

    SHARE = 0  # by beta times the marked share: the paper's law
    LOAD = 1  # to the bottleneck's capacity, if that is less
    # To the level at which all senders together fill the bottleneck; marks trigger it, but do not set its size.
    LEVEL = 2


@dataclass(frozen=True, slots=True)
class LimiterState:
    """The limiters' state, (limiters,) each: the rate, and ``quiet``, the intervals since the last mark.

    The rate of a new limiter is NaN.
    """

    rate_bps: FloatArray
    quiet: FloatArray

    @classmethod
    def new(cls, limiters: int) -> LimiterState:
        """Return the state of ``limiters`` limiters that have not sent yet."""
        return cls(np.full(limiters, np.nan), np.full(limiters, NEVER))


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of the law, (limiters,) each; the parameters of ``HyGenICC`` describe them.

    ``cut`` is a value of ``Cut``, ``timeout`` a number of intervals. ``beta`` is a part of the rate, ``slow`` and
    ``fast`` are parts of an equal part of the link, in each interval, ``gamma`` is a part of the bottleneck's capacity.
    """

    cut: FloatArray
    beta: FloatArray
    slow: FloatArray
    fast: FloatArray
    timeout: FloatArray
    gamma: FloatArray


@dataclass(frozen=True, slots=True)
class Bottlenecks:
    """The bottleneck of each limiter's traffic.

    ``bottleneck`` (limiters,) is the number of each limiter's bottleneck, as in ``BottleneckTable``. Columns
    (bottlenecks,): ``load_bps`` is the load from the senders' meters, ``capacity_bps`` the capacity, infinite where
    unknown, and ``senders`` the number of limiters that sent there in the last interval. ``waits`` (limiters,) is 1 for
    a limiter that sent nothing.
    """

    bottleneck: IntArray
    load_bps: FloatArray
    capacity_bps: FloatArray
    senders: FloatArray
    waits: FloatArray | float = 0.0

    @property
    def sharers(self) -> FloatArray:
        """Return how many limiters share each limiter's bottleneck, itself included, (limiters,)."""
        return np.maximum(self.senders[self.bottleneck] + self.waits, 1.0)


def marked_shares(
    marked_bps: FloatArray, passed_bps: FloatArray, arrived_bps: FloatArray, beyond_bps: FloatArray, receiver: IntArray
) -> FloatArray:
    """Return (pairs,) phi, the marked share of a pair's traffic; NaN where unknown.

    ``marked_bps`` and ``passed_bps`` (pairs,) are the rates that arrived with a mark and that passed the sender's
    meter. ``arrived_bps`` and ``beyond_bps`` (vns,) are the arrivals and the excess at the receiving VN's phantom
    meter; an excess share of ALL_MARKED or more marks all traffic, whatever its sender. Both come from one meter, and
    so cover the same time. ``receiver`` (pairs,) are rows of VNs.

    phi is the sum of the share of frames with a mark and of the excess share as a part of ALL_MARKED, 1 at most. If one
    of them is unknown (NaN), the other one counts. An idle sender has no marks: while TCP waits for its timeout after a
    cut, its rate rises, as with the paper's timer.
    """
    excess_share = np.minimum(_parts(beyond_bps, arrived_bps) / ALL_MARKED, 1.0)[receiver]
    marked_share = _parts(marked_bps, passed_bps)
    unknown = np.isnan(marked_share) & np.isnan(excess_share)
    share = np.minimum(np.nan_to_num(marked_share) + np.nan_to_num(excess_share), 1.0)
    return np.where(unknown, np.nan, np.where(passed_bps == 0.0, 0.0, share))


def _parts(some_bps: FloatArray, all_bps: FloatArray) -> FloatArray:
    """Return ``some_bps / all_bps``; 0 for 0 / 0, and NaN where either is unknown."""
    without_traffic = np.where(np.isnan(some_bps) | np.isnan(all_bps), np.nan, 0.0)
    return np.divide(some_bps, all_bps, out=without_traffic, where=all_bps > 0)


def limiter_shares(share: FloatArray, passed_bps: FloatArray, limiter: IntArray, limiters: int) -> FloatArray:
    """Return (limiters,) the mean phi of each limiter's pairs, weighted by what they sent; NaN where unknown.

    ``share`` (pairs,) is phi, ``passed_bps`` (pairs,) the rate that a pair sent, ``limiter`` (pairs,) its limiter's
    row, ``limiters`` their number.

    Deviation: the paper's listing changes the rate of a VM once for each of its flows. Here it changes once for all
    flows: k flows would raise it k times as fast.
    """
    known = ~np.isnan(share)
    sent_bps = np.where(known, passed_bps, 0.0)
    sum_bps = np.bincount(limiter, sent_bps, minlength=limiters)
    marked_bps = np.bincount(limiter, np.where(known, share * sent_bps, 0.0), minlength=limiters)
    without_traffic = np.where(np.bincount(limiter, known, minlength=limiters) > 0, 0.0, np.nan)
    result: FloatArray = np.divide(marked_bps, sum_bps, out=without_traffic, where=sum_bps > 0)
    return result


def capacity_shares(
    capacity_bps: FloatArray, port: IntArray, demand_bps: FloatArray, weight: FloatArray, most_bps: FloatArray
) -> FloatArray:
    """Return (vns,) the Capacity Share of each sending VN: its part, by weight, of its port among the active VNs.

    ``capacity_bps`` (ports,) are the ports' rates, ``port`` (vns,) is a VN's port and ``most_bps`` (vns,) its own
    limit. ``demand_bps`` (vns,) is a VN's demand: 0 if idle, infinite if limited. The result is never below a VN's part
    among the active VNs at full demand, except by its own limit.

    Deviation: in the paper an active VM keeps its part of the NIC though it sends little, and the rest is lost. Here
    other VNs use that rest, and the VN gets its part back when it needs more; until their rates fall, the link is
    shared. So two differences do not matter: idleness is detected earlier here (IDLE_INTERVALS; the paper: 1 s, section
    IV.A, footnote 3, and line 25), and a VM that only receives counts as active in the paper (III.A).
    """
    ports = len(capacity_bps)
    sends = demand_bps > 0
    active_weight = np.bincount(port, np.where(sends, weight, 0.0), minlength=ports)[port]
    port_weight = active_weight + np.where(sends, 0.0, weight)  # as if the VN itself were active
    order = np.argsort(port, kind="stable")
    sizes = np.bincount(port, minlength=ports)
    # Fill each port by weight up to the demands, its VNs as consecutive rows: the level is a rate per weight.
    groups = Segments(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    room_bps = np.minimum(demand_bps, capacity_bps[port])  # no VN sends more than its port
    level_bps = fill_level(groups, capacity_bps, weight[order], room_bps[order])
    own_bps = capacity_bps[port] * weight / port_weight  # if all active VNs used their parts
    more_bps = np.clip(level_bps[port] * weight, own_bps, capacity_bps[port])
    result: FloatArray = np.minimum(np.where(demand_bps > own_bps, more_bps, own_bps), most_bps)
    return result


def floors(share_bps: FloatArray, interval_s: float) -> FloatArray:
    """Return (limiters,) the minimum rates of limiters with these Capacity Shares, none above its share."""
    return np.minimum(np.maximum(FLOOR_PART * share_bps, FLOOR_BITS / interval_s), share_bps)


def with_start_rates(rates: LimiterState, share_bps: FloatArray, senders: FloatArray, start: FloatArray) -> FloatArray:
    """Return the rates, with the start rates of new limiters (NaN) set; all columns are (limiters,).

    With ``start`` 0 the start rate is the Capacity Share ``share_bps`` (the paper). Choice: with 1 it is the Capacity
    Share divided by ``senders``, the number of senders to the limiter's bottleneck, since a new sender with the whole
    share doubles the load at once.
    """
    first_bps = np.where(start > 0, share_bps / np.maximum(senders, 1.0), share_bps)
    return np.where(np.isnan(rates.rate_bps), first_bps, rates.rate_bps)


def is_cut_sufficient(
    passed_bps: FloatArray, rate_bps: FloatArray, stood_s: FloatArray, bottlenecks: Bottlenecks
) -> BoolArray:
    """Return (limiters,) whether the last cut is still enough, so that marks cause no further one.

    ``passed_bps`` and ``rate_bps`` (limiters,) are each limiter's traffic and rate in the last interval; ``stood_s`` is
    the time from its last cut to the beginning of that interval (NaN: no cut).

    Deviation: the paper updates every five round trips, so that the effect of a cut is visible before the next one.
    Here a bucket holds RESPONSIVE_BURST_S of its rate for TCP (docs/enforcement.md), and a cut takes effect once that
    is spent. Further cuts until then would lower rates to nothing. So while a bottleneck gets more than the sum of its
    senders' rates, none of these senders is cut again within that time. They wait together: proportional cuts equalize
    rates only if all senders are cut.
    """
    bottleneck, count = bottlenecks.bottleneck, len(bottlenecks.senders)
    excess_bps = np.bincount(bottleneck, np.where(passed_bps > 0, passed_bps - rate_bps, 0.0), minlength=count)
    since_last_cut_s = np.full(count, np.inf)  # since the latest cut of any of its senders; fmin ignores NaN
    np.fmin.at(since_last_cut_s, bottleneck, stood_s)
    waits: BoolArray = (excess_bps > 0) & (since_last_cut_s < RESPONSIVE_BURST_S)
    return waits[bottleneck]


def equal_parts(weight: FloatArray, link_bps: FloatArray, bottlenecks: Bottlenecks) -> FloatArray:
    """Return (limiters,) each limiter's part, by weight, of ``link_bps`` among the senders at its bottleneck.

    ``link_bps`` (limiters,) is divided by the number of senders, then scaled by the limiter's relative weight.
    """
    size = len(bottlenecks.senders)
    weight_sum = np.bincount(bottlenecks.bottleneck, weight, minlength=size)
    count = np.bincount(bottlenecks.bottleneck, minlength=size)
    # A limiter's weight as a multiple of the mean weight at its bottleneck.
    relative_weight = weight * (count / np.where(weight_sum > 0, weight_sum, 1.0))[bottlenecks.bottleneck]
    result: FloatArray = link_bps / bottlenecks.sharers * relative_weight
    return result


def reachable(passed_bps: FloatArray, rate_bps: FloatArray, most_bps: FloatArray, part_bps: FloatArray) -> FloatArray:
    """Return (limiters,) the upper bound of each rate: ``most_bps``, the Capacity Share.

    Choice: an idle sender has no marks either, so its rate rises, but only to its equal part ``part_bps``
    (``equal_parts``); a rate above that part stays.
    """
    return np.where(passed_bps > 0, most_bps, np.minimum(np.maximum(rate_bps, part_bps), most_bps))


def next_rates(
    rates: LimiterState,
    share: FloatArray,
    weight: FloatArray,
    bottlenecks: Bottlenecks,
    link_bps: FloatArray,
    least_bps: FloatArray,
    most_bps: FloatArray,
    demand_bps: FloatArray,
    constants: Constants,
) -> LimiterState:
    """Return the rates of the next interval; all arguments except the bottlenecks have shape (limiters,).

    ``share`` is phi; if NaN (unknown), ``quiet`` stays, and so does the rate before step 3. ``link_bps`` (C) is the
    lower rate of the sending port and the bottleneck, ``least_bps`` and ``most_bps`` are the floor and the bound of
    ``reachable``, ``demand_bps`` is the demand of a limiter's pairs (infinite: more than the limiter passes). ``rates``
    holds no NaN.

    1. Marked: the rate falls by its cut.
    2. Unmarked for less than the timeout: ``+ slow * C / n``, otherwise ``+ fast * C / n``, by weight.
    3. The rate stays between ``least_bps`` and ``most_bps``.

    Deviation: line 34 of the listing tests ``f >= 0``, which is always true: the slow increase would never happen.
    Deviation: step 2 divides by n, the number of senders to the bottleneck, which the controller knows. Otherwise n
    senders overshoot n times as much.
    """
    known = ~np.isnan(share)
    marked = known & (np.nan_to_num(share) > 0.0)
    quiet = np.where(marked, 0.0, np.where(known, rates.quiet + 1.0, rates.quiet))
    lower_bps = _lowered(rates.rate_bps, np.nan_to_num(share), weight, marked, demand_bps, bottlenecks, constants)  # 1
    gain = np.where(quiet < constants.timeout, constants.slow, constants.fast)
    higher_bps = rates.rate_bps + gain * equal_parts(weight, link_bps, bottlenecks)  # 2
    moved_bps = np.where(marked, lower_bps, np.where(known, higher_bps, rates.rate_bps))
    return LimiterState(np.minimum(np.maximum(moved_bps, least_bps), most_bps), quiet)  # 3


def _lowered(
    rate_bps: FloatArray,
    share: FloatArray,
    weight: FloatArray,
    marked: BoolArray,
    demand_bps: FloatArray,
    bottlenecks: Bottlenecks,
    constants: Constants,
) -> FloatArray:
    """Return (limiters,) the rates after a cut as ``constants.cut`` says; the caller uses those of marked limiters."""
    # Factors are computed for all limiters; levels cost more, so only if a marked limiter needs one. ``cut`` selects.
    by_share = 1.0 - constants.beta * share
    load_bps = bottlenecks.load_bps[bottlenecks.bottleneck]
    # A bottleneck that marks is full: its load bounds its capacity, and stands for an unknown (infinite) one.
    capacity_bps = np.minimum(bottlenecks.capacity_bps[bottlenecks.bottleneck], np.maximum(load_bps, 1.0))
    target_bps = constants.gamma * capacity_bps
    to_load = np.divide(target_bps, load_bps, out=np.ones(len(load_bps)), where=load_bps > 0)
    factor = np.where(constants.cut == Cut.LOAD, np.minimum(by_share, to_load), by_share)
    if not (marked & (constants.cut == Cut.LEVEL)).any():
        return rate_bps * factor
    level_bps = _levels(np.minimum(rate_bps, demand_bps), weight, bottlenecks, constants.gamma)
    to_level = np.where(load_bps > target_bps, np.minimum(rate_bps, level_bps * weight), rate_bps)
    return np.where(constants.cut == Cut.LEVEL, to_level, rate_bps * factor)


def _levels(room_bps: FloatArray, weight: FloatArray, bottlenecks: Bottlenecks, gamma: FloatArray) -> FloatArray:
    """Return (limiters,) the level of each limiter's bottleneck: the rate per weight that fills ``gamma`` of it.

    ``room_bps`` (limiters,) is the most that each limiter would use.
    """
    order = np.argsort(bottlenecks.bottleneck, kind="stable")
    sizes = np.bincount(bottlenecks.bottleneck, minlength=len(bottlenecks.load_bps))
    groups = Segments(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    load_bps, capacity_bps = bottlenecks.load_bps, bottlenecks.capacity_bps
    part = np.ones(len(load_bps))  # of each bottleneck: the lowest gamma of its limiters
    np.minimum.at(part, bottlenecks.bottleneck, gamma)
    amount_bps = part * np.minimum(capacity_bps, np.maximum(load_bps, 1.0))
    level_bps = fill_level(groups, amount_bps, weight[order], room_bps[order])
    return level_bps[bottlenecks.bottleneck]
