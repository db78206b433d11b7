"""The bandwidth allocators of all entities: what each loop allows, and what each entry may send (section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from controller.allocation.interface import FULL_USE, BoolArray, FloatArray
from controller.seawall import laws
from controller.seawall.loops import Loops, entry_rates, shares


class Law(Enum):
    """How loops answer to their links."""

    PROPORTIONAL = "proportional"  # the default: marks that the controller computes
    CUBIC = "cubic"  # losses only
    DCTCP = "dctcp"  # losses and marks


@dataclass(frozen=True, slots=True)
class RateLoopState:
    """What loops keep from one interval to the next; NaN in new ones.

    ``rate_bps``, ``peak_bps`` what was used at most lately, ``unknown`` for how many intervals feedback was missing,
    (loops,) each; ``curve`` is what Class 3 remembers.
    """

    rate_bps: FloatArray
    peak_bps: FloatArray
    unknown: FloatArray
    curve: laws.Curve

    @classmethod
    def new(cls, loops: int) -> RateLoopState:
        """Return loops of which nothing is known."""
        nan = np.full(loops, np.nan)
        return cls(nan, nan, nan, laws.Curve.initial(loops))


@dataclass(frozen=True, slots=True)
class LoopConstants:
    """The constants of the laws, (loops,) each; those of the curve are used by ``cubic`` and ``dctcp`` alone."""

    beta: FloatArray
    kappa: FloatArray
    curve: laws.CurveConstants


@dataclass(frozen=True, slots=True)
class PairTraffic:
    """What the entries of the loops do: (entries,) each.

    ``passed_bps`` is what passed their meters in the last interval, ``backlogged`` whether their meters dropped any,
    ``active`` whether they have traffic.
    """

    passed_bps: FloatArray
    backlogged: BoolArray
    active: BoolArray


@dataclass(frozen=True, slots=True)
class Allocation:
    """What was decided.

    ``rate_bps`` (entries,) is what each entry may send, ``left_bps`` (uses,) what each link on its way leaves it.
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
    standing_bps: FloatArray,
    weight: FloatArray,
    ceiling_bps: FloatArray,
    capacity_bps: FloatArray,
    constants: LoopConstants,
) -> Allocation:
    """Return what the entries may send from now on.

    ``lost`` and ``marked`` (uses,) are the feedback, NaN where it is unknown; ``baseline_limits_bps`` (loops,) are the
    entities' shares of their links (laws.idle_shares), ``weight`` (loops,) their weights, ``ceiling_bps`` (loops,)
    is what an entity may send at most, ``capacity_bps`` (links,) what the links have for all.

    1. The part of each destination (section 4.3, 1), and with it the feedback of each loop (2).
    2. What each loop may rise by (see laws.steps).
    3. The law.
    4. Within what the loop uses, and new loops at their standing shares.
    5. Each loop's rate divided among its destinations; an entry has the least on its way (3).
    """
    part = shares(loops, traffic.passed_bps, traffic.active)  # 1
    feedback = laws.Feedback.from_uses(loops, part, lost, marked)
    use_bps = loops.sum_of_entries(traffic.passed_bps)
    active = loops.sum_of_entries(traffic.active) > 0
    rate_bps = laws.first_rates(loops, before.rate_bps, standing_bps, capacity_bps)
    fresh = np.isnan(before.rate_bps)
    backlogged = active & ((use_bps >= FULL_USE * rate_bps) | (loops.sum_of_entries(traffic.backlogged) > 0))
    step_bps = laws.steps(loops, use_bps, backlogged, weight, capacity_bps)  # 2
    missing = (feedback.unknown > 0.0) & (use_bps > 0.0)
    unknown = np.where(missing, np.nan_to_num(before.unknown) + 1.0, 0.0)
    curve = constants.curve
    moved_bps, remembered = _moved(law, rate_bps, before.curve, feedback, step_bps, curve)  # 3
    moved_bps = moved_bps * laws.without_feedback(curve.alpha, np.where(missing, feedback.unknown, 0.0), unknown)
    peak_bps = laws.faded_peak(before.peak_bps, use_bps)
    bounded_bps = laws.clamped(loops, moved_bps, peak_bps, standing_bps, capacity_bps, constants.kappa)  # 4
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
    if law is Law.PROPORTIONAL:
        return laws.proportional(rate_bps, feedback, step_bps, constants.alpha, constants.a), before
    return laws.curve(rate_bps, before, feedback, step_bps, constants, uses_marks=law is Law.DCTCP)
