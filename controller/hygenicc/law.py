"""How a source's rate answers to marks (HyGenICC, Algorithm 1), as columns over limiters.

A *limiter* is a token bucket at the source: of a sending VN (the paper) or of one of its entries.

Deviation: the paper counts marks since the last update, every 5 round trips, and takes ``f * C / 1000`` off the rate. A
control interval holds a hundred times as many frames, and that would be several times the link. Feedback here is phi,
the share of marked frames. At the paper's own pace its decrease is in proportion to phi and to the rate, so the law is
additive increase, multiplicative decrease, and is built as such.

Deviation: lines 25 and 30 of the listing ask ``then - now >= timeout``, which is never so; ``now - then`` is meant. Its
bucket is refilled from the time of the last frame that went out, so that each drop credits the same time again, and
once for each flow. Meters are refilled by one clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from controller.allocation.interface import BoolArray, FloatArray, IntArray
from controller.allocation.segments import Segments, fill_level
from controller.metering.enforcement import RESPONSIVE_BURST_S

# Choice: no rate falls below this part of its share, nor below so many frames an interval: a mark has to be able to
# come back. The paper's rate may become 0, and then nothing ever does.
FLOOR_PART = 0.01
FLOOR_BITS = 3 * 1518 * 8
# Choice: a queue that is too long marks every frame behind its threshold, and stays so while it is not drained. A
# phantom meter counts only what is too much. When that is this part of what arrives, all of it counts as marked.
ALL_MARKED = 0.05
NEVER = 1e9  # intervals since a mark that never was


class Cut(IntEnum):
    """How far a rate falls when frames are marked."""

    SHARE = 0  # by beta times the share of marked frames: the paper's law
    LOAD = 1  # to what the bottleneck carries, if that is less
    LEVEL = 2  # to the level at which all senders together fill the bottleneck; marks say when, and not how far


@dataclass(frozen=True, slots=True)
class LimiterState:
    """The limiters' state, (limiters,) each: the rate, and the intervals since the last mark. NaN rates are new."""

    rate_bps: FloatArray
    quiet: FloatArray

    @classmethod
    def new(cls, limiters: int) -> LimiterState:
        """Return limiters that have not sent yet."""
        return cls(np.full(limiters, np.nan), np.full(limiters, NEVER))


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of the law, (limiters,) each: see the policy's parameters."""

    cut: FloatArray
    beta: FloatArray
    slow: FloatArray
    fast: FloatArray
    timeout: FloatArray
    gamma: FloatArray


@dataclass(frozen=True, slots=True)
class Bottlenecks:
    """What each limiter's traffic is held by.

    ``of`` (limiters,) is the bottleneck of each, ``load_bps`` and ``capacity_bps`` (bottlenecks,) what comes towards it
    through the senders' meters, and what it carries; infinite where that is not known. ``senders`` (bottlenecks,) is
    how many limiters sent there in the last interval. ``waits`` (limiters,) is 1 for a limiter that sent nothing.
    """

    of: IntArray
    load_bps: FloatArray
    capacity_bps: FloatArray
    senders: FloatArray
    waits: FloatArray | float = 0.0

    @property
    def sharers(self) -> FloatArray:
        """How many limiters share the bottleneck of each, itself included, (limiters,)."""
        return np.maximum(self.senders[self.of] + self.waits, 1.0)


def marked_shares(
    marked_bps: FloatArray, passed_bps: FloatArray, arrived_bps: FloatArray, beyond_bps: FloatArray, receiver: IntArray
) -> FloatArray:
    """Return (entries,) phi, the share of an entry's traffic that was marked; NaN where nothing is known of marks.

    ``marked_bps`` and ``passed_bps`` (entries,) are what came with a mark and what passed the sender's meter.
    ``arrived_bps`` and ``beyond_bps`` (vns,) are what the phantom meters of the receiving VNs saw, and counted as too
    much, of which ALL_MARKED marks everything, whoever sent it. Both are of one meter, and so of the same time. Where
    marks are unknown (NaN) the phantom meter counts, and the other way round. Who sent nothing has no marks: TCP that
    waits for its time-out after a cut has its rate rise meanwhile, as the paper's timer has it.
    """
    too_much = np.minimum(_parts(beyond_bps, arrived_bps) / ALL_MARKED, 1.0)[receiver]
    marked = _parts(marked_bps, passed_bps)
    nothing = np.isnan(marked) & np.isnan(too_much)
    share = np.minimum(np.nan_to_num(marked) + np.nan_to_num(too_much), 1.0)
    return np.where(nothing, np.nan, np.where(passed_bps == 0.0, 0.0, share))


def _parts(some_bps: FloatArray, all_bps: FloatArray) -> FloatArray:
    """Return which part of all is some; nothing of nothing, and NaN where either is unknown."""
    nothing = np.where(np.isnan(some_bps) | np.isnan(all_bps), np.nan, 0.0)
    return np.divide(some_bps, all_bps, out=nothing, where=all_bps > 0)


