"""Policies that decide by queues and ports, on a fabric cut into shards: each says what it reads, one decides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fluid_meters import INTERVAL_S, PORTS, World
from support.sharded_simulation import OneProcess, ShardedSimulation, cut

from controller.gatekeeper.ingress_monitor import MIN_DROPPED_BITS
from controller.gatekeeper.policy import BLIND_INTERVALS, Gatekeeper
from controller.metering.enforcement import Enforcement
from controller.node_protocol.rejection import RejectCause
from controller.shards.peer import SILENT_INTERVALS
from controller.shards.peer_timeout import GRANT_HOLD_S

GUARANTEE_BPS, CAPACITY_BPS = 4e6, 10e6
CUTS = ([0, 0, 0, 1, 1, 1], [2, 1, 1, 0, 0, 2])
RECEIVER = 6  # a VN at the fourth port
CONGESTED_BPS = MIN_DROPPED_BITS / (Gatekeeper.window * INTERVAL_S)  # more than 2 % of so slow a port
LATE, LOSSY = {"delay": 1}, {"delay": 1, "jitter": 1, "loss": 0.2, "duplicated": 0.2}
SILENCE, GREEDY_KBIT = [0], 600
HELD = int(GRANT_HOLD_S / INTERVAL_S)


def two_vlans(algorithm: str) -> World:
    """Every port has a VN of either VLAN, whose guarantees leave a fifth of it."""
    return World(algorithm, {10: "4M", 20: "4M"}, capacity="10M")


def to_vns(world: World, loads_kbit: dict[int, int]) -> list[int]:
    """Return what every entry offers, by its receiver."""
    offered = np.zeros(len(world.vns), dtype=np.int64)
    offered[list(loads_kbit)] = list(loads_kbit.values())
    return offered[world.entries.receiver].tolist()


def to_receiver(shards: ShardedSimulation) -> np.ndarray:
    return shards.world.entries.receiver == RECEIVER


owners = st.lists(st.integers(0, 3), min_size=PORTS, max_size=PORTS)
loads = st.lists(
    st.dictionaries(st.integers(0, 2 * PORTS - 1), st.integers(0, 600), max_size=4), min_size=7, max_size=7
)


@pytest.mark.parametrize(
    "algorithm", ["gatekeeper", "seawall", "seawall-cubic", "seawall-dctcp", "seawall-exact", "hygenicc"]
)
@settings(derandomize=True, max_examples=3, deadline=None)
@given(owner=owners, offered=loads)
def test_with_frames_at_once_shards_grant_what_one_process_grants_bit_for_bit(algorithm, owner, offered):
    whole, shards = OneProcess(two_vlans(algorithm)), cut(two_vlans(algorithm), owner, 6)
    np.testing.assert_array_equal(whole.run(SILENCE, 6), shards.limit_bps)
    for one in (whole, *shards.shards.values()):
        one.reset_policies()  # what was learned before all had heard each other
    shown = to_vns(whole.world, {RECEIVER: GREEDY_KBIT, RECEIVER + 1: GREEDY_KBIT})  # what drops, for certain
    for offered_kbit in (shown, *(to_vns(whole.world, one) for one in offered), shown, shown):
        np.testing.assert_array_equal(shards.run(offered_kbit), whole.run(offered_kbit))


@pytest.mark.parametrize("network", [LATE, LOSSY])
@pytest.mark.parametrize("owner", CUTS)
def test_a_late_or_lost_reading_breaks_no_promise_of_gatekeeper(owner, network):
    shards = cut(two_vlans("gatekeeper"), owner, 40, **network)
    world, rows = shards.world, to_receiver(shards)
    offered = to_vns(world, {RECEIVER: GREEDY_KBIT, RECEIVER + 1: GREEDY_KBIT})
    rounds, above = [], []
    for _ in range(60):
        shards.run(offered)
        assert (shards.limit_bps[rows] >= GUARANTEE_BPS / (PORTS - 1) * (1 - 1e-9)).all()
        assert (shards.limit_bps <= CAPACITY_BPS).all()
        rounds.append(shards.notified[owner[0]][RECEIVER] > 0)
        above.append(world.queue_dropped_bps[RECEIVER] > CONGESTED_BPS)
    assert 2 <= sum(rounds) < 20
    assert np.diff(np.flatnonzero(rounds)).min() >= Gatekeeper.hold
    assert sum(above[:4]) > 0
    assert np.convolve(above, np.ones(8), "valid").max() <= 6  # congestion ends
    assert (world.served_bps[[RECEIVER, RECEIVER + 1]] >= GUARANTEE_BPS).all()


def test_whoever_is_told_loses_its_burst_whosever_it_is(monkeypatch):
    forfeited, lost = Enforcement.forfeited, []

    def counted(self, rows):
        lost.append(len(rows))
        return forfeited(self, rows)

    monkeypatch.setattr(Enforcement, "forfeited", counted)
    shards = cut(two_vlans("gatekeeper"), CUTS[0], 40, **LATE)
    shards.run(to_vns(shards.world, {RECEIVER: GREEDY_KBIT}), 7)
    assert sorted(lost) == [2, 3]  # of its own shard, and of the other one


def test_who_sends_from_one_port_keeps_its_guarantee_by_frames_that_come_late():
    shards = cut(two_vlans("gatekeeper"), CUTS[0], 40, **LATE)
    world = shards.world
    own = np.isin(world.entries.sender, [0, 1])  # both VNs of the first port
    limit_bps = shards.run(np.where(own, GREEDY_KBIT, 0).tolist(), 20)
    sent_bps = np.bincount(world.entries.sender, limit_bps)[:2]
    assert (sent_bps >= GUARANTEE_BPS).all()
    assert sent_bps.sum() <= CAPACITY_BPS * (1 + 1e-9)


@pytest.mark.parametrize(("owner", "network"), [(CUTS[0], LATE), (CUTS[1], LOSSY)])
def test_shards_come_to_the_shares_of_seawall_with_frames_late_or_lost(owner, network):
    whole, shards = OneProcess(two_vlans("seawall")), cut(two_vlans("seawall"), owner, 6, **network)
    for load in ({RECEIVER: GREEDY_KBIT, RECEIVER + 1: GREEDY_KBIT}, {RECEIVER: GREEDY_KBIT, 0: 100}):
        offered = to_vns(whole.world, load)
        shards.run(offered, 60)
        whole.run(offered, 60)
        rows = to_receiver(shards)
        np.testing.assert_allclose(shards.limit_bps[rows], whole.limit_bps[rows], rtol=1e-3)


# -- somebody is silent, or another one decides


def congested(owner: list[int]) -> tuple[ShardedSimulation, list[int]]:
    """A fabric whose receiver has told its senders of congestion, and what they offer."""
    shards = cut(two_vlans("gatekeeper"), owner, 40, **LATE)
    offered = to_vns(shards.world, {RECEIVER: GREEDY_KBIT})
    shards.run(offered, 20)
    assert (shards.limit_bps[to_receiver(shards)] < CAPACITY_BPS / 2).all()
    return shards, offered


def test_while_nobody_says_what_a_receiver_gets_its_senders_do_not_rise():
    shards, offered = congested([2, 1, 1, 0, 0, 2])  # 2 decides, 0 has the receiver's switch
    shards.network.cut = {0}
    shards.run(offered, SILENT_INTERVALS + 2)
    before_bps = shards.limit_bps.copy()
    rows = to_receiver(shards)
    for _ in range(2 * BLIND_INTERVALS):
        shards.run(offered)
        assert (shards.limit_bps[rows] <= before_bps[rows]).all()
    shards.network.cut = set()
    shards.run(offered, 10)
    assert (shards.limit_bps[rows] > before_bps[rows]).any()  # by what it reads again


def test_a_silent_nodes_senders_are_held_and_take_nothing_of_the_others_guarantees():
    shards, offered = congested(CUTS[0])  # 0 decides, 1 has the receiver's switch and two of its senders
    shards.owner[:] = np.where(shards.world.vns.port_no == 4, 0, shards.owner)
    for shard in shards.shards.values():
        shard.repartition(shards.owner, 2)
    shards.run(offered, 20)
    shards.network.cut = {1}
    shards.run(offered, SILENT_INTERVALS)
    rows = to_receiver(shards)
    far = rows & (shards.owner[shards.world.entries.sender] == 1)
    before_bps = shards.limit_bps.copy()
    for _ in range(40):
        shards.run(offered)
        np.testing.assert_array_equal(shards.limit_bps[far], before_bps[far])
        assert (shards.limit_bps[rows] >= GUARANTEE_BPS / (PORTS - 1) * (1 - 1e-9)).all()
    shards.run(offered, HELD)
    assert shards.limit_bps[far].sum() <= CAPACITY_BPS * far.sum() / (PORTS - 1) * (1 + 1e-9)


def test_another_one_who_decides_goes_on_from_the_limits_in_force():
    shards, offered = congested(CUTS[0])
    rows, before_bps = to_receiver(shards), shards.limit_bps.copy()
    for shard in shards.shards.values():
        shard.repartition(shards.owner, 2, allocator=1)
    rise_bps = Gatekeeper.slope * CAPACITY_BPS * INTERVAL_S / (PORTS - 1)
    for number in range(1, 20):
        shards.run(offered)
        assert (shards.limit_bps[rows] <= before_bps[rows] + number * rise_bps * (1 + 1e-9)).all()
    assert shards.causes[RejectCause.NOT_OWNED] < 20
