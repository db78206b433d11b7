"""The bandwidth allocators of all entities: the rate of each loop, and the rate of each pair (section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from controller.allocation.interface import FULL_USE, BoolArray, FloatArray
from controller.seawall import laws
from controller.seawall.loops import Loops, entry_rates, shares


class Law(Enum):
    """How loops respond to their links."""

    PROPORTIONAL = "proportional"  # the default: marks that the controller computes
    CUBIC = "cubic"  # losses only
    DCTCP = "dctcp"  # losses and marks


@dataclass(frozen=True, slots=True)
class RateLoopState:
    """The state of loops between intervals; NaN in new ones.

    ``rate_bps`` is a loop's rate, ``peak_bps`` the recent maximum of its use, ``unknown`` the number of intervals
    without feedback, (loops,) each. ``curve`` is the state of Class 3.
    """

    rate_bps: FloatArray
    peak_bps: FloatArray
    unknown: FloatArray
    curve: laws.Curve

    @classmethod
    def new(cls, loops: int) -> RateLoopState:
        """Return loops without any state."""
        nan = np.full(loops, np.nan)
        return cls(nan, nan, nan, laws.Curve.initial(loops))


@dataclass(frozen=True, slots=True)
class LoopConstants:
    """The constants of the laws, (loops,) each; only ``cubic`` and ``dctcp`` use those of the curve."""

    beta: FloatArray
    kappa: FloatArray
    curve: laws.CurveConstants


@dataclass(frozen=True, slots=True)
class PairTraffic:
    """The traffic of the loops' pairs: (pairs,) each.

    ``passed_bps`` is the rate through their meters in the last interval, ``backlogged`` whether their meters dropped,
    ``active`` whether they have traffic.
    """

    passed_bps: FloatArray
    backlogged: BoolArray
    active: BoolArray


@dataclass(frozen=True, slots=True)
class Allocation:
    """A decision.

    ``rate_bps`` (pairs,) is the rate of each pair, ``left_bps`` (uses,) the rate that each link on its path allows
    it.
    """

    rate_bps: FloatArray
    left_bps: FloatArray
    state: RateLoopState


def allocate(
    law: Law,
    loops: Loops,
    before: RateLoopState,
    traffic: PairTraffic,
    lost: FloatArray,
    marked: FloatArray,
    idle_share_bps: FloatArray,
    weight: FloatArray,
    ceiling_bps: FloatArray,
    capacity_bps: FloatArray,
    constants: LoopConstants,
) -> Allocation:
    """Return the new rates of the pairs.

    ``lost`` and ``marked`` (uses,) are the feedback, NaN where unknown; ``idle_share_bps`` (loops,) are the entities'
    idle shares of their links (laws.idle_shares), ``weight`` (loops,) their weights, ``ceiling_bps`` (loops,) the most
    that an entity may send, ``capacity_bps`` (links,) the links' capacity for all of them.

    1. The part of each destination, and with it the feedback of each loop (section 4.3, Step 1; Class 2, lines 7 and
       10).
    2. The unit of each loop's rise (see laws.steps).
    3. The law.
    4. Bounds by the loop's use; new loops start at their idle shares.
    5. Each loop's rate is divided among its destinations; a pair gets the lowest rate on its path (Step 2;
       line 16).
    """
    part = shares(loops, traffic.passed_bps, traffic.active)  # 1
    feedback = laws.Feedback.from_uses(loops, part, lost, marked)
    use_bps = loops.sum_of_entries(traffic.passed_bps)
    active = loops.sum_of_entries(traffic.active) > 0
    rate_bps = laws.first_rates(loops, before.rate_bps, idle_share_bps, capacity_bps)
    fresh = np.isnan(before.rate_bps)
    backlogged = active & ((use_bps >= FULL_USE * rate_bps) | (loops.sum_of_entries(traffic.backlogged) > 0))
    step_bps = laws.steps(loops, use_bps, backlogged, weight, capacity_bps)  # 2
    missing = (feedback.unknown > 0.0) & (use_bps > 0.0)
    unknown = np.where(missing, np.nan_to_num(before.unknown) + 1.0, 0.0)
    curve = constants.curve
    moved_bps, remembered = _moved(law, rate_bps, before.curve, feedback, step_bps, curve)  # 3
    moved_bps = moved_bps * laws.without_feedback(curve.alpha, np.where(missing, feedback.unknown, 0.0), unknown)
    peak_bps = laws.faded_peak(before.peak_bps, use_bps)
    bounded_bps = laws.clamped(loops, moved_bps, peak_bps, idle_share_bps, capacity_bps, constants.kappa)  # 4
    next_bps = np.where(fresh, rate_bps, bounded_bps)
    next_bps = np.maximum(next_bps, laws.FLOOR * capacity_bps[loops.link])
    next_bps = np.minimum(next_bps, ceiling_bps)
    allowed_bps, left_bps = entry_rates(loops, next_bps, part, constants.beta)  # 5
    state = replace(before, rate_bps=next_bps, peak_bps=peak_bps, unknown=unknown, curve=remembered)
    return Allocation(allowed_bps, left_bps, state)


def _moved(
    law: Law,
    rate_bps: FloatArray,
    before: laws.Curve,
    feedback: laws.Feedback,
    step_bps: FloatArray,
    constants: laws.CurveConstants,
) -> tuple[FloatArray, laws.Curve]:
    """Return the (loops,) new rates by the law, and the state of its curve."""
    if law is Law.PROPORTIONAL:
        return laws.proportional(rate_bps, feedback, step_bps, constants.alpha, constants.a), before
    return laws.curve(rate_bps, before, feedback, step_bps, constants, uses_marks=law is Law.DCTCP)
