"""How a loop's rate responds to its link: the laws of Seawall (sections 4.2 to 4.4), as columns over loops.

A law computes each loop's next rate from its present rate, its step, and the shares of its traffic with losses, with
marks and with neither (``Feedback``). ``first_rates`` and ``clamped`` are common to all laws. Rates are in bit/s; a
share or a part is between 0 and 1.

Choice: the paper's step ``w`` has no unit. Taken as a fixed part of the link for each entity, n entities that overload
it lose 7, 23 and 46 % for n = 2, 10 and 40. Here a step is a part of the link's capacity for backlogged entities, in
proportion to their weights (see ``steps``), so that all steps of a link sum to that part of its capacity for any n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation.interface import BoolArray, FloatArray
from controller.seawall.loops import Loops

# Choice: a loop's rate is at most this many times its recent peak use (section 4.5 says "a multiple"). The peak halves
# in half a second: that is slower than a loop grows, and an idle entity does not return at full rate.
KAPPA = 2.0
PEAK_HALF_LIFE_INTERVALS = 9
# Choice: the minimum rate of a loop, as a part of its link's capacity. At zero it could not show that it has traffic.
FLOOR = 0.001
# Choice: the minimum part of a link's capacity for its backlogged entities, however much the others use.
MIN_BACKLOGGED_PART = 0.05
# Choice: up to this many loops may join a link in one interval without a reduction of the link's rates.
MAX_JOINING_LOOPS = 3
# Choice: an overload that a decrease has not ended yet causes no further decrease (see docs/policies/seawall.md).
HOLD_INTERVALS = 2.0
# Choice: the concave part ends at this part of the goal, or after this part of T_s. In the printed form it never ends.
CONCAVE_END_GOAL_PART = 0.99
MAX_CONCAVE_TIME = 0.9
# Choice: a lost or marked share above this counts as loss or mark of a destination. A counter's granularity is no loss.
MIN_LOSS = 0.001
# Deviation: the paper counts missing feedback as loss. Here it is a fault of the control plane: a loop's rate falls by
# half a decrease in each of at most this many intervals, and then stays.
MAX_UNKNOWN_INTERVALS = 4.0


@dataclass(frozen=True, slots=True)
class Feedback:
    """What happened to a loop's traffic, (loops,) each, as shares of that traffic.

    ``lost`` and ``marked`` are the lost and the marked share. ``lost_votes`` is the share that goes to destinations
    with any loss, ``marked_votes`` to destinations with marks and without loss. ``unknown`` is the share without
    feedback.
    """

    lost: FloatArray
    marked: FloatArray
    lost_votes: FloatArray
    marked_votes: FloatArray
    unknown: FloatArray

    @classmethod
    def from_uses(cls, loops: Loops, part: FloatArray, lost: FloatArray, marked: FloatArray) -> Feedback:
        """Return the feedback of each loop from the feedback of its uses (section 4.3).

        ``part`` (uses,) is the part of the loop's traffic that goes to the use's destination (``loops.shares``),
        ``lost`` and ``marked`` (uses,) are the shares of that part that were lost and marked, NaN where unknown.

        p_loss is the sum of p_d * loss_d, p_mark the sum of p_d * mark_d * (1 - loss_d).
        """
        is_known = ~(np.isnan(lost) | np.isnan(marked))
        known_part = np.where(is_known, part, 0.0)
        lost, marked = np.where(is_known, lost, 0.0), np.where(is_known, marked, 0.0)
        has_loss = lost > MIN_LOSS
        has_only_marks = (marked > MIN_LOSS) & ~has_loss
        return cls(
            lost=loops.sum(known_part * lost),
            marked=loops.sum(known_part * marked * (1.0 - lost)),
            lost_votes=loops.sum(known_part * has_loss),
            marked_votes=loops.sum(known_part * has_only_marks),
            unknown=loops.sum(np.where(is_known, 0.0, part)),
        )


def steps(
    loops: Loops, use_bps: FloatArray, backlogged: BoolArray, weight: FloatArray, capacity_bps: FloatArray
) -> FloatArray:
    """Return (loops,) each loop's step in bit/s: the share of its link that it would have next to the backlogged ones.

    ``use_bps`` (loops,) is the entity's rate through the link, ``backlogged`` (loops,) whether its demand is higher,
    ``weight`` (loops,) its weight, ``capacity_bps`` (links,) the link's capacity for all of them.

    The capacity that entities without backlog leave is divided by weight among the backlogged entities and the entity
    itself. If the use of the other entities were not subtracted, one backlogged entity next to three others would get
    92 % of the rest; with the subtraction it gets 98 %.
    """
    links = len(capacity_bps)
    backlogged_weight = loops.sum_of_loops(np.where(backlogged, weight, 0.0), links)
    satisfied_use_bps = loops.sum_of_loops(np.where(backlogged, 0.0, use_bps), links)
    remaining_bps = np.maximum(capacity_bps - satisfied_use_bps, MIN_BACKLOGGED_PART * capacity_bps)
    competing_weight = backlogged_weight[loops.link] + np.where(backlogged, 0.0, weight)
    step_bps: FloatArray = remaining_bps[loops.link] * weight / competing_weight
    return step_bps


def idle_shares(loops: Loops, active: BoolArray, weight: FloatArray, capacity_bps: FloatArray) -> FloatArray:
    """Return (loops,) each entity's share of its link in bit/s, by weight among the active entities and itself.

    ``active`` and ``weight`` are (loops,), ``capacity_bps`` (links,). A new loop starts at this share, and ``clamped``
    never bounds a loop below it.
    """
    active_weight = loops.sum_of_loops(np.where(active, weight, 0.0), len(capacity_bps))
    competing_weight = active_weight[loops.link] + np.where(active, 0.0, weight)
    share_bps: FloatArray = capacity_bps[loops.link] * weight / competing_weight
    return share_bps


def first_rates(loops: Loops, rate_bps: FloatArray, idle_share_bps: FloatArray, capacity_bps: FloatArray) -> FloatArray:
    """Return (loops,) the rates, with the rates of new loops (NaN) set to their idle shares.

    ``rate_bps`` and ``idle_share_bps`` are (loops,), ``capacity_bps`` (links,).

    Choice: the paper does not define the initial rate. Where more than MAX_JOINING_LOOPS loops join a link in one
    interval, the rates of all its loops are scaled down to its capacity: otherwise 40 joining loops would send nearly
    twice the capacity until the law has cut them.
    """
    is_new = np.isnan(rate_bps)
    if not is_new.any():
        return rate_bps
    links = len(capacity_bps)
    rate_bps = np.where(is_new, idle_share_bps, rate_bps)
    many_join = loops.sum_of_loops(is_new.astype(np.float64), links) > MAX_JOINING_LOOPS
    rate_sum_bps = loops.sum_of_loops(rate_bps, links)
    is_overloaded = many_join & (rate_sum_bps > capacity_bps)
    scale = np.divide(capacity_bps, rate_sum_bps, out=np.ones(links), where=is_overloaded)
    return rate_bps * scale[loops.link]


def faded_peak(before_bps: FloatArray, use_bps: FloatArray) -> FloatArray:
    """Return each loop's recent peak use in bit/s, (loops,): it rises at once and halves in PEAK_HALF_LIFE_INTERVALS.

    ``before_bps`` (loops,) is the previous peak, NaN for a new loop, ``use_bps`` (loops,) the use in the last interval.
    """
    faded_bps = np.nan_to_num(before_bps) * 0.5 ** (1.0 / PEAK_HALF_LIFE_INTERVALS)
    peak_bps: FloatArray = np.maximum(use_bps, faded_bps)
    return peak_bps


def clamped(
    loops: Loops,
    rate_bps: FloatArray,
    peak_bps: FloatArray,
    idle_share_bps: FloatArray,
    capacity_bps: FloatArray,
    kappa: FloatArray | float = KAPPA,
) -> FloatArray:
    """Return (loops,) the rates within FLOOR of the link and a bound by the loop's recent use (section 4.5).

    ``capacity_bps`` is (links,), the other columns are (loops,). The bound is ``kappa`` times the peak use, or the idle
    share if that is more, and at most the link's capacity.
    """
    link_capacity_bps = capacity_bps[loops.link]
    max_bps = np.minimum(np.maximum(kappa * peak_bps, idle_share_bps), link_capacity_bps)
    clamped_bps: FloatArray = np.maximum(np.minimum(rate_bps, max_bps), FLOOR * link_capacity_bps)
    return clamped_bps


def without_feedback(alpha: FloatArray, unknown: FloatArray, unknown_intervals: FloatArray) -> FloatArray:
    """Return (loops,) the factor by which missing feedback lowers a rate: half a decrease, for a few intervals.

    ``alpha`` (loops,) is the decrease if all traffic is marked, ``unknown`` (loops,) the share without feedback,
    ``unknown_intervals`` (loops,) the number of intervals in a row with missing feedback, the last one included.
    """
    return 1.0 - np.where(unknown_intervals <= MAX_UNKNOWN_INTERVALS, 0.5 * alpha * unknown, 0.0)


def proportional(
    rate_bps: FloatArray, feedback: Feedback, step_bps: FloatArray, alpha: FloatArray, a: FloatArray
) -> FloatArray:
    """Return (loops,) the next rates by the default law, for marks that link_feedback.marked_shares computes.

    Classes 1 and 2 of the paper in one step: the congested share of the traffic lowers the rate, by ``alpha`` if all
    traffic is congested, and the share without congestion raises it, by ``a`` steps if none is. All are (loops,).
    """
    congested = feedback.lost + feedback.marked
    uncongested = np.maximum(1.0 - congested - feedback.unknown, 0.0)
    return rate_bps * (1.0 - alpha * congested) + a * step_bps * uncongested


@dataclass(frozen=True, slots=True)
class Curve:
    """The state of a loop under the laws ``cubic`` and ``dctcp``, (loops,) each (section 4.4).

    ``goal_bps`` is the paper's r_goal, ``increment_bps`` inc, ``since_drop_intervals`` the time since t_drop,
    ``marked_mean`` c. All are NaN in a new loop, which has had no drop.
    """

    goal_bps: FloatArray
    increment_bps: FloatArray
    since_drop_intervals: FloatArray
    marked_mean: FloatArray

    @classmethod
    def initial(cls, loops: int) -> Curve:
        """Return the state of new loops."""
        nan = np.full(loops, np.nan)
        return cls(nan, nan, nan, nan)


@dataclass(frozen=True, slots=True)
class CurveConstants:
    """The constants of the curve, (loops,) each."""

    alpha: FloatArray
    """for a decrease by marks, if all packets are marked"""
    alpha_lost: FloatArray
    """for a decrease by losses"""
    a: FloatArray
    gamma: FloatArray
    delta: FloatArray
    t_s_intervals: FloatArray
    hold_intervals: FloatArray


def curve(
    rate_bps: FloatArray,
    before: Curve,
    feedback: Feedback,
    step_bps: FloatArray,
    constants: CurveConstants,
    *,
    uses_marks: bool,
) -> tuple[FloatArray, Curve]:
    """Return (loops,) the next rates by the paper's Class 3, and the next state of the curve.

    A rate falls at a loss or a mark, then rises in a concave curve up to the goal, and beyond the goal in a convex one.

    1. ``c <- c + gamma * (marked - c)``, the mean share of marks.
    2. Loss (and with ``uses_marks`` marks): ``r_new = r - r * alpha * p * c``, where c is 1 for losses, with an alpha
       of their own; the goal becomes r if r was above it, otherwise the mean of r and r_new; then r becomes r_new. At
       most once within ``hold``.
    3. Below the goal: ``r + p * delta * (r_goal - r) * (1 - dt) ** 3`` with ``dt = min(since / T_s, 0.9)``.
    4. Beyond it: ``r + p * inc``, and inc grows by a step.

    In 2 p is the share of the traffic with losses (with marks), in 3 and 4 the share without both.

    Choice: the listing never assigns r_new to r; step 2 does. Choice: a destination with any loss counts with its whole
    part. In the printed form a trace of loss in every interval resets inc for ever, and shares of 0.89 and 0.11 never
    change. Choice: step 3 ends near the goal or at dt = 0.9; in the printed form two entities stay at 0.89 and 0.11 for
    ever. Deviation: step 3 is not in proportion to the weight; weights act through the additive step 4.
    """
    is_new = np.isnan(before.goal_bps)
    goal_bps = np.where(is_new, 0.0, before.goal_bps)
    increment_bps = np.where(is_new, 0.0, before.increment_bps)
    since_drop_intervals = np.where(is_new, np.inf, before.since_drop_intervals + 1.0)
    marked_mean = np.where(np.isnan(before.marked_mean), 0.0, before.marked_mean)
    marked_votes = np.zeros(len(rate_bps))
    # 1
    if uses_marks:
        marked_votes = feedback.marked_votes
        marked_mean = marked_mean + constants.gamma * (feedback.marked - marked_mean)
    # 2
    decrease = constants.alpha_lost * feedback.lost_votes + constants.alpha * marked_votes * marked_mean
    drops = (decrease > 0.0) & (since_drop_intervals >= constants.hold_intervals)
    dropped_bps = rate_bps * (1.0 - decrease)
    goal_after_drop_bps = np.where(rate_bps > goal_bps, rate_bps, 0.5 * (rate_bps + dropped_bps))
    goal_bps = np.where(drops, goal_after_drop_bps, goal_bps)
    increment_bps = np.where(drops, 0.0, increment_bps)
    since_drop_intervals = np.where(drops, 0.0, since_drop_intervals)
    # 3
    uncongested = np.maximum(1.0 - feedback.lost_votes - marked_votes - feedback.unknown, 0.0)
    dt = np.minimum(since_drop_intervals / constants.t_s_intervals, MAX_CONCAVE_TIME)
    is_concave = (rate_bps < CONCAVE_END_GOAL_PART * goal_bps) & (dt < MAX_CONCAVE_TIME)
    concave_rise_bps = uncongested * constants.delta * (goal_bps - rate_bps) * (1.0 - dt) ** 3
    # 4
    risen_bps = rate_bps + np.where(is_concave, concave_rise_bps, uncongested * increment_bps)
    is_convex = ~drops & ~is_concave
    increment_bps = np.where(is_convex, increment_bps + uncongested * constants.a * step_bps, increment_bps)
    next_bps = np.where(drops, dropped_bps, risen_bps)
    return next_bps, Curve(goal_bps, increment_bps, since_drop_intervals, marked_mean)


def strawman(
    rate_bps: FloatArray, lost: FloatArray, step_bps: FloatArray, alpha: FloatArray, a: FloatArray
) -> FloatArray:
    """Return (pairs,) the next rates by the scheme from which the paper starts, one loop per pair (section 4.2).

    ``lost`` (pairs,) is the lost share of the pair's traffic. With loss: ``r - r * alpha``, otherwise ``r + a * step``;
    where the loss is unknown (NaN) the rate stays. An entity with more destinations gets more: that is the flaw of this
    scheme.
    """
    has_loss = lost > MIN_LOSS
    moved_bps = np.where(has_loss, rate_bps * (1.0 - alpha), rate_bps + a * step_bps)
    return np.where(np.isnan(lost), rate_bps, moved_bps)
