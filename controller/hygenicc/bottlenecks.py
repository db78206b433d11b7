"""What holds each entry back: its receiver's limit, or a link between switches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.fabric.link_table import LinkTable
from controller.policy.interface import PolicyView

# A place with less than this part of its capacity in use cannot be where frames are marked.
LOADED = 0.90


# Choice: a link that nobody named is taken for what held an entry for so many intervals after its last mark, a second:
# its senders rise by parts of it, and not each by a part of its own port.
REMEMBERED_INTERVALS = 18.0
# Choice: a link that marks at least this part of what it carries is full all the time, and one that marks less was
# full for a moment: then it carries what it did when it was, or more.
FULL = 0.5


@dataclass(frozen=True)
class BottleneckTable:
    """Where entries may be held back, numbered: the receiving VNs, then the links, then unknown ones by switch.

    ``of`` (rows,) is the place of each entry. ``load_bps`` and ``capacity_bps`` (places,) are what is sent there and
    what it carries; infinite where nobody knows. Places from ``unknown`` on are links that nobody named.
    """

    of: IntArray
    load_bps: FloatArray
    capacity_bps: FloatArray
    unknown: int

    @property
    def of_unknown_links_bps(self) -> FloatArray:
        """What the place of each entry carries where it is a link that nobody named, (rows,); else NaN."""
        capacity_bps = self.capacity_bps[self.of]
        known = (self.of >= self.unknown) & np.isfinite(capacity_bps)
        return np.where(known, capacity_bps, np.nan)


def find_bottlenecks(
    view: PolicyView,
    links: LinkTable,
    room_bps: FloatArray,
    marked: BoolArray,
    beyond: BoolArray,
    remembered_bps: FloatArray,
) -> BottleneckTable:
    """Return the place of each entry: of its receiver and the links on its way the one with the most load.

    ``room_bps`` (links,) is what a link carries for these VLANs. An entry whose phantom meter was ``beyond`` (rows,) is
    held at its receiver. One with ``marked`` frames (rows,) is not, and if no known link is loaded, some link that
    nobody named marks: such are taken together by the receiver's switch. It carries what came out of it while it
    marked, and that is ``remembered_bps`` (rows,); NaN for entries that no such link has marked lately.
    """
    vns, number = len(view.vns), len(view.vns) + len(room_bps)
    offsets, link = links.pair_links(view.entries, view.rows)
    owner = np.repeat(np.arange(len(view.rows)), np.diff(offsets))
    known_bps = np.concatenate([view.vns.receive_limit_bps, room_bps])
    load_bps = np.zeros(number + links.switches)
    load_bps[:vns] = np.bincount(view.receiver, view.measured_bps, minlength=vns)
    load_bps[vns:number] = np.bincount(link, view.measured_bps[owner], minlength=len(room_bps))
    used = load_bps[:number] / known_bps
    core = np.ones(len(link), dtype=np.bool_)
    core[offsets[:-1]] = core[offsets[:-1] + 1] = False  # the access links
    of_core = np.where(core, used[vns + link], -1.0)
    most = np.maximum.reduceat(of_core, offsets[:-1]) if len(view.rows) else np.empty(0)
    worst = np.empty(len(view.rows), dtype=np.int64)
    at = np.flatnonzero(of_core == most[owner])[::-1]
    worst[owner[at]] = vns + link[at]
    unknown = number + links.switch[view.receiver]
    place = np.where(~beyond & (most > used[view.receiver]), worst, view.receiver)
    elsewhere = (marked | ~np.isnan(remembered_bps)) & ~beyond
    place = np.where(elsewhere, np.where(most >= LOADED, worst, unknown), place)
    load_bps[number:] = np.bincount(place, view.measured_bps, minlength=len(load_bps))[number:]
    unknown_bps = _carried_bps(view, place, remembered_bps, len(load_bps))[number:]
    return BottleneckTable(place, load_bps, np.concatenate([known_bps, unknown_bps]), number)


def _carried_bps(view: PolicyView, bottleneck: IntArray, remembered_bps: FloatArray, places: int) -> FloatArray:
    """Return (places,) what came out of each while it marked, now or as remembered; infinite where that is unknown."""
    marks = view.marks
    carried_bps = np.full(places, -np.inf)
    known = ~np.isnan(remembered_bps)
    np.maximum.at(carried_bps, bottleneck[known], remembered_bps[known])
    if marks is not None:
        sent_bps = np.bincount(view.receiver, view.measured_bps, minlength=len(view.vns))
        part = np.divide(marks.arrived_bps, sent_bps, out=np.ones(len(sent_bps)), where=sent_bps > 0)
        arrived_bps = view.measured_bps * part[view.receiver]
        now_bps = np.bincount(bottleneck, arrived_bps, minlength=places)
        marked_bps = np.bincount(bottleneck, np.nan_to_num(marks.marked_bps[view.rows]), minlength=places)
        least_bps = np.where(marked_bps >= FULL * now_bps, 0.0, carried_bps)
        carried_bps = np.where(marked_bps > 0, np.maximum(now_bps, least_bps), carried_bps)
    return np.where(carried_bps > 0, carried_bps, np.inf)
