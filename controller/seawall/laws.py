"""How a loop's rate responds to its link: the laws of Seawall (sections 4.2 to 4.4), as columns over loops.

Input of a law are, for each loop, the parts of its traffic with loss, marks or neither, and its step. It returns the
next rate. ``clamped`` and ``first_rates`` are common to all laws.

Choice: the paper's step ``w`` has no unit. Taken as a fixed part of the link for each entity, n entities that overload
it lose 7, 23 and 46 % for n = 2, 10 and 40. Here a step is a part of the link's capacity for backlogged entities, in
proportion to their weights (see ``steps``), so that all steps of a link sum to that part for any n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation.interface import BoolArray, FloatArray
from controller.seawall.loops import Loops

# Choice: the loop may hold this many times its recent use (section 4.5 says "a multiple"). The recent use fades by half
# in half a second: that is slower than a loop grows, and an idle entity does not return at full rate.
KAPPA = 2.0
FADING_INTERVALS = 9
# Choice: no loop falls below this part of its link. At zero it could not show that it has traffic.
FLOOR = 0.001
# Choice: backlogged entities may use at least this part of a link, however much the others use.
MIN_LEFT = 0.05
MANY_JOIN = 3
# Choice: an overload that a decrease has not ended yet causes no further decrease (see docs/policies/seawall.md).
HOLD_INTERVALS = 2.0
# Choice: the concave part ends this near its goal, or after this part of T_s. In the printed form it never ends.
NEAR_GOAL = 0.99
LONGEST_PART = 0.9
# Choice: the loss from which a destination's vote counts. A counter's granularity is no loss.
MIN_LOSS = 0.001
# Deviation: the paper counts missing feedback as loss. Here it is a fault of the control plane: a loop falls by half a
# decrease within at most this many intervals, and then stays.
UNKNOWN_INTERVALS = 4.0


@dataclass(frozen=True, slots=True)
class Feedback:
    """The outcome of a loop's traffic by parts, (loops,) each; the parts sum to 1 where anything is sent.

    ``lost`` and ``marked`` are the shares that were lost and marked, ``lost_votes`` and ``marked_votes`` the parts of
    the destinations with any loss or mark. ``unknown`` is the part without feedback.
    """

    lost: FloatArray
    marked: FloatArray
    lost_votes: FloatArray
    marked_votes: FloatArray
    unknown: FloatArray

    @classmethod
    def from_uses(cls, loops: Loops, part: FloatArray, lost: FloatArray, marked: FloatArray) -> Feedback:
        """Return the feedback of each loop from that of each use, (uses,), NaN where unknown (section 4.3).

        p_loss is the sum of p_d * loss_d, p_mark the sum of p_d * mark_d * (1 - loss_d).
        """
        known = ~(np.isnan(lost) | np.isnan(marked))
        counted = np.where(known, part, 0.0)
        lost, marked = np.where(known, lost, 0.0), np.where(known, marked, 0.0)
        saw_loss = lost > MIN_LOSS
        return cls(
            loops.sum(counted * lost),
            loops.sum(counted * marked * (1.0 - lost)),
            loops.sum(counted * saw_loss),
            loops.sum(counted * ((marked > MIN_LOSS) & ~saw_loss)),
            loops.sum(np.where(known, 0.0, part)),
        )


def steps(
    loops: Loops, use_bps: FloatArray, backlogged: BoolArray, weight: FloatArray, capacity_bps: FloatArray
) -> FloatArray:
    """Return (loops,) the unit of each loop's step: its share of the link's capacity for backlogged entities.

    ``use_bps`` (loops,) is the entity's rate through the link, ``backlogged`` (loops,) whether its demand is higher,
    ``weight`` (loops,) its weight, ``capacity_bps`` (links,) the link's capacity for all of them.

    The share is by weight among the backlogged and the entity itself. If the use of the other entities were not
    subtracted, one backlogged entity next to three others would get 92 % of the rest; with the subtraction it gets 98
    %.
    """
    links = len(capacity_bps)
    of_backlogged = loops.sum_of_loops(np.where(backlogged, weight, 0.0), links)
    limited_bps = loops.sum_of_loops(np.where(backlogged, 0.0, use_bps), links)
    left_bps = np.maximum(capacity_bps - limited_bps, MIN_LEFT * capacity_bps)
    competing = of_backlogged[loops.link] + np.where(backlogged, 0.0, weight)
    result: FloatArray = left_bps[loops.link] * weight / competing
    return result


def idle_shares(loops: Loops, active: BoolArray, weight: FloatArray, capacity_bps: FloatArray) -> FloatArray:
    """Return (loops,) each entity's share of its link among the active entities and itself.

    A new loop starts at this share, and no loop is clamped below it.
    """
    sums = loops.sum_of_loops(np.where(active, weight, 0.0), len(capacity_bps))
    share_bps: FloatArray = capacity_bps[loops.link] * weight / (sums[loops.link] + np.where(active, 0.0, weight))
    return share_bps


def first_rates(loops: Loops, rate_bps: FloatArray, idle_share_bps: FloatArray, capacity_bps: FloatArray) -> FloatArray:
    """Return the rates, with new loops' (NaN) rates set to their idle shares.

    Choice: the paper does not define the initial rate. Where more than MANY_JOIN loops join a link in one interval, all
    its loops are scaled down to its capacity: otherwise 40 joining loops would send nearly twice that until the law has
    cut them.
    """
    new = np.isnan(rate_bps)
    if not new.any():
        return rate_bps
    links = len(capacity_bps)
    rate_bps = np.where(new, idle_share_bps, rate_bps)
    many = loops.sum_of_loops(new.astype(np.float64), links) > MANY_JOIN
    sums_bps = loops.sum_of_loops(rate_bps, links)
    part = np.divide(capacity_bps, sums_bps, out=np.ones(links), where=many & (sums_bps > capacity_bps))
    return rate_bps * part[loops.link]


def faded_peak(before_bps: FloatArray, use_bps: FloatArray) -> FloatArray:
    """Return each loop's recent maximum use, (loops,): it rises at once and halves in FADING_INTERVALS."""
    peak_bps: FloatArray = np.maximum(use_bps, np.nan_to_num(before_bps) * 0.5 ** (1.0 / FADING_INTERVALS))
    return peak_bps


