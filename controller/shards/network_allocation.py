"""Policies that see more than a receiver's senders: one shard, the allocator, decides for all VNs under them.

It is sent the Traffic Reports of all of their senders, and gives the Grants, as a receivers' shard does for its own
VNs. What it has to know besides:

- what VLANs under other policies use of links: each shard says that of its receivers (``LinkUseMessage``), an
interval late.
- what silent shards' senders may use of links: it is taken off their capacity, as it is taken off receive limits.
- what is read of queues and ports (``readings``), where a policy decides by it.
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
    """Return which VNs one shard decides for, (vns,)."""
    wide = np.zeros(vns, dtype=np.bool_)
    for group in groups:
        if is_network_wide(group.policy):
            wide[group.vns] = True
    return wide


def link_usage(
    wide: BoolArray, entries: PairTable, vns: VnTable, links: LinkTable, left: LinkTable, seen: IntervalContext
) -> LinkUseMessage:
    """Return what the senders of VNs that are not ``wide`` (vns,) use of links; ``seen`` has the columns of entries.

    ``left`` is what silent shards' senders, who are not among the entries, leave of the ``links``.
    """
    used = cross_traffic_load(wide, entries, vns, links, seen.used_bps, seen.limit_bps)
    cross_traffic_bps, within_bps = (one_bps + (links.capacity_bps - left.capacity_bps) for one_bps in used)
    link = np.flatnonzero(cross_traffic_bps)
    return LinkUseMessage(link, cross_traffic_bps[link], within_bps[link])


def sum_link_usage(uses: Iterable[LinkUseMessage], links: int) -> tuple[FloatArray, FloatArray]:
    """Return what several shards say of the same links, (links,) each, as ``PolicyView`` has it."""
    cross_traffic_bps, within_bps = np.zeros(links), np.zeros(links)
    for use in uses:
        cross_traffic_bps[use.link] += use.cross_traffic_bps
        within_bps[use.link] += use.cross_guaranteed_bps
    return cross_traffic_bps, within_bps


def remaining_links(links: LinkTable, sender: IntArray, receiver: IntArray, rate_bps: FloatArray) -> LinkTable:
    """Return the links with what these entries may send taken off their capacity."""
    if not rate_bps.any():
        return links
    entries = PairTable(sender, receiver, np.full(len(sender), NO_METER))
    offsets, link = links.pair_links(entries, np.arange(len(sender)))
    kept_bps = np.bincount(link, np.repeat(rate_bps, np.diff(offsets)), minlength=len(links.capacity_bps))
    return replace(links, capacity_bps=np.maximum(links.capacity_bps - kept_bps, RATE_STEP_BPS))
