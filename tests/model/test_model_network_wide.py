"""Policies that see the whole network, on a fabric cut into shards: one of them decides for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fluid_meters import INTERVAL_S, PORTS, World, ints
from support.sharded_simulation import OneProcess, cut

from controller.metering.enforcement import RATE_STEP_BPS
from controller.node_protocol.rejection import RejectCause
from controller.shards.peer import SILENT_INTERVALS
from controller.shards.peer_timeout import GRANT_HOLD_S

CORE_BPS = 12e6
CUTS = ([0, 0, 0, 1, 1, 1], [2, 1, 1, 0, 0, 2])
SILENCE, GREEDY = [0], [900]
HELLO = 4
HELD = int(GRANT_HOLD_S / INTERVAL_S)


def with_core() -> World:
    """Three ports on either side of a link that carries a fraction of what they may send, and may borrow."""
    ceilings = {"send_ceiling": "20M", "receive_ceiling": "20M"}
    world = World("max-min", {10: "8M"}, capacity="40M", vlans={10: ceilings})
    access = world.links
    there, back = len(access.names), len(access.names) + 1
    world.links = replace(
        access,
        names=(*access.names, "there", "back"),
        capacity_bps=np.concatenate([access.capacity_bps, [CORE_BPS, CORE_BPS]]),
        switch=ints([0, 0, 0, 1, 1, 1]),
        switches=2,
        path_offsets=ints([0, 0, 1, 2, 2]),
        path_link=ints([there, back]),
    )
    world.ports_at = np.concatenate([world.ports_at, [0, PORTS - 1]])
    return world


def with_others() -> World:
    """Ports that VLANs under FS and under max-min share: these borrow what those leave."""
    ceilings = {"send_ceiling": "12M", "receive_ceiling": "12M"}
    return World("max-min", {10: "4M", 20: "4M"}, capacity="12M", vlans={10: {"algorithm": "fs"}, 20: ceilings})


def on_links_bps(world: World, limit_bps: np.ndarray) -> np.ndarray:
    """Return what the limits of the entries of each link come to, (links,)."""
    offsets, link = world.links.pair_links(world.entries, np.arange(len(world.entries)))
    return np.bincount(link, np.repeat(limit_bps, np.diff(offsets)), minlength=len(world.links.names))


owners = st.lists(st.integers(0, 7), min_size=PORTS, max_size=PORTS)
loads_kbits = st.lists(st.lists(st.integers(0, 900), min_size=7, max_size=7), min_size=8, max_size=8)


@settings(derandomize=True, max_examples=12, deadline=None)
@given(owner=owners, offered=loads_kbits)
def test_with_frames_at_once_links_are_shared_bit_for_bit_as_by_one_process(owner, offered):
    whole, shards = OneProcess(with_core()), cut(with_core(), owner)
    whole.run(SILENCE, HELLO)
    for offered_kbits in offered:
        np.testing.assert_array_equal(shards.run(offered_kbits), whole.run(offered_kbits))


@pytest.mark.parametrize("owner", CUTS)
@pytest.mark.parametrize("network", [{"delay": 1}, {"delay": 1, "jitter": 1, "loss": 0.2, "duplicated": 0.2}])
@pytest.mark.parametrize("world", [with_core, with_others])
def test_with_frames_late_or_lost_shards_come_to_the_same_grants(
    world: Callable[[], World], network: dict[str, float], owner: list[int]
):
    whole, shards = OneProcess(world()), cut(world(), owner, **network)
    number, entries = np.arange(len(whole.world.entries)), whole.world.entries
    greedy = whole.world.vns.vlan_vid[entries.receiver] != whole.world.vns.vlan_vid.max()  # VLANs under FS, if any
    for some in ([900, 100, 500, 0, 300, 700, 50], [900, 0, 900, 600, 0, 900, 100]):
        offered = np.where(greedy, GREEDY[0], ints(some)[number % len(some)]).tolist()
        # Trials of demand leave buckets at other levels: the difference is less than the step of a meter's rate.
        np.testing.assert_allclose(shards.run(offered, 60), whole.run(offered, 60), rtol=0.0, atol=RATE_STEP_BPS / 2)
    if world is with_core:
        assert on_links_bps(whole.world, whole.limit_bps).max() > CORE_BPS - 1.0


@pytest.mark.parametrize("owner", CUTS)
@pytest.mark.parametrize("delay", [0, 1, 2])
def test_a_link_is_overloaded_for_an_interval_and_one_more_for_each_that_a_frame_takes(delay, owner):
    shards = cut(with_core(), owner, delay=delay)
    overloaded = 0
    for _ in range(30):
        before_bps = np.minimum(shards.limit_bps, GREEDY[0] * 1024 * 16)
        overloaded += bool((on_links_bps(shards.world, before_bps) > 1.001 * shards.world.links.capacity_bps).any())
        shards.run(GREEDY)
    assert 1 <= overloaded <= 1 + 2 * delay


@pytest.mark.parametrize(("owner", "seed"), [(CUTS[0], 1), (CUTS[1], 2), ([0, 1, 2, 3, 4, 5], 3)])
def test_no_link_is_overloaded_after_that_though_frames_are_lost_doubled_and_overtaken(owner, seed):
    shards = cut(with_core(), owner, delay=1, jitter=1, loss=0.2, duplicated=0.2, seed=seed)
    shards.run(GREEDY, 20)
    for _ in range(40):
        shards.run(GREEDY)
        assert (on_links_bps(shards.world, shards.limit_bps) <= 1.000001 * shards.world.links.capacity_bps).all()
    assert shards.causes[RejectCause.ORDER] > 10


def test_what_others_use_of_a_port_is_lent_and_taken_back_across_shards():
    owner = [0, 0, 0, 1, 1, 1]
    world = with_others()
    fs = world.vns.vlan_vid[world.entries.receiver] == 10
    offered = np.where(fs, 0, 900).tolist()
    shards = cut(world, owner, delay=1)
    lent_bps = shards.run(offered, 60)[~fs].sum()
    shards.run(np.full(len(fs), 900).tolist(), 60)
    assert shards.limit_bps[~fs].sum() < 0.8 * lent_bps
    sums_bps = on_links_bps(world, shards.limit_bps)
    assert (sums_bps <= 1.12 * world.links.capacity_bps).all()  # others keep a tenth above what they send


# -- the allocator is silent, or another one


@pytest.mark.parametrize("owner", CUTS)
def test_grants_of_a_silent_allocator_are_held_and_then_go_down(owner):
    shards = cut(with_core(), owner, delay=1)
    before_bps = shards.run(GREEDY, 40).copy()
    shards.network.cut = {owner[0]}
    shards.run([900, 0, 900], SILENT_INTERVALS)  # what was under way has come
    entries = shards.world.entries
    far = shards.owner[entries.sender] != owner[0]
    for _ in range(HELD - 2 * SILENT_INTERVALS):
        assert (shards.run([900, 0, 900])[far] == before_bps[far]).all()
    shards.run(GREEDY, 40)
    share_bps = shards.world.vns.receive_max_bps[entries.receiver] / (PORTS - 1)
    assert (shards.limit_bps[far] <= np.minimum(before_bps, share_bps)[far] * (1 + 1e-9)).all()


@pytest.mark.parametrize("owner", CUTS)
def test_what_a_silent_shard_was_granted_is_given_to_nobody_on_links_either(owner):
    shards = cut(with_core(), owner, delay=1)
    shards.run(GREEDY, 40)
    shards.network.cut = {1}
    shards.run(GREEDY, 2)
    for _ in range(HELD + 20):
        shards.run(GREEDY)
        assert (on_links_bps(shards.world, shards.limit_bps) <= 1.000001 * shards.world.links.capacity_bps).all()


@pytest.mark.parametrize("owner", [CUTS[0], [0, 1, 2, 3, 4, 5]])
def test_another_allocator_frees_nobody_and_comes_to_the_same_grants(owner):
    whole, shards = OneProcess(with_core()), cut(with_core(), owner, delay=1)
    before_bps = shards.run(GREEDY, 40).copy()
    for shard in shards.shards.values():
        shard.repartition(shards.owner, 2, allocator=1)
    for _ in range(40):
        assert (shards.run(GREEDY) <= before_bps * (1 + 1e-9)).all()
    np.testing.assert_allclose(shards.limit_bps, whole.run(GREEDY, 80), rtol=1e-6)
    some = [900, 0, 500]
    np.testing.assert_allclose(shards.run(some, 60), whole.run(some, 60), rtol=1e-6)


def test_two_who_take_themselves_for_the_allocator_raise_no_grant():
    shards = cut(with_core(), [0, 0, 0, 1, 1, 1])
    before_bps = shards.run(GREEDY, 10).copy()
    shards.shards[1].repartition(shards.owner, 1, allocator=1)
    own = shards.owner[shards.world.entries.sender] == 1
    for _ in range(HELD - 10):
        assert (shards.run([900, 0])[own] <= before_bps[own] * (1 + 1e-9)).all()
    assert shards.causes[RejectCause.NOT_OWNED] > 2 * (HELD - 20)