def of_limiters(share: FloatArray, passed_bps: FloatArray, limiter: IntArray, limiters: int) -> FloatArray:
    """Return (limiters,) the mean phi of each limiter's entries, by what they sent; NaN where nothing is known.

    Deviation: the paper's listing changes the rate of a VM once for each of its flows. Once for all is meant: k flows
    would raise it k times as fast.
    """
    known = ~np.isnan(share)
    sent_bps = np.where(known, passed_bps, 0.0)
    sums = np.bincount(limiter, sent_bps, minlength=limiters)
    marked = np.bincount(limiter, np.where(known, share * sent_bps, 0.0), minlength=limiters)
    nothing = np.where(np.bincount(limiter, known, minlength=limiters) > 0, 0.0, np.nan)
    result: FloatArray = np.divide(marked, sums, out=nothing, where=sums > 0)
    return result


def capacity_shares(
    capacity_bps: FloatArray, port: IntArray, wanted_bps: FloatArray, weight: FloatArray, most_bps: FloatArray
) -> FloatArray:
    """Return (vns,) the Capacity Share of each sending VN: its part, by weight, of its port among those that send.

    ``capacity_bps`` (ports,) are the ports' rates, ``port`` (vns,) names a VN's port and ``most_bps`` (vns,) is its own
    limit. ``wanted_bps`` (vns,) is what a VN would send: 0 if it is silent, infinite if it is held back.

    Deviation: in the paper an active VM keeps its part of the NIC though it sends little, and the rest is lost. Here
    others have what it leaves, and it finds its part when it wants more; until their rates fall the link is shared. So
    it does not matter that silence is told sooner here (IDLE_INTERVALS; the paper: 1 s), nor that a VM that only
    receives is active in the paper, and has a part that it does not use.
    """
    ports = len(capacity_bps)
    sends = wanted_bps > 0
    sums = np.bincount(port, np.where(sends, weight, 0.0), minlength=ports)[port] + np.where(sends, 0.0, weight)
    order = np.argsort(port, kind="stable")
    sizes = np.bincount(port, minlength=ports)
    groups = Segments(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    room_bps = np.minimum(wanted_bps, capacity_bps[port])  # nobody sends more than its port
    level_bps = fill_level(groups, capacity_bps, weight[order], room_bps[order])
    own_bps = capacity_bps[port] * weight / sums
    more_bps = np.clip(level_bps[port] * weight, own_bps, capacity_bps[port])
    result: FloatArray = np.minimum(np.where(wanted_bps > own_bps, more_bps, own_bps), most_bps)
    return result


def floors(share_bps: FloatArray, interval_s: float) -> FloatArray:
    """Return the least rates of limiters with these shares."""
    return np.minimum(np.maximum(FLOOR_PART * share_bps, FLOOR_BITS / interval_s), share_bps)


def with_start_rates(rates: LimiterState, share_bps: FloatArray, senders: FloatArray, start: FloatArray) -> FloatArray:
    """Return the rates with those of new limiters put in, (limiters,) each.

    With ``start`` 0 it is the Capacity Share (the paper). Choice: with 1 it is that over the number of senders to the
    bottleneck, since a newcomer at the share doubles the load at once.
    """
    first_bps = np.where(start > 0, share_bps / np.maximum(senders, 1.0), share_bps)
    return np.where(np.isnan(rates.rate_bps), first_bps, rates.rate_bps)


def is_cut_sufficient(
    passed_bps: FloatArray, rate_bps: FloatArray, stood_s: FloatArray, bottlenecks: Bottlenecks
) -> BoolArray:
    """Return (limiters,) whether marks ask for no more than the last cut has given already.

    ``passed_bps`` and ``rate_bps`` (limiters,) are what passed each in the last interval and the rate it had;
    ``stood_s`` is the time from its last cut to the beginning of that interval (NaN: never cut).

    Deviation: the paper updates every five round trips, so that an answer is seen before the next. Here a bucket holds
    RESPONSIVE_BURST_S of its rate for TCP (docs/enforcement.md), and a cut works once that is spent. Cutting on would
    take rates down to nothing meanwhile. So while more comes to a bottleneck than the rates of those who send there,
    none of them is cut again for as long. All of them wait for each other: cuts in proportion bring rates together
    only if they come to all.
    """
    at, places = bottlenecks.of, len(bottlenecks.senders)
    excess_bps = np.bincount(at, np.where(passed_bps > 0, passed_bps - rate_bps, 0.0), minlength=places)
    last_s = np.full(places, np.inf)
    np.fmin.at(last_s, at, stood_s)
    result: BoolArray = ((excess_bps > 0) & (last_s < RESPONSIVE_BURST_S))[at]
    return result


def equal_parts(weight: FloatArray, link_bps: FloatArray, bottlenecks: Bottlenecks) -> FloatArray:
    """Return (limiters,) the part of ``link_bps`` that is each one's by weight among those who send where it does."""
    places = len(bottlenecks.senders)
    sums = np.bincount(bottlenecks.of, weight, minlength=places)
    count = np.bincount(bottlenecks.of, minlength=places)
    relative = weight * (count / np.where(sums > 0, sums, 1.0))[bottlenecks.of]
    result: FloatArray = link_bps / bottlenecks.sharers * relative
    return result


def reachable(passed_bps: FloatArray, rate_bps: FloatArray, most_bps: FloatArray, part_bps: FloatArray) -> FloatArray:
    """Return (limiters,) how far each rate may rise: to ``most_bps``, the Capacity Share.

    Choice: who sends nothing has no marks either, and its rate rises, but to its equal part ``part_bps`` at most.
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
    wanted_bps: FloatArray,
    constants: Constants,
) -> LimiterState:
    """Return the rates of the next interval; all (limiters,) but the bottlenecks.

    ``share`` is phi, NaN for unknown: then the rate and its clock stand. ``link_bps`` is the rate of the sending port,
    ``least_bps`` and ``most_bps`` the floor and the Capacity Share, ``wanted_bps`` what a limiter's senders would send
    if it did not hold them (infinite: more than it lets through). ``rates`` holds no NaN.

    1. Marked: the rate falls, by its cut.
    2. Not marked for less than the timeout: ``+ slow * C / n``, else ``+ fast * C / n``, by weight.
    3. Between the floor and the share.

    Deviation: line 34 of the listing asks ``f >= 0``, which is always so: the slow increase would never happen.
    Deviation: in 2 the controller knows n, the senders to the bottleneck. Without it n senders overshoot n times.
    """
    known = ~np.isnan(share)
    marked = known & (np.nan_to_num(share) > 0.0)
    quiet = np.where(marked, 0.0, np.where(known, rates.quiet + 1.0, rates.quiet))
    lower_bps = _lowered(rates.rate_bps, np.nan_to_num(share), weight, marked, wanted_bps, bottlenecks, constants)  # 1
    gain = np.where(quiet < constants.timeout, constants.slow, constants.fast)
    higher_bps = rates.rate_bps + gain * equal_parts(weight, link_bps, bottlenecks)  # 2
    moved_bps = np.where(marked, lower_bps, np.where(known, higher_bps, rates.rate_bps))
    return LimiterState(np.minimum(np.maximum(moved_bps, least_bps), most_bps), quiet)  # 3


def _lowered(
    rate_bps: FloatArray,
    share: FloatArray,
    weight: FloatArray,
    marked: BoolArray,
    wanted_bps: FloatArray,
    bottlenecks: Bottlenecks,
    constants: Constants,
) -> FloatArray:
    """Return the rates of marked limiters after their cut."""
    by_share = 1.0 - constants.beta * share
    load_bps = bottlenecks.load_bps[bottlenecks.of]
    # Where the capacity is not known it is what came when the first frame was marked.
    capacity_bps = np.minimum(bottlenecks.capacity_bps[bottlenecks.of], np.maximum(load_bps, 1.0))
    target_bps = constants.gamma * capacity_bps
    to_load = np.divide(target_bps, load_bps, out=np.ones(len(load_bps)), where=load_bps > 0)
    factor = np.where(constants.cut == Cut.LOAD, np.minimum(by_share, to_load), by_share)
    if not (marked & (constants.cut == Cut.LEVEL)).any():
        return rate_bps * factor
    level_bps = _levels(np.minimum(rate_bps, wanted_bps), weight, bottlenecks, constants.gamma)
    to_level = np.where(load_bps > target_bps, np.minimum(rate_bps, level_bps * weight), rate_bps)
    return np.where(constants.cut == Cut.LEVEL, to_level, rate_bps * factor)


def _levels(room_bps: FloatArray, weight: FloatArray, bottlenecks: Bottlenecks, gamma: FloatArray) -> FloatArray:
    """Return (limiters,) the level of each bottleneck: the rates per weight at which its limiters fill it.

    ``room_bps`` (limiters,) is what each would use at most.
    """
    order = np.argsort(bottlenecks.of, kind="stable")
    sizes = np.bincount(bottlenecks.of, minlength=len(bottlenecks.load_bps))
    groups = Segments(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    load_bps, capacity_bps = bottlenecks.load_bps, bottlenecks.capacity_bps
    part = np.ones(len(load_bps))
    np.minimum.at(part, bottlenecks.of, gamma)
    amount_bps = part * np.minimum(capacity_bps, np.maximum(load_bps, 1.0))
    level_bps = fill_level(groups, amount_bps, weight[order], room_bps[order])
    return level_bps[bottlenecks.of]
