"""What the policy of a receiver's algorithm keeps of entries and limits does not outlive them."""

from __future__ import annotations

import numpy as np
import pytest
from support.configs import star
from support.policy_views import policy_view

from controller.allocation import AllocationInput, native
from controller.errors import ColumnError
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.policy.interface import PolicyView
from controller.policy.per_receiver import _idle_share_bps
from controller.policy.policy_state import PolicyState
from controller.policy.registry import make_policy, policies
from controller.policy.shardability import is_network_wide

VNS = VnTable.from_config(star(4, limits={10: "100M", 20: "200M"}))
PAIRS = ((10, 1, 3), (10, 2, 3), (20, 1, 4), (20, 2, 4))  # VLAN, the sender's port, the receiver's
SENDER = np.array([VNS.row_of(vid, 1, port) for vid, port, _ in PAIRS])
RECEIVER = np.array([VNS.row_of(vid, 1, port) for vid, _, port in PAIRS])


def view(vns: VnTable = VNS, rows: slice = slice(None), active: bool = True) -> PolicyView:
    order = np.lexsort((SENDER, RECEIVER))[rows]
    sender, receiver = SENDER[order], RECEIVER[order]
    count = len(sender)
    sent_bps, congested = np.full(count, 70e6), np.ones(len(vns), dtype=np.bool_)
    given = {"available_bps": np.full(count, 100e6), "active": np.array([active] * count), "congested": congested}
    entries = PairTable(sender, receiver, np.arange(1, count + 1))
    return policy_view(entries, vns, sent_bps, sent_bps, np.full(count, np.inf), **given)


def decided_afresh(one: PolicyView) -> np.ndarray:
    return make_policy("fs").decide(one, PolicyState(len(VNS)).aligned(one.rows, None)).grant_bps


OTHERS = {
    "limits": view(VNS.with_columns(receive_limit_bps=VNS.receive_limit_bps / 2)),
    "weights": view(VNS.with_columns(weight=np.linspace(1.0, 8.0, len(VNS)))),
    "entries": view(rows=slice(1, None)),
    "silence": view(active=False),
}


@pytest.mark.parametrize("changed", OTHERS)
def test_the_next_decision_is_that_of_a_policy_without_a_past(changed: str) -> None:
    policy, first, then = make_policy("fs"), view(), OTHERS[changed]
    memory = policy.decide(first, PolicyState(len(VNS)).aligned(first.rows, None)).memory
    found = policy.decide(then, memory.aligned(then.rows, None))
    assert found.grant_bps.tolist() == decided_afresh(then).tolist()
    assert decided_afresh(first).tolist() != found.grant_bps.tolist()


def test_columns_are_checked_when_the_table_is_new_and_not_again() -> None:
    policy, first = make_policy("fs"), view()
    broken = first._replace(available_bps=np.full(len(first.rows), -1.0))
    with pytest.raises(ColumnError, match="available_bps"):
        policy.decide(broken, PolicyState(len(VNS)).aligned(first.rows, None))
    known = policy.decide(first, PolicyState(len(VNS)).aligned(first.rows, None)).memory
    assert policy.decide(first, known).memory.derived is known.derived


@pytest.mark.parametrize("seed", range(20))
def test_silent_senders_may_start_with_the_same_compiled(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 6, 9)
    entries = int(counts.sum())
    requests = AllocationInput(
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        limit_bps=rng.uniform(1e6, 1e9, len(counts)),
        received_bps=np.zeros(len(counts)),
        measured_bps=np.zeros(entries),
        granted_bps=np.zeros(entries),
        available_bps=rng.uniform(0.0, 1e8, entries),
        drops=np.zeros(entries, dtype=np.bool_),
        weight=np.ones(entries),
        active=rng.random(entries) < (0.5 if seed else 1.0),
    )
    granted_bps = rng.uniform(0.0, 1e8, entries)
    plain = np.where(requests.active, granted_bps, _idle_share_bps(requests))
    compiled = native.with_idle_share(requests, granted_bps)
    assert compiled is None or compiled.tobytes() == plain.tobytes()
    assert (compiled is granted_bps) == (native.library is not None and bool(requests.active.all()))


@pytest.mark.parametrize("name", [name for name, policy in policies.items() if not is_network_wide(policy)])
def test_policies_that_decide_by_receiver_look_at_nothing_that_peers_leave_out(name: str) -> None:
    policy, whole, unknown = make_policy(name), view(), np.full(len(PAIRS), np.nan)
    whole = whole._replace(limit_bps=np.full(len(PAIRS), 90e6), drops=np.array([True, False, True, False]))
    with_amounts = whole._replace(dropped_bps=np.where(whole.drops, 5e6, 0.0))
    without = whole._replace(dropped_bps=unknown, passed_bps=unknown)
    found = [
        policy.decide(one, PolicyState(len(VNS)).aligned(one.rows, None)).grant_bps for one in (with_amounts, without)
    ]
    assert found[0].tobytes() == found[1].tobytes()