def clamped(
    loops: Loops,
    rate_bps: FloatArray,
    peak_bps: FloatArray,
    idle_share_bps: FloatArray,
    capacity_bps: FloatArray,
    kappa: FloatArray | float = KAPPA,
) -> FloatArray:
    """Return the rates, bounded by the loops' recent use (section 4.5), all (loops,) except the capacities.

    The bound is kappa times the peak of the use, or the idle share if that is more, and at most the link.
    """
    of_link_bps = capacity_bps[loops.link]
    most_bps = np.minimum(np.maximum(kappa * peak_bps, idle_share_bps), of_link_bps)
    result: FloatArray = np.maximum(np.minimum(rate_bps, most_bps), FLOOR * of_link_bps)
    return result


def without_feedback(alpha: FloatArray, unknown: FloatArray, unknown_intervals: FloatArray) -> FloatArray:
    """Return (loops,) the factor for rates with partly missing feedback: half a decrease, for a few intervals.

    ``unknown_intervals`` includes this one.
    """
    return 1.0 - np.where(unknown_intervals <= UNKNOWN_INTERVALS, 0.5 * alpha * unknown, 0.0)


def proportional(
    rate_bps: FloatArray, feedback: Feedback, step_bps: FloatArray, alpha: FloatArray, a: FloatArray
) -> FloatArray:
    """Return the next rates by the default law, on marks that the controller computes (link_feedback.marked_shares).

    Classes 1 and 2 of the paper in one step: each part of the traffic moves the rate in proportion.
    """
    congested = feedback.lost + feedback.marked
    fine = np.maximum(1.0 - congested - feedback.unknown, 0.0)
    return rate_bps * (1.0 - alpha * congested) + a * step_bps * fine


