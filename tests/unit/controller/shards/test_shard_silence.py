"""What silent shards' senders leave to the others."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from support.fluid_meters import World, ints

from controller.node_protocol.message_types import ReportMessage
from controller.shards.grant_replies import ReceiverStatus, for_idle_peer
from controller.shards.peer_timeout import GRANT_HOLD_S, capacity_without_silent_peers

LIMIT_BPS = 8e6


def silent_peer(for_s, limit_bps, passed_bps):
    """A peer that has reported two of the senders of VN 0, and speaks no more."""
    loads = [np.array([passed_bps])] * 3
    columns = [np.full(2, one) for one in (1e6, 0.0, limit_bps, 1e6, 1e6)]
    flags = np.array([False, False]), np.array([True, True])
    report = ReportMessage(ints([0]), *loads, ints([1, 2]), ints([0, 0]), *columns, ints([0, 0]), *flags)
    return {1: SimpleNamespace(report=report, report_age_s=lambda now_s: for_s)}


@pytest.mark.parametrize(
    ("by_drops", "for_s", "limit_bps", "passed_bps", "kept_bps"),
    [
        (False, 1.0, 3e6, 0.0, 6e6),  # what they were granted
        (False, 1.0, 3e6, 7e6, 7e6),  # or what passed
        (True, 1.0, 1e6, 0.0, 2e6),
        (True, 1.0, 40e6, 40e6, 8e6),  # no limit is a share of what the receiver gets: an equal one
        (True, GRANT_HOLD_S + 1.0, 40e6, 40e6, 8e6),
    ],
)
def test_what_a_silent_peers_senders_keep(by_drops, for_s, limit_bps, passed_bps, kept_bps):
    vns = World("fs").vns
    peers = silent_peer(for_s, limit_bps, passed_bps)
    left = capacity_without_silent_peers(peers, {}, vns, None, 0.0, np.full(len(vns), by_drops))
    assert left.vns.receive_limit_bps[0] == max(LIMIT_BPS - kept_bps, 1e3)
    assert (left.vns.receive_limit_bps[1:] == LIMIT_BPS).all()
    assert left.senders[0] == 2


def test_under_a_policy_that_acts_on_drops_the_others_keep_their_part():
    vns = World("fs").vns
    granted = for_idle_peer(ReceiverStatus(ints([0]), ints([5]), np.array([True])))
    peers = silent_peer(1.0, 40e6, 40e6)
    left = capacity_without_silent_peers(peers, {1: granted}, vns, None, 0.0, np.full(len(vns), True))
    assert left.vns.receive_limit_bps[0] == pytest.approx(LIMIT_BPS * 3 / 5)
