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
    """Return an equal share of each VN's maximum receive rate among its ``senders``, (vns,); their number is (vns,)."""
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
    """Return the capacity without the part that is reserved for senders of peers that are unresponsive at ``now_s``.

    ``granted`` are the last grants to each peer. ``links`` is None where no policy uses them. ``no_shares`` (vns,) is
    the mask of VNs under policies that respond to drops or marks, whose limits are no shares of the receive limit.
    """
    senders, reserved_bps = np.zeros(len(vns), dtype=np.int64), np.zeros(len(vns))
    for number, peer in peers.items():
        report, silent_s = peer.report, peer.report_age_s(now_s)
        if report is None or not silent_s:
            continue
        rate_bps = np.where(np.isinf(report.limit_bps), 0.0, report.limit_bps)
        sharers = np.ones(len(vns), dtype=np.int64)  # the number of senders that share each receiver's limit
        if number in granted:  # the peer may have received these grants
            last_grants = granted[number].materialize()
            rows, grant_rows = match_pairs(report, last_grants)
            rate_bps[rows] = np.maximum(rate_bps[rows], last_grants.rate_bps[grant_rows])
            sharers[last_grants.decided] = last_grants.senders
        senders += np.bincount(report.receiver[rate_bps > 0.0], minlength=len(vns))
        if silent_s > GRANT_HOLD_S:
            rate_bps = np.minimum(rate_bps, equal_share_bps(vns, sharers)[report.receiver])
        # Where limits are no shares, each sender gets an equal share at most: from the beginning, and even if it is one
        # of more senders than the last Grant counted.
        sharers = np.maximum(sharers, np.bincount(report.receiver, minlength=len(vns)))
        part_bps = np.where(no_shares, vns.receive_limit_bps / sharers, np.inf)
        rate_bps = np.minimum(rate_bps, part_bps[report.receiver])
        peer_bps = np.bincount(report.receiver, rate_bps, minlength=len(vns))
        # The peer's pairs that are not under control have no grants: their last load counts.
        passed_bps = np.where(no_shares[report.loaded], 0.0, report.passed_bps)
        peer_bps[report.loaded] = np.maximum(peer_bps[report.loaded], passed_bps)
        reserved_bps += peer_bps
        if links is not None:
            links = remaining_links(links, report.sender, report.receiver, rate_bps)
    if not reserved_bps.any():
        return RemainingCapacity(vns, links, senders)
    limit_bps, ceiling_bps = (
        np.maximum(bps - reserved_bps, RATE_STEP_BPS) for bps in (vns.receive_limit_bps, vns.receive_max_bps)
    )
    vns = vns.with_columns(receive_limit_bps=limit_bps, receive_ceiling_bps=ceiling_bps)
    return RemainingCapacity(vns, links, senders)
