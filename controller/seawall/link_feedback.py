"""Feedback of links: load, computed marks, and losses, from the counters of meters, ports and queues.

The paper's receiving ends count gaps in sequence numbers and ECN marks. A switch's meter is before the queues and sees
neither. So load and loss are measured where they happen, per link, and assigned to every pair that uses the link in
proportion to its traffic, as in a queue that serves frames in the order of their arrival.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation.interface import FloatArray, IntArray
from controller.seawall.loops import Loops

# Choice: the buffer of a link, above which bits count as lost: 30 ms of queue, plus SKEW_S for the clocks of the
# switches, whose counters are not read at one time.
SKEW_S = 0.003
BUFFER_S = 0.030 + SKEW_S
# A link with a load below this has an empty buffer.
BUSY_ABOVE = 0.9
# Traffic of no pair (floods, VLANs without pairs) is a mean over this many intervals.
FOREIGN_INTERVALS = 4
# Below 0 it is the skew of two clocks, at most 4 ms of an interval; more is an overload, and no evidence of foreign
# traffic.
MAX_SKEW = 0.08


@dataclass(frozen=True, slots=True)
class LinkBacklog:
    """The state of the links after an interval, (links,) each.

    ``queued_bits`` arrived and were not transmitted yet. ``foreign_bps`` was transmitted and belongs to no pair;
    differing clocks move it to both sides of 0. ``lost`` is the share that was lost in the last interval (NaN:
    unknown).
    """

    queued_bits: FloatArray
    foreign_bps: FloatArray
    lost: FloatArray

    @classmethod
    def empty(cls, links: int) -> LinkBacklog:
        """Return the state before any traffic."""
        return cls(np.zeros(links), np.zeros(links), np.zeros(links))

    def updated(
        self, load_bps: FloatArray, transmitted_bps: FloatArray, capacity_bps: FloatArray, elapsed_s: float
    ) -> LinkBacklog:
        """Return the state after an interval of ``elapsed_s``; all columns are (links,).

        ``load_bps`` is what pairs sent over a link, ``transmitted_bps`` what the link's port sent (NaN: unknown; then
        the state stays, and the loss is unknown). Load that was not transmitted waits in the buffer; what exceeds the
        buffer was lost. Transmitted bits that were neither in the load nor in the buffer belong to no pair.
        """
        known = ~np.isnan(transmitted_bps)
        sent_bps = np.where(known, transmitted_bps, 0.0)
        came_bps = load_bps + np.maximum(self.foreign_bps, 0.0)  # all that came, with the traffic of no pair
        buffer_bits = BUFFER_S * capacity_bps
        queued_bits = self.queued_bits + (came_bps - sent_bps) * elapsed_s
        lost_bits = np.maximum(queued_bits - buffer_bits, 0.0)
        came_bits = came_bps * elapsed_s
        share = np.divide(lost_bits, came_bits, out=np.zeros(len(load_bps)), where=came_bits > 0)
        kept_bits = np.where(sent_bps < BUSY_ABOVE * capacity_bps, 0.0, np.clip(queued_bits, 0.0, buffer_bits))
        # What the link sent in this interval beyond the load and the queued bits, as a rate.
        foreign_mean_bps = np.maximum(sent_bps - load_bps - self.queued_bits / elapsed_s, -MAX_SKEW * capacity_bps)
        foreign_bps = self.foreign_bps + (foreign_mean_bps - self.foreign_bps) / FOREIGN_INTERVALS
        return LinkBacklog(
            np.where(known, kept_bits, self.queued_bits),
            np.where(known, foreign_bps, self.foreign_bps),
            np.where(known, np.where(sent_bps < BUSY_ABOVE * capacity_bps, 0.0, np.minimum(share, 1.0)), np.nan),
        )


def link_loads(loops: Loops, passed_bps: FloatArray, lost: FloatArray) -> FloatArray:
    """Return (links,) the pairs' load on each link, from the rates that passed their meters (``arriving_rates``)."""
    arriving_bps = arriving_rates(loops, passed_bps, lost)
    return np.bincount(loops.use_link, arriving_bps, minlength=len(lost)).astype(np.float64)


def arriving_rates(loops: Loops, rate_bps: FloatArray, lost: FloatArray) -> FloatArray:
    """Return (uses,) the part of each pair's rate that arrives at each link of its path, less losses before it.

    ``rate_bps`` (pairs,), ``lost`` (links,) the share that each link loses, NaN for none known. The uses of each pair
    are in path order.
    """
    arriving_bps, survives = loops.at_uses(rate_bps), 1.0 - np.nan_to_num(lost)
    if (survives < 1.0).any():  # usually nothing is lost anywhere
        arriving_bps = arriving_bps * upstream_product(survives[loops.use_link], loops.offsets)
    return arriving_bps


def upstream_product(factor: FloatArray, offsets: IntArray) -> FloatArray:
    """Return (uses,) the product of the factors of all earlier uses of the same pair; 1 at its first."""
    product = np.ones(len(factor))
    sizes = np.diff(offsets)
    for place in range(1, int(sizes.max(initial=0))):  # as many rounds as the longest path has links
        at = offsets[:-1][sizes > place] + place
        product[at] = product[at - 1] * factor[at - 1]
    return product


def marked_shares(
    load_bps: FloatArray, capacity_bps: FloatArray, alpha: FloatArray, a: FloatArray, target: FloatArray
) -> FloatArray:
    """Return the marked share of traffic, which is the share above a threshold; all columns have one shape.

    Choice: a proportional law is in equilibrium where its decrease equals its increase, at a marked share of a / (alpha
    + a). With a threshold at ``target * alpha / (alpha + a)`` of the capacity, the link then carries ``target`` of it:
    so its buffer is empty, and nothing is lost. The paper's marks need switches that set them.
    """
    threshold_bps = target * alpha / (alpha + a) * capacity_bps
    excess_bps = np.maximum(load_bps - threshold_bps, 0.0)
    result: FloatArray = np.divide(excess_bps, load_bps, out=np.zeros(len(load_bps)), where=load_bps > 0)
    return result


def along_paths(loops: Loops, share: FloatArray) -> FloatArray:
    """Return (uses,) the combined share along each pair's path, from the share of each use: ``1 - prod(1 - share)``.

    NaN on one link makes the whole path unknown.
    """
    next_state = np.ones(loops.entries)  # the share of each pair that no link of its path takes, (pairs,)
    used = loops.sizes > 0
    if used.any():
        next_state[used] = np.multiply.reduceat(1.0 - share, loops.offsets[:-1][used])
    return loops.at_uses(1.0 - next_state)
