"""The compiled form of machines and messages gives the same bits as the numpy form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels import numpy_alone, same

from controller.columns import MOST_COUNTED
from controller.dets import machines_kernel
from controller.dets.messages import KeepAlive, Loads, SetRate
from controller.dets.rate_allocator import RateAllocators, initialize, watch_congestion
from controller.dets.send_rate_controller import KEEP_ALIVE_INTERVALS, SendRateControllers
from controller.fabric.entries import EntryTable

pytestmark = pytest.mark.skipif(machines_kernel.library is None, reason="no C compiler was there when it was installed")

SEEDS, SIZES = st.integers(0, 2**32 - 1), st.integers(0, 700)


def machines(rng: np.random.Generator, entries: int) -> SendRateControllers:
    """Machines in any state, some of which have not been heard for long."""
    unheard = rng.choice([0, 1, KEEP_ALIVE_INTERVALS - 1, KEEP_ALIVE_INTERVALS, MOST_COUNTED], entries)
    limit_bps = np.where(rng.random(entries) < 0.3, np.inf, rng.random(entries) * 1e8)
    return SendRateControllers(rng.integers(0, 3, entries).astype(np.int8), limit_bps, unheard.astype(np.int16))


class _Vns:
    """What watch_congestion asks of a table."""

    def __init__(self, receive_most_bps: Any) -> None:
        self.receive_most_bps = receive_most_bps


@given(seed=SEEDS, entries=SIZES, holds=st.booleans())
def test_counting_is_the_same(seed: int, entries: int, holds: bool) -> None:
    rng = np.random.default_rng(seed)
    before = machines(rng, entries)
    holding = rng.random(entries) < 0.5 if holds else False
    after = before.on_interval(holding)
    with numpy_alone():
        plain = before.on_interval(holding)
    same(after, plain)
    np.testing.assert_array_equal(after.rows, np.flatnonzero(plain.controlled))


@given(seed=SEEDS, entries=SIZES)
def test_obeying_is_the_same(seed: int, entries: int) -> None:
    rng = np.random.default_rng(seed)
    before, ceiling_bps = machines(rng, entries), rng.random(entries) * 1e8
    assert len(before.rows) <= entries
    told = rng.random(entries)
    set_rows, alive = np.flatnonzero(told < 0.4), np.flatnonzero((told > 0.3) & (told < 0.8))
    messages = SetRate(set_rows, rng.random(len(set_rows)) * 1e8), KeepAlive(alive)
    after, in_force_bps = before.obeying(*messages, ceiling_bps)
    with numpy_alone():
        plain, plainly_bps = before.obeying(*messages, ceiling_bps)
    same(after, plain)
    assert in_force_bps.tobytes() == plainly_bps.tobytes()
    np.testing.assert_array_equal(after.rows, np.flatnonzero(plain.controlled))


@given(seed=SEEDS, vns=SIZES)
def test_congestion_is_the_same(seed: int, vns: int) -> None:
    rng = np.random.default_rng(seed)
    most_bps = rng.random(vns) * 1e8
    times = (rng.choice([0.0, 0.5, 0.9, 1.0, 1.02, 1.5], vns) for _ in range(2))
    passed_bps, smoothed_bps = (part * most_bps for part in times)
    loads = Loads(passed_bps, smoothed_bps, rng.choice([0.0, 1.0], vns, p=[0.8, 0.2]), np.zeros(vns))
    before = RateAllocators(rng.random(vns) < 0.5, rng.integers(17, 21, vns), ())
    table: Any = _Vns(most_bps)
    after = watch_congestion(before, loads, table)
    with numpy_alone():
        plain = watch_congestion(before, loads, table)
    np.testing.assert_array_equal(after.congested, plain.congested)
    np.testing.assert_array_equal(after.calm_intervals, plain.calm_intervals)
    assert (after.congested is before.congested) == np.array_equal(plain.congested, before.congested)


@given(seed=SEEDS, entries=SIZES)
def test_first_messages_are_the_same(seed: int, entries: int) -> None:
    rng = np.random.default_rng(seed)
    vns = 9
    receiver = np.sort(rng.integers(0, vns, entries))
    table = EntryTable(rng.integers(0, vns, entries), receiver, np.arange(1, entries + 1))
    congested, always, controlled = (rng.random(size) < part for size, part in ((vns, 0.4), (vns, 0.2), (entries, 0.5)))
    allocators = RateAllocators(congested, np.zeros(vns, dtype=np.int64), ())
    found = initialize(allocators, table, controlled, always)
    with numpy_alone():
        plain = initialize(allocators, table, controlled, always)
    for one, other in zip(found, plain, strict=True):
        same(one, other)
