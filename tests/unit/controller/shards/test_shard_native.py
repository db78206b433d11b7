"""What crosses between shards: the compiled form gives the bits of the numpy form."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.dets.messages import ReceiverLoads, SetRate
from controller.dets.send_rate_controller import MachineState, SendRateControllers
from controller.fabric.pair_table import PairTable
from controller.shards import shard_native
from controller.shards.grant_replies import GrantReplies
from controller.shards.merged_reports import add_loads
from controller.shards.pair_partition import PairPartition
from controller.shards.received_grants import PairsToPeer, ReceivedGrants
from controller.shards.receiver_table import ReceiverTable

pytestmark = pytest.mark.skipif(shard_native.library is None, reason="no C compiler was there when it was installed")

VNS = 100
MAX_PAIRS = 700  # entries: more than the kernel's blocks
BLOCKS = 9_000  # entries: more than two of the blocks in which a whole table is written (TABLE_BLOCK)
seeds, counts = st.integers(0, 2**32 - 1), st.integers(0, 20) | st.integers(0, MAX_PAIRS)


def plainly(function: Any, *arguments: Any) -> Any:
    with patch.object(shard_native, "library", None):
        return function(*arguments)


def pairs(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    receiver, sender = np.divmod(np.sort(rng.permutation(VNS * VNS)[:count]), VNS)
    return sender, receiver


def stretches(rng: np.random.Generator, count: int, kinds: int) -> np.ndarray:
    """Return a kind for each row: rows side by side mostly have the same one, at times each has another."""
    lengths = rng.integers(1, 1 + rng.choice((1, 40, 400)), count)
    return np.repeat(rng.integers(0, kinds, count), lengths)[:count]


@settings(max_examples=200)
@given(seed=seeds, count=counts, reports=st.integers(0, 3))
@example(seed=1, count=BLOCKS, reports=3)
def test_columns_of_all_entries_are_put_together_alike(seed: int, count: int, reports: int) -> None:
    rng = np.random.default_rng(seed)
    sender, receiver = pairs(rng, count)
    part = stretches(rng, count, reports + 1)
    table = ReceiverTable.from_parts([(sender[part == one], receiver[part == one]) for one in range(reports + 1)])
    here = [rng.random(count), rng.integers(0, 2**60, count), rng.random(count) < 0.5]
    said = []
    for one in range(1, reports + 1):
        rows = int(np.count_nonzero(part == one))
        loose = np.frombuffer(bytes(1) + rng.random(rows).tobytes(), "<f8", rows, 1)  # as columns of frames begin
        said.append([loose, rng.integers(0, 2**60, rows), rng.random(rows) < 0.5])
        if rng.random() < 0.5:  # of all that was granted
            whole = rng.random(count)
            whole[table.part_rows[one]] = loose
            said[-1][0] = whole
    own = np.flatnonzero(part == 0)
    for one, plain in zip(table.merged(own, here, said), plainly(table.merged, own, here, said), strict=True):
        assert one.dtype == plain.dtype
        assert one.tobytes() == plain.tobytes()
    under = np.sort(rng.permutation(count)[: count // 2])
    for rows in (under, np.arange(count)):
        assert table.senders(rows, VNS).tolist() == np.bincount(table.entries.receiver[rows], minlength=VNS).tolist()


def machines(rng: np.random.Generator, count: int, states: tuple[MachineState, ...]) -> SendRateControllers:
    control, unheard = rng.choice(ints(states), count), rng.integers(0, 30, count)
    return SendRateControllers(control.astype(np.int8), rng.random(count) * 1e9, unheard.astype(np.int16))


@given(seed=seeds, parts=st.integers(0, 3))
def test_what_is_brought_to_receivers_is_added_up_alike(seed: int, parts: int) -> None:
    rng = np.random.default_rng(seed)
    whole, said, names = rng.random((4, VNS)), [], ("passed_bps", "smoothed_bps", "dropped_bps")
    for _ in range(parts):
        loaded = np.flatnonzero(rng.random(VNS) < 0.7)
        loose = [np.frombuffer(bytes(1) + rng.random(len(loaded)).tobytes(), "<f8", -1, 1) for _ in range(3)]
        said.append(SimpleNamespace(loaded=loaded, **dict(zip(names, loose, strict=True))))
    now, plain = ReceiverLoads(*whole.copy()), ReceiverLoads(*whole.copy())
    add_loads(now, said)
    plainly(add_loads, plain, said)
    for name in names:
        assert getattr(now, name).tobytes() == getattr(plain, name).tobytes()


def ints(values: Any) -> np.ndarray:
    return np.array(values, dtype=np.int64)


STATES = ((MachineState.LIMITED,), (MachineState.IDLE, MachineState.LIMITED), tuple(MachineState))


@settings(max_examples=200)
@given(seed=seeds, count=counts, states=st.sampled_from(STATES), wanted=st.sampled_from((0.0, 0.5, 1.0)))
def test_grants_of_peers_are_obeyed_alike(
    seed: int, count: int, states: tuple[MachineState, ...], wanted: float
) -> None:
    rng = np.random.default_rng(seed)
    entries = PairTable(*pairs(rng, count), np.arange(count))
    to = stretches(rng, VNS, 4)
    crossing = PairPartition.build(entries, to == 0, {one: to == one for one in (1, 2, 3)})
    vns = SimpleNamespace(always_controlled=rng.random(VNS) < wanted / 4, receive_max_bps=rng.random(VNS) * 1e9)
    vns = type("Vns", (SimpleNamespace,), {"__len__": lambda self: VNS})(**vars(vns))
    told, before = ReceivedGrants(VNS), machines(rng, count, states)
    told.congested = rng.random(VNS) < wanted
    if rng.random() < 0.7:  # as it mostly is: under control where that is wanted, and nowhere else
        under = (told.congested | vns.always_controlled)[entries.receiver]
        before = replace(
            before, control=np.where(under, np.maximum(before.control, 1), MachineState.IDLE).astype(np.int8)
        )
    heard, granted = [], []
    for number in (1, 2):
        rows = crossing.remote_rows[number]
        heard.append(PairsToPeer(rows, np.unique(entries.receiver[rows]), bool(rng.random() < 0.8)))
        some = rows if rng.random() < 0.5 else rows[stretches(rng, len(rows), 3) > 0]
        loose = np.frombuffer(bytes(1) + rng.random(len(some)).tobytes(), "<f8", len(some), 1)
        granted.append(SetRate(some, loose))
    kept = [np.flatnonzero(to[entries.receiver] == one) for one in (0, 3)]
    arguments = before, entries, None, vns, heard, granted, kept
    now, plain = told.apply_grants(*arguments), plainly(told.apply_grants, *arguments)
    for name in ("control", "limit_bps", "intervals_since_message"):
        assert getattr(now, name).tobytes() == getattr(plain, name).tobytes()


@settings(max_examples=200)
@given(seed=seeds, count=counts, share=st.sampled_from((0.0, 0.5, 0.97, 1.0)), under=st.sampled_from((0.9, 1.0)))
@example(seed=1, count=BLOCKS, share=0.5, under=0.9)
@example(seed=1, count=BLOCKS, share=0.5, under=1.0)
def test_answers_are_made_and_told_to_own_senders_alike(seed: int, count: int, share: float, under: float) -> None:
    rng = np.random.default_rng(seed)
    sender, receiver = pairs(rng, count)
    part, own = stretches(rng, count, 3), np.arange(count)
    table = ReceiverTable.from_parts([(sender[part == one], receiver[part == one]) for one in range(3)])
    own = np.sort(rng.permutation(2 * count)[: len(table.part_rows[0])])
    rows = np.flatnonzero((stretches(rng, count, 4) > 0) | (under == 1.0))
    reports = SimpleNamespace(entry=rows, limit_bps=rng.random(len(rows)) * 1e9)
    is_set = (stretches(rng, len(rows), 2) == 0) & (rng.random(len(rows)) < share) | (share == 1.0)
    set_rate = SetRate(rows[is_set], rng.random(np.count_nonzero(is_set)) * 1e9)
    arguments: Any = table, reports, set_rate, ()
    now, plain = GrantReplies.build(*arguments), plainly(GrantReplies.build, *arguments)
    assert (now.rate_bps.tobytes(), now.changed.tobytes()) == (plain.rate_bps.tobytes(), plain.changed.tobytes())
    for found, wanted in zip(now.for_local_senders(own), plainly(plain.for_local_senders, own), strict=True):
        for name in type(wanted).__slots__:
            assert getattr(found, name).tobytes() == getattr(wanted, name).tobytes()


@given(seed=seeds, count=counts, wrong=st.integers(0, 2))
def test_limits_in_force_are_recognized_alike(seed: int, count: int, wrong: int) -> None:
    rng = np.random.default_rng(seed)
    place, own = (np.sort(rng.permutation(3 * count)[:count]) for _ in range(2))
    if rng.random() < 0.5:
        place, own = np.arange(count) + 5, np.arange(count) + 7
    rate_bps, own_bps = rng.random((2, 3 * count + 7))
    own_bps[own] = rate_bps[place]
    own_bps[own[rng.integers(0, count, wrong if count else 0)]] = 2.0
    same = np.array_equal(rate_bps[place], own_bps[own])
    assert shard_native.same(rate_bps, place, own_bps, own) is same is (not wrong or not count)


def test_a_column_of_another_width_is_refused() -> None:
    """It would be read beyond its end."""
    rows, short, wide = np.arange(3), np.zeros(3, np.int16), np.zeros(3)
    with pytest.raises(TypeError, match="int16"):
        shard_native.merge([rows], rows, [wide, short], [])
    with pytest.raises(TypeError, match="int16"):
        shard_native.merge([rows[:2], rows[2:]], rows[:2], [wide], [[short]])
