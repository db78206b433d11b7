"""The load, losses and marks of a view's links: the readings of one interval, and the stored state of links."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation.interface import FULL_USE
from controller.columns import BoolArray, FloatArray, IntArray
from controller.errors import InvalidValueError
from controller.fabric.link_table import LinkTable
from controller.policy.interface import PolicyView
from controller.policy.policy_state import PolicyState
from controller.seawall.link_feedback import SKEW_S, LinkBacklog, arriving_rates, link_loads
from controller.seawall.loops import Loops
from controller.units import MIN_RATE_BPS

# More than rounding: above this multiple of what is used, what passed is saved bursts.
ABOVE_USE = 1.0 + 1e-6


@dataclass(frozen=True)
class PathLoops:
    """The loops of the pairs to decide on, and of all other pairs of the table: they change with pairs or links.

    ``up`` (links,) marks the links from hosts.
    """

    links: LinkTable
    loops: Loops
    other_loops: Loops
    other_rows: IntArray
    up: BoolArray

    @classmethod
    def from_view(cls, view: PolicyView, memory: PolicyState, name: str) -> PathLoops:
        """Return the path loops; usually they are cached from the previous interval.

        Raises InvalidValueError without links, whose capacity the policy ``name`` shares.
        """
        if view.links is None or view.cross_traffic_bps is None:
            raise InvalidValueError("links", view.links, f"are needed: {name} shares out all of them")
        known = memory.derived
        if isinstance(known, PathLoops) and known.links is view.links:
            return known
        is_other = np.ones(len(view.entries), dtype=np.bool_)
        is_other[view.rows] = False
        other_rows = np.flatnonzero(is_other)
        up = np.zeros(len(view.links.names), dtype=np.bool_)
        up[view.links.up] = True
        return cls(view.links, _loops(view, view.rows), _loops(view, other_rows), other_rows, up)


@dataclass(frozen=True)
class LinkState:
    """The links in one interval.

    ``used_bps`` (rows,) is the pairs' use. ``capacity_bps`` is the links' capacity for them, ``load_bps`` their load
    plus traffic of no pair; ``ledger`` is the backlog; ``takes_bursts`` marks links over which more passed than is
    used, since pairs send saved bursts; (links,) each. ``lost`` (uses,) is the share that is lost at each use.
    """

    used_bps: FloatArray
    capacity_bps: FloatArray
    load_bps: FloatArray
    ledger: LinkBacklog
    takes_bursts: BoolArray
    lost: FloatArray

    @classmethod
    def from_view(cls, view: PolicyView, memory: PolicyState, path_loops: PathLoops) -> LinkState:
        """Return the link state from the readings.

        1. The load of the pairs on each link, and the load of other VLANs.
        2. The transmitted part of it, and the loss. On links from hosts a meter's own drops are neither loss nor
           foreign load: these links carry what passed the meters.
        3. Where the receiving queue counts its drops, these are the loss.
        4. The rates that control the law (``used_pair_rates``), and the load from them (``used_link_rates``).
        """
        assert view.links is not None
        assert view.cross_traffic_bps is not None
        links = len(view.links.names)
        queued_bits, foreign_bps = (np.nan_to_num(memory.link_column(name)) for name in ("queued_bits", "foreign_bps"))
        before = LinkBacklog(queued_bits, foreign_bps, memory.link_column("lost"))
        passed_bps = link_loads(path_loops.loops, view.passed_bps[view.rows], before.lost)  # 1
        other_bps = link_loads(path_loops.other_loops, view.passed_bps[path_loops.other_rows], before.lost)
        came_bps = passed_bps + other_bps
        transmitted_bps = view.ports.transmitted_bps if view.ports is not None else np.full(links, np.nan)
        transmitted_bps = np.where(path_loops.up, came_bps, transmitted_bps)  # 2
        ledger = before
        if view.elapsed_s > 0.0:
            ledger = before.updated(came_bps, transmitted_bps, view.links.capacity_bps, view.elapsed_s)
        held_bps = held_pair_rates(view)
        used_bps = used_pair_rates(view, held_bps)  # 4
        load_bps = used_link_rates(path_loops.loops, used_bps, view.passed_bps[view.rows], held_bps, before.lost)
        return cls(
            used_bps,
            np.maximum(view.links.capacity_bps - view.cross_traffic_bps, MIN_RATE_BPS),
            load_bps + np.maximum(ledger.foreign_bps, 0.0),
            ledger,
            passed_bps > ABOVE_USE * load_bps,
            _lost(view, path_loops.loops, ledger.lost),  # 3
        )

    def marked_load_bps(self, elapsed_s: float) -> FloatArray:
        """Return (links,) the load from which marks are computed: arrivals, plus the backlog to be sent in an interval.

        Choice: without the backlog a queue of 5 ms would drain through the 2 % that the law leaves, for 250 ms. A
        backlog within the difference of the switches' clocks counts as none. Nor does the backlog of saved bursts
        count: lower rates would not end the bursts, and would hit all other senders. On Open vSwitch at 50 Mb/s, one
        TCP flow got 70 % of its share next to UDP.
        """
        if elapsed_s <= 0.0:
            return self.load_bps
        waiting_bits = np.maximum(self.ledger.queued_bits - SKEW_S * self.capacity_bps, 0.0)
        return self.load_bps + np.where(self.takes_bursts, 0.0, waiting_bits) / elapsed_s

    def columns(self) -> dict[str, FloatArray]:
        """Return the columns of links to store."""
        ledger = self.ledger
        return {"queued_bits": ledger.queued_bits, "foreign_bps": ledger.foreign_bps, "lost": ledger.lost}


def held_pair_rates(view: PolicyView) -> FloatArray:
    """Return the limit of each pair, (rows,); its passed rate where it has none."""
    return np.where(np.isfinite(view.limit_bps), view.limit_bps, view.passed_bps[view.rows])


def used_pair_rates(view: PolicyView, held_bps: FloatArray) -> FloatArray:
    """Return the use of each pair, (rows,): its passed rate, or its full limit where the meter limits it.

    Choice: meters follow grants within a deadband, some intervals late (docs/enforcement.md). A law controlled by the
    passed rate would oscillate with them: alone on a link, a sender got 93 % of it instead of 98.
    """
    full = view.drops | (view.measured_bps >= FULL_USE * view.limit_bps)
    return np.where(full, held_bps, np.minimum(view.passed_bps[view.rows], held_bps))


def used_link_rates(
    loops: Loops, used_bps: FloatArray, passed_bps: FloatArray, held_bps: FloatArray, lost: FloatArray
) -> FloatArray:
    """Return (links,) the sum of the loops' uses of each link.

    A loop uses what its pairs use; where more passed it is that, up to the sum of its pairs' limits. ``used_bps``,
    ``passed_bps`` and ``held_bps`` are (rows,), ``lost`` (links,).

    Choice: the flows of one sender take turns. While one is above its new limit, whose meter is late, another is below.
    The pairs' uses alone miss the part above: on Open vSwitch, 40.2 Mb/s of eight TCP flows counted as 37.2, and their
    loop kept 80 % of a link next to one flow (figure 10).
    """
    used, passed, held = (loops.sum(arriving_rates(loops, rate, lost)) for rate in (used_bps, passed_bps, held_bps))
    return loops.sum_of_loops(np.maximum(used, np.minimum(passed, held)), len(lost))


def _loops(view: PolicyView, rows: IntArray) -> Loops:
    """Return the loops of the pairs of ``rows``, with the links of each pair in path order."""
    assert view.links is not None
    offsets, link = view.links.pair_links(view.entries, rows)
    return Loops.build(view.entries.sender[rows], offsets, in_path_order(offsets, link), len(view.links.names))


def in_path_order(offsets: IntArray, link: IntArray) -> IntArray:
    """Return the links of each pair in the order of a frame's path; ``LinkTable`` lists both access links first."""
    sizes = np.diff(offsets)
    index_in_path = np.arange(len(link)) - np.repeat(offsets[:-1], sizes)
    is_last = index_in_path == np.repeat(sizes, sizes) - 1
    # Core links move forward by one, and the receiver's access link, the second of a pair, becomes the last.
    source = np.arange(len(link)) + ((index_in_path > 0) & ~is_last)
    source[is_last] = offsets[:-1][sizes > 0] + np.minimum(1, sizes[sizes > 0] - 1)
    ordered: IntArray = link[source]
    return ordered


def _lost(view: PolicyView, loops: Loops, of_links: FloatArray) -> FloatArray:
    """Return the share that is lost at each use, (uses,).

    ``of_links`` (links,) is the share lost at each link. Where the receiving queue counts its drops, the share that the
    queue dropped is the loss of a path's last link.
    """
    lost = of_links[loops.use_link]
    if view.queues is None or not loops.entries:
        return lost
    arrived_bps = view.queues.served_bps + view.queues.dropped_bps
    queue_lost = np.divide(view.queues.dropped_bps, arrived_bps, out=np.zeros(len(arrived_bps)), where=arrived_bps > 0)
    queue_lost = np.where(view.queues.known, queue_lost, np.nan)[view.receiver]
    last_use = loops.offsets[1:] - 1
    lost[last_use] = np.where(np.isnan(queue_lost), lost[last_use], queue_lost)
    return lost
