"""The grants of an unresponsive peer's senders: the last grants stay for GRANT_HOLD_S, then equal shares apply.

Under a policy that responds to drops or marks, a sender's limit is no share of its receiver's limit: the sum may be far
above that. There equal shares apply from the beginning, so that the guarantees of other senders hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.fabric.link_table import LinkTable
from controller.fabric.vn_table import VnTable
from controller.metering.enforcement import RATE_STEP_BPS
from controller.shards.grant_replies import PeerGrants
from controller.shards.network_allocation import remaining_links
from controller.shards.peer import Peer
from controller.shards.receiver_table import match_pairs

GRANT_HOLD_S = 10.0
"""how long an unresponsive receiver's grants stay: longer than a lease and a takeover"""


class RemainingCapacity(NamedTuple):
    """The receive limits and links less the part of unresponsive peers' senders. ``senders`` (vns,) is their number."""

    vns: VnTable
    links: LinkTable | None
    senders: IntArray


def equal_share_bps(vns: VnTable, senders: IntArray) -> FloatArray:
    """Return (vns,) an equal share of each VN among its number of senders, (vns,)."""
    share_bps: FloatArray = vns.receive_max_bps / np.maximum(senders, 1)
    return share_bps


def capacity_without_silent_peers(
    peers: Mapping[int, Peer],
    granted: Mapping[int, PeerGrants],
    vns: VnTable,
    links: LinkTable | None,
    now_s: float,
    no_shares: BoolArray,
) -> RemainingCapacity:
    """Return the capacity without the part of peers that are unresponsive at ``now_s``.

    ``granted`` are the last grants to each.

    ``links`` is None where no policy uses them. ``no_shares`` (vns,) are the VNs under policies that respond to drops
    or marks.
    """
    senders, kept_bps = np.zeros(len(vns), dtype=np.int64), np.zeros(len(vns))
    for number, peer in peers.items():
        report, silent_s = peer.report, peer.report_age_s(now_s)
        if report is None or not silent_s:
            continue
        rate_bps = np.where(np.isinf(report.limit_bps), 0.0, report.limit_bps)
        shared_among = np.ones(len(vns), dtype=np.int64)
        if number in granted:  # which may have arrived there
            one = granted[number].materialize()
            known, at = match_pairs(report, one)
            rate_bps[known] = np.maximum(rate_bps[known], one.rate_bps[at])
            shared_among[one.decided] = one.senders
        senders += np.bincount(report.receiver[rate_bps > 0.0], minlength=len(vns))
        if silent_s > GRANT_HOLD_S:
            rate_bps = np.minimum(rate_bps, equal_share_bps(vns, shared_among)[report.receiver])
        among = np.maximum(shared_among, np.bincount(report.receiver, minlength=len(vns)))
        part_bps = np.where(no_shares, vns.receive_limit_bps / among, np.inf)
        rate_bps = np.minimum(rate_bps, part_bps[report.receiver])
        of_peer = np.bincount(report.receiver, rate_bps, minlength=len(vns))
        passed_bps = np.where(no_shares[report.loaded], 0.0, report.passed_bps)
        of_peer[report.loaded] = np.maximum(of_peer[report.loaded], passed_bps)
        kept_bps += of_peer
        if links is not None:
            links = remaining_links(links, report.sender, report.receiver, rate_bps)
    if not kept_bps.any():
        return RemainingCapacity(vns, links, senders)
    left_bps, most_bps = (
        np.maximum(column - kept_bps, RATE_STEP_BPS) for column in (vns.receive_limit_bps, vns.receive_max_bps)
    )
    return RemainingCapacity(vns.with_columns(receive_limit_bps=left_bps, receive_ceiling_bps=most_bps), links, senders)
