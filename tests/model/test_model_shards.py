"""A fabric cut into shards against one process, in virtual time: frames at once, late, twice, in disorder or never."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fluid_meters import INTERVAL_S, PORTS, World
from support.sharded_simulation import Network, OneProcess, ShardedSimulation

from controller.dets.rate_allocator import CALM_INTERVALS, RateAllocators
from controller.errors import InvalidValueError
from controller.node_protocol.rejection import RejectCause
from controller.shards.shard import GRANT_HOLD_S, Shard

ALGORITHMS = ("fs", "sp", "fp", "level", "max-min")
CUTS = ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2], [0, 1, 2, 3, 4, 5])
SILENCE, GREEDY, MIXED = [0], [600], [600, 500, 400, 300, 200, 100, 50]
HELLO = 4  # intervals until all have heard each other
HELD = int(GRANT_HOLD_S / INTERVAL_S)


def cut(world: str | World, owner: list[int], **network) -> ShardedSimulation:
    """Return a cut fabric whose shards have heard each other."""
    made = ShardedSimulation(world, owner, Network(**network))
    made.run(SILENCE, HELLO + 4 * (made.network.delay + made.network.jitter))
    return made


owners = st.lists(st.integers(0, 3), min_size=PORTS, max_size=PORTS)
loads_kbits = st.lists(st.lists(st.integers(0, 600), min_size=7, max_size=7), min_size=8, max_size=8)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(derandomize=True, max_examples=8, deadline=None)
@given(owner=owners, offered=loads_kbits)
def test_with_frames_at_once_shards_grant_what_one_process_grants_bit_for_bit(algorithm, owner, offered):
    whole, shards = OneProcess(algorithm), cut(algorithm, owner)
    whole.run(SILENCE, HELLO)
    for offered_kbits in offered:
        np.testing.assert_array_equal(shards.run(offered_kbits), whole.run(offered_kbits))


@pytest.mark.parametrize("owner", CUTS)
@pytest.mark.parametrize(("algorithm", "off_by"), [("fs", 0.0), ("fp", 1e-6), ("level", 0.02), ("max-min", 1e-9)])
def test_with_frames_an_interval_late_shards_come_to_the_same_grants(algorithm, off_by, owner):
    whole, shards = OneProcess(algorithm), cut(algorithm, owner, delay=1)
    np.testing.assert_allclose(shards.run(GREEDY, 80), whole.run(GREEDY, 80), rtol=off_by)
    limits_bps = shards.world.vns.receive_limit_bps
    np.testing.assert_allclose(shards.sums_bps(), limits_bps, rtol=max(off_by, 1e-9))


@pytest.mark.parametrize("owner", CUTS)
@pytest.mark.parametrize("delay", [1, 2])
def test_proportions_found_stay_and_the_limit_holds_under_slow_probe(delay, owner):
    """RAA-SP keeps the proportions that it finds, and finds others when it hears later: sums alone can be compared."""
    shards = cut("sp", owner, delay=delay)
    shards.run(GREEDY, 80)
    np.testing.assert_allclose(shards.sums_bps(), shards.world.vns.receive_limit_bps, rtol=0.02)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("owner", CUTS)
def test_frames_that_are_lost_doubled_and_overtaken_change_nothing_in_the_end(owner, seed):
    whole = OneProcess("fs")
    shards = cut("fs", owner, delay=1, jitter=1, loss=0.2, duplicated=0.2, seed=seed)
    np.testing.assert_array_equal(shards.run(GREEDY, 60), whole.run(GREEDY, 60))
    assert shards.causes[RejectCause.ORDER] > 10  # duplicated, or overtaken
    for _ in range(60):  # and nothing moves after that
        np.testing.assert_array_equal(shards.run(GREEDY), whole.run(GREEDY))


def test_who_comes_later_gets_its_share_from_both_sides():
    whole, shards = OneProcess("fs"), cut("fs", [0, 0, 0, 1, 1, 1], delay=1)
    some = [600, 0, 600, 0, 0, 600, 0]
    shards.run(some, 40)
    whole.run(some, 40)
    np.testing.assert_array_equal(shards.run(GREEDY, 160), whole.run(GREEDY, 160))


# -- a peer that is silent


def silenced(owner: list[int], silent: int) -> tuple[ShardedSimulation, np.ndarray]:
    """A fabric in which one shard is cut off from the others but goes on, and the grants before that."""
    shards = cut("fs", owner, delay=1)
    before_bps = shards.run(GREEDY, 40).copy()
    shards.network.cut = {silent}
    return shards, before_bps


@pytest.mark.parametrize("owner", CUTS)
def test_nothing_of_a_silent_peer_is_given_away_and_nobody_is_freed(owner):
    shards, before_bps = silenced(owner, 1)
    for _ in range(HELD + 40):
        limit_bps = shards.run(GREEDY)
        assert (limit_bps <= before_bps * (1 + 1e-9)).all()
        assert (shards.sums_bps() <= shards.world.vns.receive_limit_bps * (1 + 1e-9)).all()
    np.testing.assert_allclose(limit_bps, before_bps, rtol=1e-9)  # equal shares they were


def test_a_silent_peers_unequal_grants_are_held_and_then_go_down_to_equal_shares():
    shards = cut("fp", [0, 0, 0, 1, 1, 1], delay=1)
    shards.run([600, 600, 600, 20, 20, 20, 20], 60)
    entries, owner = shards.world.entries, shards.owner
    crossing = owner[entries.sender] != owner[entries.receiver]
    shards.network.cut = {1}
    before_bps = shards.run(GREEDY, 2).copy()  # what was under way has come
    shards.run(GREEDY, HELD - 8)
    np.testing.assert_array_equal(shards.limit_bps[crossing], before_bps[crossing])
    shards.run(GREEDY, 20)
    share_bps = shards.world.vns.receive_limit_bps[entries.receiver] / (PORTS - 1)
    np.testing.assert_allclose(shards.limit_bps[crossing], np.minimum(before_bps, share_bps)[crossing])
    shards.run(GREEDY, 40)
    assert (shards.sums_bps() <= 1.01 * shards.world.vns.receive_limit_bps).all()


def test_a_peer_that_comes_back_is_decided_on_again():
    whole, (shards, _) = OneProcess("fs"), silenced([0, 0, 1, 1, 2, 2], 1)
    shards.run(GREEDY, HELD + 20)
    shards.network.cut = set()
    np.testing.assert_array_equal(shards.run(GREEDY, 20), whole.run(GREEDY, 20 + 40))


def test_frames_that_waited_for_a_paused_peer_are_refused_and_it_recovers():
    """Its inbox holds what others said before they gave it up; by its own clock that answers nothing recent."""
    whole, shards = OneProcess("fs"), cut("fs", [0, 0, 0, 1, 1, 1], delay=1)
    whole.run(GREEDY, 60)
    shards.run(GREEDY, 40)
    shards.paused = {1}
    kept, shards.network.delay = shards.network.delay, 40
    shards.run(GREEDY, 3)
    shards.network.delay = kept
    shards.run(GREEDY, 37)
    shards.paused = set()
    late = shards.causes[RejectCause.LATE]
    shards.run(GREEDY, 1)
    assert shards.causes[RejectCause.LATE] > late
    np.testing.assert_array_equal(shards.run(GREEDY, 20), whole.limit_bps)


def test_a_new_owner_speaks_for_the_same_switches_and_the_old_one_is_not_heard():
    shards = cut("fs", [0, 0, 0, 1, 1, 1], delay=1)
    before_bps = shards.run(GREEDY, 40).copy()
    old, shards.shards[1] = shards.shards[1], shards.shard(1, token=2)
    shards.shards[1].state = old.state  # what it finds on the switches
    for _ in range(40):
        assert (shards.run(GREEDY) <= before_bps * (1 + 1e-9)).all()
    now_s, readings = shards.world.now_s, shards.world.readings(shards.rows[1])
    error = shards.shards[0].receive(1, old.report(readings, now_s)[0], now_s)
    assert error is not None
    assert error.cause is RejectCause.TOKEN


def test_who_knows_other_owners_is_not_heard_and_nobody_gains_by_it():
    whole, shards = OneProcess("fs"), cut("fs", [0, 0, 1, 1, 2, 2], delay=1)
    before_bps = shards.run(GREEDY, 40).copy()
    shards.shards[0].repartition(shards.owner, 1, owners_digest=b"new")
    for _ in range(40):
        assert (shards.run(GREEDY) <= before_bps * (1 + 1e-9)).all()
    refused = shards.causes[RejectCause.FABRIC]
    assert refused > 40
    for one in (1, 2):
        shards.shards[one].repartition(shards.owner, 1, owners_digest=b"new")
    np.testing.assert_array_equal(shards.run(GREEDY, 40), whole.run(GREEDY, 40))
    assert shards.causes[RejectCause.FABRIC] == refused + 8  # what 1 and 2 had under way


def test_a_receiver_is_calm_at_its_own_shard_alone_so_that_a_new_owner_frees_nobody():
    shards = cut("fs", [0, 0, 0, 1, 1, 1], delay=1)
    shards.run(SILENCE, 30)
    for one, shard in shards.shards.items():
        calm_intervals = shard.state.allocators.calm_intervals
        assert (calm_intervals[shards.owner == one] > 20).all()
        assert not calm_intervals[shards.owner != one].any()


def test_a_new_owner_of_a_receiver_frees_nobody_before_it_has_their_reports():
    shards = cut("fs", [0, 0, 0, 0, 0, 1])
    before_bps = shards.run(GREEDY, 40).copy()
    old, shards.shards[1] = shards.shards[1], shards.shard(1, token=2)
    nothing = RateAllocators.initial(PORTS, shards.world.groups)  # it has not been told of congestion
    shards.shards[1].state = old.state._replace(allocators=nothing)
    shards.late = {1}
    for _ in range(2 * CALM_INTERVALS):
        assert (shards.run(GREEDY) <= before_bps * (1 + 1e-9)).all()
    assert shards.causes[RejectCause.LATE] > 2 * CALM_INTERVALS
    shards.late = set()
    for _ in range(2 * CALM_INTERVALS):
        assert (shards.run(GREEDY) <= before_bps * (1 + 1e-9)).all()


def test_a_receiver_is_not_calm_while_its_shard_lacks_reports():
    shards = cut("fs", [0, 0, 0, 0, 1, 1])
    entries = shards.world.entries
    to_last = entries.receiver == PORTS - 1
    offered_kbits = np.where(to_last & (entries.sender == PORTS - 2), 50, 600).tolist()  # it needs less than its share
    before_bps = shards.run(offered_kbits, 40).copy()
    shards.shards[1].repartition(shards.owner, 1)
    shards.late = {1}
    for _ in range(2 * CALM_INTERVALS):
        assert (shards.run(offered_kbits)[to_last] <= before_bps[to_last] * (1 + 1e-9)).all()


# -- what cannot be cut


def test_a_policy_that_swings_is_refused():
    with pytest.raises(InvalidValueError, match="cannot be sharded"):
        ShardedSimulation("fe", [0, 0, 0, 1, 1, 1])


def test_receivers_without_a_queue_are_refused():
    world = World("fs")
    vns = world.vns.with_columns(has_queue=np.zeros(len(world.vns), dtype=np.bool_))
    with pytest.raises(InvalidValueError, match="has no queue"):
        Shard(vns, world.groups, np.zeros(len(vns), dtype=np.int64), 0, 1, INTERVAL_S)
