"""The compiled messages between senders and receivers against their numpy form: the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.configs import star
from support.native_comparison import numpy_alone, same

from controller.columns import MAX_COUNTED
from controller.dets.messages import KeepAlive, ReceiverLoads, SetRate, TrafficReport
from controller.dets.rate_allocator import SAME_RATE, RateAllocators, _messages, watch_congestion
from controller.dets.send_rate_controller import (
    KEEP_ALIVE_INTERVALS,
    MachineState,
    SendRateControllers,
    traffic_reports,
)
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.metering import measurement_native
from controller.metering.measurement import Measurement

pytestmark = pytest.mark.skipif(measurement_native.library is None, reason="the kernel was not built")
SEEDS, SIZES = st.integers(0, 2**32 - 1), st.integers(0, 300)


def machines(rng: np.random.Generator, entries: int) -> SendRateControllers:
    """Machines in any state, with and without limits."""
    limit_bps = np.where(rng.random(entries) < 0.3, np.inf, rng.random(entries) * 1e9)
    unheard = rng.choice([0, 1, KEEP_ALIVE_INTERVALS - 1, KEEP_ALIVE_INTERVALS, MAX_COUNTED], entries)
    made = SendRateControllers(rng.integers(0, 3, entries).astype(np.int8), limit_bps, unheard.astype(np.int16))
    check_rows(made)  # which are kept from now on
    return made


def check_rows(state: SendRateControllers) -> None:
    """What is kept of who is under control holds."""
    np.testing.assert_array_equal(state.rows, np.flatnonzero(state.control))
    np.testing.assert_array_equal(state.controlled, state.control != MachineState.IDLE)


@given(seed=SEEDS, entries=SIZES, everybody=st.booleans())
def test_reports_are_the_same(seed: int, entries: int, everybody: bool) -> None:
    rng, vns = np.random.default_rng(seed), VnTable.from_config(star(3))
    ends = rng.integers(0, len(vns), (2, entries))
    table = PairTable(ends[0], np.sort(ends[1]), np.arange(entries))
    rates_bps = np.where(rng.random((4, entries)) < 0.2, 0.0, rng.random((4, entries)) * 1e9)
    measured = Measurement(*rates_bps, rng.integers(0, 20, entries, dtype=np.int16))
    state, rows = machines(rng, entries), np.flatnonzero(everybody | (rng.random(entries) < 0.5))
    report = traffic_reports(state, rows, table, vns, measured)
    with numpy_alone():
        same(report, traffic_reports(state, rows, table, vns, measured))


@given(seed=SEEDS, entries=SIZES, holds=st.booleans())
def test_counting_is_the_same(seed: int, entries: int, holds: bool) -> None:
    rng = np.random.default_rng(seed)
    before, holding = machines(rng, entries), rng.random(entries) < 0.5 if holds else False
    after = before.on_interval(holding)
    check_rows(after)
    with numpy_alone():
        same(after, before.on_interval(holding))


@given(seed=SEEDS)
def test_congestion_is_the_same(seed: int) -> None:
    rng, vns = np.random.default_rng(seed), VnTable.from_config(star(6))
    rates_bps = (rng.choice([0.0, 0.5, 0.9, 1.0, 1.02, 1.5], len(vns)) * vns.receive_max_bps for _ in range(2))
    dropped_bps = rng.choice([0.0, 1.0], len(vns), p=[0.8, 0.2])
    loads = ReceiverLoads(*rates_bps, dropped_bps, np.zeros(len(vns)))
    before = RateAllocators(rng.random(len(vns)) < 0.5, rng.integers(17, 21, len(vns)), ())
    after = watch_congestion(before, loads, vns)
    with numpy_alone():
        plain = watch_congestion(before, loads, vns)
    np.testing.assert_array_equal(after.congested, plain.congested)
    np.testing.assert_array_equal(after.calm_intervals, plain.calm_intervals)
    assert (after.congested is before.congested) == np.array_equal(plain.congested, before.congested)


@given(seed=SEEDS, entries=SIZES)
def test_answers_are_the_same(seed: int, entries: int) -> None:
    rng = np.random.default_rng(seed)
    limit_bps = np.where(rng.random(entries) < 0.2, np.inf, rng.random(entries) * 1e9)
    factor = rng.choice([1.0, 1.0 + SAME_RATE, 1.0 - SAME_RATE, 1.0 + 3 * SAME_RATE, 0.0, 2.0], entries)
    grants_bps = np.minimum(limit_bps, 1e9) * factor
    rows, nothing = np.arange(entries) * 2, np.zeros(entries)
    said = TrafficReport(rows, nothing, nothing, nothing > 0, limit_bps, nothing, nothing > 0)
    made = _messages(said, grants_bps)
    with numpy_alone():
        for message, plain in zip(made, _messages(said, grants_bps), strict=True):
            same(message, plain)


@given(seed=SEEDS, entries=SIZES, set_share=st.sampled_from([0.0, 0.4, 1.0]))
def test_obeying_is_the_same(seed: int, entries: int, set_share: float) -> None:
    rng = np.random.default_rng(seed)
    before, ceiling_bps, told = machines(rng, entries), rng.random(entries) * 1e9, rng.random(entries)
    set_rows, alive = np.flatnonzero(told < set_share), np.flatnonzero((told > 0.3) & (told < 0.8))
    messages = SetRate(set_rows, rng.random(len(set_rows)) * 1e9), KeepAlive(alive)
    after, effective_bps = before.after_messages(*messages, ceiling_bps)
    check_rows(after)
    with numpy_alone():
        plain, plainly_bps = before.after_messages(*messages, ceiling_bps)
    same(after, plain)
    assert effective_bps.tobytes() == plainly_bps.tobytes()
    assert (after.control is before.control) == np.array_equal(plain.control, before.control)
