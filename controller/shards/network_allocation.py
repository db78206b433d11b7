"""Network-wide policies: one shard, the allocator, decides for all VNs under them.

It receives the Traffic Reports of all their senders, and sends the grants, as a receivers' shard does for its own VNs.
It also needs:

- the cross traffic on links: each shard reports that of its receivers (``LinkUseMessage``), an interval late.
- the link use of unresponsive shards' senders: it is subtracted from the capacity, as from receive limits.
- readings of queues and ports (``readings_exchange``), if a policy uses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.dets.rate_allocator import IntervalContext
from controller.fabric.link_table import LinkTable
from controller.fabric.pair_table import NO_METER, PairTable
from controller.fabric.vn_table import VnTable
from controller.metering.enforcement import RATE_STEP_BPS
from controller.node_protocol.message_types import LinkUseMessage
from controller.policy.cross_traffic import cross_traffic_load
from controller.policy.policy_groups import PolicyGroup
from controller.policy.shardability import is_network_wide


def network_wide_mask(groups: Iterable[PolicyGroup], vns: int) -> BoolArray:
    """Return the mask of the VNs for which one shard decides, (vns,)."""
    wide = np.zeros(vns, dtype=np.bool_)
    for group in groups:
        if is_network_wide(group.policy):
            wide[group.vns] = True
    return wide


def link_usage(
    wide: BoolArray, entries: PairTable, vns: VnTable, links: LinkTable, left: LinkTable, context: IntervalContext
) -> LinkUseMessage:
    """Return the link use by the senders of VNs that are not in the mask ``wide`` (vns,).

    ``context`` has the columns of pairs. ``left`` are the ``links`` less the use by unresponsive shards' senders, which
    are not among the pairs.
    """
    used = cross_traffic_load(wide, entries, vns, links, context.used_bps, context.limit_bps)
    cross_traffic_bps, within_bps = (bps + (links.capacity_bps - left.capacity_bps) for bps in used)
    link = np.flatnonzero(cross_traffic_bps)
    return LinkUseMessage(link, cross_traffic_bps[link], within_bps[link])


def sum_link_usage(uses: Iterable[LinkUseMessage], links: int) -> tuple[FloatArray, FloatArray]:
    """Return several shards' cross traffic on each link, and its guaranteed part, summed, (links,) each."""
    cross_traffic_bps, within_bps = np.zeros(links), np.zeros(links)
    for use in uses:
        cross_traffic_bps[use.link] += use.cross_traffic_bps
        within_bps[use.link] += use.cross_guaranteed_bps
    return cross_traffic_bps, within_bps


def remaining_links(links: LinkTable, sender: IntArray, receiver: IntArray, rate_bps: FloatArray) -> LinkTable:
    """Return the links with their capacity reduced by what these pairs may send."""
    if not rate_bps.any():
        return links
    entries = PairTable(sender, receiver, np.full(len(sender), NO_METER))
    offsets, link = links.pair_links(entries, np.arange(len(sender)))
    reserved_bps = np.bincount(link, np.repeat(rate_bps, np.diff(offsets)), minlength=len(links.capacity_bps))
    return replace(links, capacity_bps=np.maximum(links.capacity_bps - reserved_bps, RATE_STEP_BPS))