@dataclass(frozen=True, slots=True)
class Curve:
    """The state of a loop under the laws ``cubic`` and ``dctcp``, (loops,) each (section 4.4).

    ``goal_bps`` is r_goal, ``increment_bps`` inc, ``since_drop_intervals`` the time since t_drop, ``marked_mean`` c.
    NaN in a new loop, which has had no drop.
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
    """Return the next rates by the paper's Class 3: a decrease, then concave to the goal, then convex beyond it.

    1. ``c <- c + gamma * (marked - c)``, the mean share of marks.
    2. Loss (and with ``uses_marks`` marks): ``r_new = r - r * alpha * p * c``, where c is 1 for losses, with an alpha
       of their own; the goal becomes r if r was above it, otherwise the mean of r and r_new; then r becomes r_new. At
       most once within ``hold``.
    3. Below the goal: ``r + p * delta * (r_goal - r) * (1 - dt) ** 3`` with ``dt = min(since / T_s, 0.9)``.
    4. Beyond it: ``r + p * inc``, and inc grows by a step.

    Choice: the listing never assigns r_new to r; step 2 does. Choice: a destination with any loss counts with its whole
    part. In the printed form a trace of loss in every interval resets inc for ever, and shares of 0.89 and 0.11 never
    change. Choice: step 3 ends near the goal or at dt = 0.9; in the printed form two entities stay at 0.89 and 0.11 for
    ever. Deviation: step 3 is not in proportion to the weight; weights act through the additive step 4.
    """
    fresh = np.isnan(before.goal_bps)
    goal_bps = np.where(fresh, 0.0, before.goal_bps)
    increment_bps = np.where(fresh, 0.0, before.increment_bps)
    since = np.where(fresh, np.inf, before.since_drop_intervals + 1.0)
    c = np.where(np.isnan(before.marked_mean), 0.0, before.marked_mean)
    marks = feedback.marked_votes if uses_marks else np.zeros(len(rate_bps))
    c = c + constants.gamma * (feedback.marked - c) if uses_marks else c  # 1
    cut = constants.alpha_lost * feedback.lost_votes + constants.alpha * marks * c
    drops = (cut > 0.0) & (since >= constants.hold_intervals)
    lower_bps = rate_bps * (1.0 - cut)  # 2
    goal_after = np.where(rate_bps > goal_bps, rate_bps, 0.5 * (rate_bps + lower_bps))
    goal_bps = np.where(drops, goal_after, goal_bps)
    increment_bps = np.where(drops, 0.0, increment_bps)
    since = np.where(drops, 0.0, since)
    fine = np.maximum(1.0 - feedback.lost_votes - marks - feedback.unknown, 0.0)
    dt = np.minimum(since / constants.t_s_intervals, LONGEST_PART)
    concave = (rate_bps < NEAR_GOAL * goal_bps) & (dt < LONGEST_PART)
    to_goal_bps = fine * constants.delta * (goal_bps - rate_bps) * (1.0 - dt) ** 3  # 3
    risen_bps = rate_bps + np.where(concave, to_goal_bps, fine * increment_bps)  # 4
    grows = ~drops & ~concave
    increment_bps = np.where(grows, increment_bps + fine * constants.a * step_bps, increment_bps)
    return np.where(drops, lower_bps, risen_bps), Curve(goal_bps, increment_bps, since, c)


def strawman(
    rate_bps: FloatArray, lost: FloatArray, step_bps: FloatArray, alpha: FloatArray, a: FloatArray
) -> FloatArray:
    """Return the next rates of one loop per pair, (pairs,): the scheme from which the paper starts (section 4.2).

    Loss: ``r - r * alpha``, otherwise ``r + step``. An entity with more destinations gets more: that is its flaw. Where
    losses are unknown (NaN) the rate stays.
    """
    loses = lost > MIN_LOSS
    moved_bps = np.where(loses, rate_bps * (1.0 - alpha), rate_bps + a * step_bps)
    return np.where(np.isnan(lost), rate_bps, moved_bps)
