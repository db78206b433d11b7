"""The state machine of a (sending VN, receiving VN): every transition of DETS, figure 4."""

from __future__ import annotations

import numpy as np
import pytest
from support.configs import star

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


@pytest.mark.parametrize(
    ("control", "limit_bps", "message", "after", "after_bps"),
    [
        (MachineState.IDLE, np.inf, INITIALIZE, MachineState.REPORTING, np.inf),
        (MachineState.IDLE, np.inf, SET, MachineState.IDLE, np.inf),  # is not limited, and has not heard of it
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
    unheard = 7 if (control, message) == (MachineState.IDLE, SET) else 0
    assert (state.control[1], state.limit_bps[1], state.intervals_since_message[1]) == (after, after_bps, unheard)
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


def test_reports():
    """Senders 0 and 1: the first sends 60 of its 100 Mb/s elsewhere, and its burst went beyond its limit (III.A).

    Sender 2 sends more than it may to VN 1, and has nothing left for VN 0.
    """
    vns = VnTable.from_config(star(3, limits={10: "100M"}))
    sender, receiver = np.array([2, 0, 2, 0, 1]), np.array([0, 1, 1, 2, 2])
    entries, _ = PairTable.empty().add(sender, receiver, np.arange(4, 9))
    passed = np.array([0.0, 60e6, 130e6, 50e6, 10e6])
    measured = Measurement(
        passed * 2, np.array([0.0, 0.0, 0.0, 7e6, 0.0]), passed, passed, np.array([0, 0, 0, 0, 99], np.int16)
    )
    limited, reporting = MachineState.LIMITED, MachineState.REPORTING
    state = SendRateControllers(
        np.array([reporting, MachineState.IDLE, reporting, limited, reporting], np.int8),
        np.array([np.inf, np.inf, np.inf, 40e6, np.inf]),
        np.zeros(5, np.int16),
    )
    report = traffic_reports(state, np.array([0, 3, 4]), entries, vns, measured)
    assert report.entry.tolist() == [0, 3, 4]
    assert report.measured_bps.tolist() == [0.0, 40e6, 10e6]
    assert report.limit_bps.tolist() == [np.inf, 40e6, np.inf]
    assert report.available_bps.tolist() == [0.0, 40e6, 100e6]
    assert report.dropped_bps.tolist() == [0.0, 7e6, 0.0]
    assert report.drops.tolist() == [False, True, False]
    assert report.active.tolist() == [True, True, False]
