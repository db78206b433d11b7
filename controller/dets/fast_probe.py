"""RAA-FP: slow probe, followed by transfers from senders with high rates to senders with low rates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from controller.allocation import native
from controller.allocation.interface import (
    AllocationInput,
    BoolArray,
    FloatArray,
    IntArray,
    State,
    fully_used_mask,
)
from controller.allocation.parameters import parameter
from controller.allocation.segments import Segments, fill_level
from controller.dets.slow_probe import SlowProbe, keep_settled, slow_probe

# Repeated averaging of pairs never ends: differences below this part of the mean are removed at once.
EQUAL_WITHIN = 0.01


@dataclass(frozen=True)
class FastProbe(SlowProbe):
    """The fast probe algorithm, RAA-FP (section III.A, Algorithm 2).

    1. Execute the slow probe algorithm.
    2. Sort all nodes that fully use their allocated rate by the rate granted now, and calculate the mean of these.
    3. Take the node with the highest rate above the mean (upper) and the one with the lowest below it (lower): a.
       multiply the rate of the lower by d, within its sending capacity, and deduct the increase from the upper; b. if
       that brings the upper below the mean, give both the average of their two rates. Go on with the next highest and
       the next lowest.

    Choice: Algorithm 2 nests its loops, so that one upper node raises several lower ones; the text pairs ("repeated on
    the next two nodes with the next highest and lowest until all get revised"). Here the k-th highest is paired with
    the k-th lowest; then the uppers still above the mean are paired with the lowers not yet raised, in the same order,
    until one side is empty. So every lower is raised once if any upper can give. With the pairs of the text alone, nine
    senders that join one need 49 intervals to come within 5 %; with these pairs, 9. Equal rates are in the order of the
    pair table. Choice: in 3b, if the lower lacks sending capacity for the average, the upper keeps the difference.
    Choice: weighted by comparing, and averaging, rates divided by weights. Deviation: the mean counts each node with at
    most its sending capacity, and shares the remainder among the other nodes (with enough capacity everywhere it is the
    paper's mean). With the plain mean, senders with a small capacity pull the mean below all others; no node is then
    "below the mean" and able to rise, and the others never become equal. Deviation: when all are within 1 % of the
    mean, they get the mean. Averages of pairs approach the mean without reaching it, and each step would modify every
    meter; with this rule the shares become equal after some intervals.

    The default of ``d`` is that of the paper's measurements (section IV); section III.A asks for d > 1.
    """

    d: float = parameter(
        2.0,
        "factor by which the lowest rates are raised; a larger one is fair sooner, and wastes more on "
        "senders that need no more",
        above=1.0,
        maximum=1000.0,
    )

    name: ClassVar[str] = "fp"
    title: ClassVar[str] = "Fast Probe (RAA-FP)"

    @cached_property
    def _compiled(self) -> FloatArray:
        return native.column(self.inflation, self.floor, self.headroom, self.d)

    def allocate(self, requests: AllocationInput, state: State) -> tuple[FloatArray, State]:
        """Return grants (pairs,) in bits per second and the next state."""
        compiled = native.probe(requests, self._compiled)
        if compiled is not None:
            return compiled, state
        groups = Segments(requests.offsets)
        full = fully_used_mask(requests)
        grants_bps = slow_probe(requests, groups, full, self.inflation, self.floor, self.headroom)  # 1
        _reallocate(requests, groups, full, grants_bps, self.d)
        return keep_settled(requests, groups, grants_bps), state


def _reallocate(requests: AllocationInput, groups: Segments, full: BoolArray, grants_bps: FloatArray, d: float) -> None:
    """Do steps 2 and 3 of the algorithm: change ``grants_bps`` (pairs,) of pairs in ``full`` (pairs,) in place."""
    shared_bps = groups.sum(np.where(full, grants_bps, 0.0))
    room_bps = np.where(full, requests.available_bps, 0.0)
    mean_bps = fill_level(groups, shared_bps, requests.weight, room_bps)  # 2, per unit of weight
    target_bps = np.minimum(groups.broadcast(mean_bps) * requests.weight, room_bps)
    differs = np.abs(grants_bps - target_bps) > EQUAL_WITHIN * target_bps
    differs &= full
    unequal = groups.broadcast(groups.sum(differs)) > 0
    nearly_equal = full & ~unequal
    grants_bps[nearly_equal] = target_bps[nearly_equal]

    weight = requests.weight
    upper, lower = _sides(groups, np.flatnonzero(full & unequal), grants_bps, target_bps, weight)
    high, low, lower = _paired(groups, upper, lower)
    while len(high):  # 3: all pairs of a (high, low) at once; the lowers without a partner wait for the next round
        high_bps, low_bps = grants_bps[high], grants_bps[low]
        both_bps = high_bps + low_bps
        raised_bps = np.minimum(low_bps * d, room_bps[low])
        average_bps = np.minimum(both_bps * (weight[low] / (weight[low] + weight[high])), room_bps[low])
        new_low_bps = np.where(both_bps - raised_bps < target_bps[high], average_bps, raised_bps)  # 3a, 3b
        grants_bps[low] = new_low_bps
        grants_bps[high] = np.minimum(both_bps - new_low_bps, room_bps[high])
        upper = upper[grants_bps[upper] > target_bps[upper]]
        high, low, lower = _paired(groups, upper, lower)


def _sides(
    groups: Segments, rows: IntArray, grants_bps: FloatArray, target_bps: FloatArray, weight: FloatArray
) -> tuple[IntArray, IntArray]:
    """Return the rows above the mean, by group and highest first, and the rows below it, by group and lowest first."""
    group, rate = groups.index()[rows], grants_bps[rows] / weight[rows]
    above, below = grants_bps[rows] > target_bps[rows], grants_bps[rows] < target_bps[rows]
    upper, lower = rows[above], rows[below]
    return upper[np.lexsort((-rate[above], group[above]))], lower[np.lexsort((rate[below], group[below]))]


def _paired(groups: Segments, upper: IntArray, lower: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the k-th upper and the k-th lower of each group, as two aligned columns, and the lowers without a partner.

    ``upper`` and ``lower`` are rows by group, and within a group in the order in which they get partners.
    """
    upper_group, upper_rank, upper_count = _ranks(groups, upper)
    lower_group, lower_rank, lower_count = _ranks(groups, lower)
    pair_count = np.minimum(upper_count, lower_count)
    has_partner = lower_rank < pair_count[lower_group]
    return upper[upper_rank < pair_count[upper_group]], lower[has_partner], lower[~has_partner]


def _ranks(groups: Segments, rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the group of each row, the row's rank in the group from 0, and the number of rows per group, (groups,)."""
    group = np.searchsorted(groups.offsets, rows, side="right") - 1
    count = np.bincount(group, minlength=len(groups))
    first_position = np.cumsum(count) - count
    return group, np.arange(len(rows)) - first_position[group], count
