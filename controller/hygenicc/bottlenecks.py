"""The bottleneck of each pair: its receiver's limit, or a link between switches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.fabric.link_table import LinkTable
from controller.policy.interface import PolicyView

# A bottleneck with less than this part of its capacity in use cannot mark frames.
LOADED = 0.90


# Choice: an unnamed link counts as a pair's bottleneck for this many intervals (a second) after the pair's last mark:
# the link's senders rise by parts of the link, not each by a part of its own port.
REMEMBERED_INTERVALS = 18.0
# Choice: a link that marks at least this part of its traffic is full all the time; one that marks less was full for a
# moment, and its capacity is at least its rate at that time.
FULL = 0.5


@dataclass(frozen=True)
class BottleneckTable:
    """Possible bottlenecks, numbered: the receiving VNs, then the links, then an unnamed link for each switch.

    ``bottleneck`` (rows,) is the number of each pair's bottleneck. ``load_bps`` and ``capacity_bps`` (bottlenecks,) are
    the load and the capacity of each; an unknown capacity is infinite. Bottlenecks from number ``unknown`` on are
    unnamed links: links that the configuration does not name.
    """

    bottleneck: IntArray
    load_bps: FloatArray
    capacity_bps: FloatArray
    unknown: int

    @property
    def unknown_link_capacity_bps(self) -> FloatArray:
        """Return the capacity of each pair's bottleneck where that is an unnamed link, (rows,); NaN for other pairs."""
        capacity_bps = self.capacity_bps[self.bottleneck]
        known = (self.bottleneck >= self.unknown) & np.isfinite(capacity_bps)
        return np.where(known, capacity_bps, np.nan)


def find_bottlenecks(
    view: PolicyView,
    links: LinkTable,
    room_bps: FloatArray,
    marked: BoolArray,
    beyond: BoolArray,
    remembered_bps: FloatArray,
) -> BottleneckTable:
    """Return the bottleneck of each pair: its receiver, or a link between switches on its path.

    ``room_bps`` (links,) is a link's capacity for these VLANs. Three rules, by descending precedence:

    1. A pair with excess at its receiver's phantom meter (``beyond``, (rows,)) has its receiver as bottleneck.
    2. A pair with ``marked`` frames (rows,), now or lately, has a link: the most used one if that is LOADED, otherwise
       an unnamed link. There is one unnamed link for each receiver's switch.
    3. Any other pair has the more used one of its receiver and the most used link.

    The capacity of an unnamed link is the rate that it passed while it marked (``_carried_bps``). ``remembered_bps``
    (rows,) is that of the pair's unnamed link in earlier intervals; NaN for pairs without such a link lately.
    """
    # A use is one link of one pair: ``link``, ``owner`` (its pair) and ``core_use`` are (uses,). There are ``number``
    # bottlenecks before the unnamed links.
    vns, number = len(view.vns), len(view.vns) + len(room_bps)
    offsets, link = links.pair_links(view.entries, view.rows)
    owner = np.repeat(np.arange(len(view.rows)), np.diff(offsets))
    known_bps = np.concatenate([view.vns.receive_limit_bps, room_bps])
    load_bps = np.zeros(number + links.switches)
    load_bps[:vns] = np.bincount(view.receiver, view.measured_bps, minlength=vns)
    load_bps[vns:number] = np.bincount(link, view.measured_bps[owner], minlength=len(room_bps))
    use = load_bps[:number] / known_bps
    core = np.ones(len(link), dtype=np.bool_)
    core[offsets[:-1]] = core[offsets[:-1] + 1] = False  # the first two links of each pair are its access links
    core_use = np.where(core, use[vns + link], -1.0)
    highest_use = np.maximum.reduceat(core_use, offsets[:-1]) if len(view.rows) else np.empty(0)
    highest_link = np.empty(len(view.rows), dtype=np.int64)
    # Of equally used links of a pair the first one counts: it is assigned last.
    uses = np.flatnonzero(core_use == highest_use[owner])[::-1]
    highest_link[owner[uses]] = vns + link[uses]
    unknown = number + links.switch[view.receiver]
    # 3 and 1, then 2.
    bottleneck = np.where(~beyond & (highest_use > use[view.receiver]), highest_link, view.receiver)
    marked_by_link = (marked | ~np.isnan(remembered_bps)) & ~beyond
    bottleneck = np.where(marked_by_link, np.where(highest_use >= LOADED, highest_link, unknown), bottleneck)
    load_bps[number:] = np.bincount(bottleneck, view.measured_bps, minlength=len(load_bps))[number:]
    unknown_bps = _carried_bps(view, bottleneck, remembered_bps, len(load_bps))[number:]
    return BottleneckTable(bottleneck, load_bps, np.concatenate([known_bps, unknown_bps]), number)


def _carried_bps(view: PolicyView, bottleneck: IntArray, remembered_bps: FloatArray, bottlenecks: int) -> FloatArray:
    """Return (bottlenecks,) the rate that each passed while it marked, now or as remembered; infinite where unknown.

    The rate of a bottleneck that marks now is its rate in this interval, and not less than the remembered one unless
    the marked part of its traffic is FULL.
    """
    marks = view.marks
    carried_bps = np.full(bottlenecks, -np.inf)
    known = ~np.isnan(remembered_bps)
    np.maximum.at(carried_bps, bottleneck[known], remembered_bps[known])
    if marks is not None:
        sent_bps = np.bincount(view.receiver, view.measured_bps, minlength=len(view.vns))
        # The part of each receiving VN's traffic that arrived; the same part is assumed of each of its pairs.
        part = np.divide(marks.arrived_bps, sent_bps, out=np.ones(len(sent_bps)), where=sent_bps > 0)
        arrived_bps = view.measured_bps * part[view.receiver]
        now_bps = np.bincount(bottleneck, arrived_bps, minlength=bottlenecks)
        marked_bps = np.bincount(bottleneck, np.nan_to_num(marks.marked_bps[view.rows]), minlength=bottlenecks)
        least_bps = np.where(marked_bps >= FULL * now_bps, 0.0, carried_bps)
        carried_bps = np.where(marked_bps > 0, np.maximum(now_bps, least_bps), carried_bps)
    return np.where(carried_bps > 0, carried_bps, np.inf)
