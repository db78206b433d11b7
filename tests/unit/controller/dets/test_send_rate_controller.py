"""The state machine of a (sending VN, receiving VN): every transition of DETS, figure 4."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.configs import star

from controller.columns import MAX_COUNTED
from controller.dets.messages import DeactivateTrafficControl, InitializeTrafficControl, KeepAlive, SetRate
from controller.dets.send_rate_controller import (
    KEEP_ALIVE_INTERVALS,
    MachineState,
    SendRateControllers,
    traffic_reports,
)
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.metering.measurement import Measurement

ROW = np.array([1])
INITIALIZE, KEEP = InitializeTrafficControl(ROW), KeepAlive(ROW)
SET, DEACTIVATE = SetRate(ROW, np.array([5e6])), DeactivateTrafficControl(ROW)


def machines(control, limit_bps=np.inf, unheard=7):
    """Three machines, of which the one in the middle is looked at."""
    return SendRateControllers(
        np.array([MachineState.IDLE, control, MachineState.LIMITED], np.int8),
        np.array([np.inf, limit_bps, 1e6]),
        np.array([3, unheard, 3], np.int16),
    )


def deliver(state, message):
    handlers = {
        InitializeTrafficControl: state.on_initialize,
        SetRate: state.on_set_rate,
        KeepAlive: state.on_keep_alive,
        DeactivateTrafficControl: state.on_deactivate,
    }
    return handlers[type(message)](message)


def test_an_idle_machine_is_not_limited():
    state = deliver(machines(MachineState.IDLE), SET)
    assert (state.control[1], state.limit_bps[1], state.intervals_since_message[1]) == (MachineState.IDLE, np.inf, 7)


@pytest.mark.parametrize(
    ("control", "limit_bps", "message", "after", "after_bps"),
    [
        (MachineState.IDLE, np.inf, INITIALIZE, MachineState.REPORTING, np.inf),
        (MachineState.IDLE, np.inf, KEEP, MachineState.IDLE, np.inf),
        (MachineState.IDLE, np.inf, DEACTIVATE, MachineState.IDLE, np.inf),
        (MachineState.REPORTING, np.inf, SET, MachineState.LIMITED, 5e6),
        (MachineState.REPORTING, np.inf, INITIALIZE, MachineState.REPORTING, np.inf),
        (MachineState.LIMITED, 9e6, INITIALIZE, MachineState.LIMITED, 9e6),
        (MachineState.REPORTING, np.inf, KEEP, MachineState.REPORTING, np.inf),
        (MachineState.REPORTING, np.inf, DEACTIVATE, MachineState.IDLE, np.inf),
        (MachineState.LIMITED, 9e6, SET, MachineState.LIMITED, 5e6),
        (MachineState.LIMITED, 9e6, KEEP, MachineState.LIMITED, 9e6),
        (MachineState.LIMITED, 9e6, DEACTIVATE, MachineState.IDLE, np.inf),
    ],
)
def test_transitions(control, limit_bps, message, after, after_bps):
    before = machines(control, limit_bps)
    state = deliver(before, message)
    assert (state.control[1], state.limit_bps[1], state.intervals_since_message[1]) == (after, after_bps, 0)
    for row in (0, 2):  # and nobody else's
        assert state.control[row] == before.control[row]
        assert state.limit_bps[row] == before.limit_bps[row]
        assert state.intervals_since_message[row] == 3
    assert before.control[1] == control  # the old state stands


@pytest.mark.parametrize("control", [MachineState.REPORTING, MachineState.LIMITED])
def test_a_receiver_that_vanished_limits_nobody_for_ever(control):
    state = machines(control, 9e6, unheard=0)
    for _ in range(KEEP_ALIVE_INTERVALS):
        state = state.on_interval()
        assert state.control[1] == control
    state = state.on_interval()
    assert (state.control[1], state.limit_bps[1]) == (MachineState.IDLE, np.inf)


def test_a_machine_that_holds_keeps_its_rate_while_nobody_answers():
    """Its policy fails closed; the other one is free after KEEP_ALIVE_INTERVALS."""
    both = np.array([0, 1])
    state = SendRateControllers.initial(2).on_initialize(InitializeTrafficControl(both))
    state = state.on_set_rate(SetRate(both, np.array([5e6, 5e6])))
    for _ in range(KEEP_ALIVE_INTERVALS + 1):
        state = state.on_interval(np.array([True, False]))
    assert state.limit_bps.tolist() == [5e6, np.inf]


def test_keep_alive_and_set_rate_put_the_expiry_off():
    state = machines(MachineState.LIMITED, 9e6, unheard=0)
    for number in range(5 * KEEP_ALIVE_INTERVALS):
        state = state.on_interval()
        if number % KEEP_ALIVE_INTERVALS == KEEP_ALIVE_INTERVALS - 1:
            state = deliver(state, KEEP if number % 2 else SET)
    assert state.control[1] == MachineState.LIMITED
    assert state.control[2] == MachineState.IDLE


def test_controlled_is_whoever_is_not_idle():
    assert machines(MachineState.REPORTING).controlled.tolist() == [False, True, True]


def test_reports():
    """Two senders; the first sends 60 of its 100 Mb/s elsewhere, and its burst went beyond its limit."""
    vns = VnTable.from_config(star(3, limits={10: "100M"}))
    entries, _ = PairTable.empty().add(np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([4, 5, 6]))
    passed = np.array([60e6, 50e6, 10e6])
    measured = Measurement(passed * 2, np.array([0.0, 7e6, 0.0]), passed, passed, np.array([0, 0, 99], np.int16))
    state = SendRateControllers(
        np.array([MachineState.IDLE, MachineState.LIMITED, MachineState.REPORTING], np.int8),
        np.array([np.inf, 40e6, np.inf]),
        np.zeros(3, np.int16),
    )
    report = traffic_reports(state, np.array([1, 2]), entries, vns, measured)
    assert report.entry.tolist() == [1, 2]
    assert report.measured_bps.tolist() == [40e6, 10e6]
    assert report.limit_bps.tolist() == [40e6, np.inf]
    assert report.available_bps.tolist() == [40e6, 100e6]
    assert report.dropped_bps.tolist() == [7e6, 0.0]
    assert report.drops.tolist() == [True, False]
    assert report.active.tolist() == [True, False]


def test_who_sends_more_than_its_limit_elsewhere_has_nothing_left():
    vns = VnTable.from_config(star(3, limits={10: "100M"}))
    entries, _ = PairTable.empty().add(np.array([0, 0]), np.array([1, 2]), np.array([4, 5]))
    passed = np.array([130e6, 0.0])
    measured = Measurement(passed, passed * 0, passed, passed, np.zeros(2, np.int16))
    report = traffic_reports(SendRateControllers.initial(2), np.array([1]), entries, vns, measured)
    assert report.available_bps.tolist() == [0.0]


@given(seed=st.integers(0, 2**32 - 1), entries=st.integers(0, 60))
def test_the_rows_under_control_are_kept_no_longer_than_they_hold(seed: int, entries: int) -> None:
    rng = np.random.default_rng(seed)
    unheard = rng.choice([0, 1, KEEP_ALIVE_INTERVALS - 1, KEEP_ALIVE_INTERVALS, MAX_COUNTED], entries)
    limit_bps = np.where(rng.random(entries) < 0.3, np.inf, rng.random(entries) * 1e8)
    before = SendRateControllers(rng.integers(0, 3, entries).astype(np.int8), limit_bps, unheard.astype(np.int16))
    assert len(before.rows) == np.count_nonzero(before.controlled)  # both are kept from now on
    told = rng.random(entries)
    set_rows, alive = np.flatnonzero(told < 0.4), np.flatnonzero((told > 0.3) & (told < 0.8))
    messages = SetRate(set_rows, rng.random(len(set_rows)) * 1e8), KeepAlive(alive)
    obeying, _ = before.after_messages(*messages, rng.random(entries) * 1e8)
    for after in (obeying, before.on_interval(), before.on_interval(rng.random(entries) < 0.5)):
        np.testing.assert_array_equal(after.rows, np.flatnonzero(after.control))
        np.testing.assert_array_equal(after.controlled, after.control != MachineState.IDLE)
