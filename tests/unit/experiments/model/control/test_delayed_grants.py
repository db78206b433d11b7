"""Grants that arrive late: which, when, and for whom."""

from __future__ import annotations

import numpy as np
from support.configs import star
from support.policy_views import policy_view

from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.policy.policy_state import PolicyState
from controller.policy.registry import make_policy
from experiments.model.control.delayed_grants import DelayedGrants

VNS = VnTable.from_config(star(3, limits={10: "100M"}))
HUB = VNS.row_of(10, 1, 3)
ENTRIES = PairTable(np.array([VNS.row_of(10, 1, 1), VNS.row_of(10, 1, 2)]), np.full(2, HUB), np.array([1, 2]))
ROWS = np.arange(2)


def view(receive_limit_bps, limit_bps, active=(True, True), measured_bps=10.0):
    receive_bps = VNS.receive_limit_bps.copy()
    receive_bps[HUB] = receive_limit_bps
    vns, sent_bps = VNS.with_columns(receive_limit_bps=receive_bps), np.full(2, measured_bps)
    given = {"in_group": VNS.vlan_vid == 10, "available_bps": np.full(2, 70.0), "active": np.array(active)}
    return policy_view(ENTRIES, vns, sent_bps, sent_bps, np.array(limit_bps), **given)


def nothing():
    return PolicyState(len(VNS)).aligned(ROWS, None)


def run(policy, limits_bps, active=(True, True)):
    """The grants of one interval after the other, each of which is in force in the next."""
    memory, limit_bps, found = nothing(), [np.inf, np.inf], []
    for receive_limit_bps in limits_bps:
        decision = policy.decide(view(receive_limit_bps, limit_bps, active), memory)
        memory, limit_bps = decision.memory, decision.grant_bps.tolist()
        found.append(limit_bps)
    return found, memory


def test_grants_arrive_two_intervals_late_and_until_then_a_sender_may_send_what_it_can():
    found, _ = run(DelayedGrants(make_policy("fs"), 2), [100.0, 80.0, 60.0, 40.0, 20.0])
    assert found == [[70.0, 70.0], [70.0, 70.0], [50.0, 50.0], [40.0, 40.0], [30.0, 30.0]]


def test_a_sender_for_which_no_grant_is_on_the_way_keeps_its_rate():
    policy = DelayedGrants(make_policy("fs"), 1)
    _, memory = run(policy, [100.0], active=(True, False))
    decision = policy.decide(view(100.0, [50.0, 33.0]), memory)
    assert decision.grant_bps.tolist() == [70.0, 33.0]  # the first was alone


def test_the_policys_own_memory_goes_on_beside_the_grants_on_their_way():
    plain, late = make_policy("fe"), DelayedGrants(make_policy("fe"), 2)
    memory, late_memory = nothing(), nothing()
    asked, grants = view(100.0, [50.0, 50.0], measured_bps=60.0), []
    for _ in range(4):
        decided = plain.decide(asked, memory)
        memory = decided.memory
        grants.append(decided.grant_bps.tolist())
        arrived = late.decide(asked, late_memory)
        late_memory = arrived.memory
    assert arrived.grant_bps.tolist() == grants[1]
    moved = late_memory.reindexed(np.array([1, -1])).aligned(ROWS, None).pair_column("late.0")
    assert moved[0] == grants[2][1]
    assert np.isnan(moved[1])
