"""What holds each entry back: its receiver's limit, or a link between switches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.fabric.links import FabricLinks
from controller.policy.interface import PolicyView

# A place with less than this part of its capacity in use cannot be where frames are marked.
LOADED = 0.90


@dataclass(frozen=True)
class Places:
    """Where entries may be held back, numbered: the receiving VNs, then the links, then unknown ones by switch.

    ``of`` (rows,) is the place of each entry. ``load_bps`` and ``capacity_bps`` (places,) are what is sent there and
    what it carries; infinite where nobody knows.
    """

    of: IntArray
    load_bps: FloatArray
    capacity_bps: FloatArray


def find_places(
    view: PolicyView, links: FabricLinks, room_bps: FloatArray, marked: BoolArray, beyond: BoolArray
) -> Places:
    """Return the place of each entry: of its receiver and the links on its way the one with the most load.

    ``room_bps`` (links,) is what a link carries for these VLANs. An entry whose phantom meter was ``beyond`` (rows,) is
    held at its receiver. One with ``marked`` frames (rows,) is not, and if no known link is loaded, some link that
    nobody named marks: such are taken together by the receiver's switch.
    """
    vns, number = len(view.vns), len(view.vns) + len(room_bps)
    offsets, link = links.of_entries(view.entries, view.rows)
    owner = np.repeat(np.arange(len(view.rows)), np.diff(offsets))
    capacity_bps = np.concatenate([view.vns.receive_limit_bps, room_bps, np.full(links.switches, np.inf)])
    load_bps = np.zeros(len(capacity_bps))
    load_bps[:vns] = np.bincount(view.receiver, view.measured_bps, minlength=vns)
    load_bps[vns:number] = np.bincount(link, view.measured_bps[owner], minlength=len(room_bps))
    unknown = number + links.switch[view.receiver]
    load_bps[number:] = np.bincount(links.switch[view.receiver], view.measured_bps, minlength=links.switches)
    used = load_bps / capacity_bps
    core = np.ones(len(link), dtype=np.bool_)
    core[offsets[:-1]] = core[offsets[:-1] + 1] = False  # the access links
    of_core = np.where(core, used[vns + link], -1.0)
    most = np.maximum.reduceat(of_core, offsets[:-1]) if len(view.rows) else np.empty(0)
    worst = np.empty(len(view.rows), dtype=np.int64)
    at = np.flatnonzero(of_core == most[owner])[::-1]
    worst[owner[at]] = vns + link[at]
    place = np.where(~beyond & (most > used[view.receiver]), worst, view.receiver)
    place = np.where(marked & ~beyond, np.where(most >= LOADED, worst, unknown), place)
    return Places(place, load_bps, capacity_bps)
