"""What idle senders' meters may let through depends on how often they are read, not on when they were read last."""

from __future__ import annotations

import numpy as np
import pytest

from controller.columns import FloatArray
from controller.metering.measurement import Measurement
from controller.metering.receive_budgets import (
    ALLOWED,
    ALLOWED_PRESSED,
    EXCESS_S,
    INTERVALS,
    MAX_HORIZON_S,
    REACTION_S,
    ReceiveBudgets,
)

SENDERS = 5
LIMIT_BPS = np.full(1, 50e6)


def idle_rates(intervals_s: list[float]) -> list[FloatArray]:
    """Return the rates of the meters of idle senders of one receiver after each interval."""
    budgets, now_s, rates = ReceiveBudgets.initial(1), 100.0, []
    receiver, grant_bps, credit_bits = np.zeros(SENDERS, np.int64), np.full(SENDERS, 50e6), np.full(SENDERS, 15e6)
    for interval_s in intervals_s:
        now_s += interval_s
        budgets, remaining = budgets.received(np.zeros(1), np.zeros(1), LIMIT_BPS, LIMIT_BPS, now_s)
        rates.append(remaining.share(receiver, grant_bps, credit_bits, Measurement.initial(SENDERS))[0])
    return rates


@pytest.mark.parametrize("late_s", [[0.11], [0.5, 0.06, 0.2], [5.0]])
def test_a_few_late_readings_change_no_idle_meter(late_s: list[float]) -> None:
    rates = idle_rates([0.055] * 6 + late_s + [0.055] * 6)
    for rate_bps in rates[4:]:
        assert rate_bps == pytest.approx(rates[3])


def test_readings_that_stay_late_lower_idle_meters() -> None:
    rates = idle_rates([0.055] * 6 + [0.11] * INTERVALS)
    assert rates[-1] == pytest.approx(rates[3] * (0.055 + REACTION_S) / (0.11 + REACTION_S))


def room_bits(dropped_share: float) -> FloatArray:
    """Return what may come until the next reading at each of 60, when senders lose so much at the 31st."""
    budgets, now_s, found = ReceiveBudgets.initial(1), 100.0, []
    for reading in range(60):
        now_s += 0.05
        dropped_bps = LIMIT_BPS * dropped_share * (reading == 30)
        budgets, remaining = budgets.received(LIMIT_BPS * 0.05, dropped_bps, LIMIT_BPS, LIMIT_BPS, now_s)
        found.append(remaining.free_bits[0])
    return np.concatenate(found)


@pytest.mark.parametrize(("dropped_share", "presses"), [(0.69, False), (0.71, True)])
def test_senders_that_press_on_have_less_room_for_a_second(dropped_share: float, presses: bool) -> None:
    less_bits = room_bits(0.0) - room_bits(dropped_share)
    assert less_bits[30:50] == pytest.approx((ALLOWED - ALLOWED_PRESSED) * LIMIT_BPS[0] * presses)
    assert not less_bits[:30].any()
    assert not less_bits[51:].any()


@pytest.mark.parametrize("interval_s", [0.01, 0.055, 0.11, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 10.0])
def test_senders_with_the_whole_limit_keep_it_at_any_interval(interval_s: float) -> None:
    budgets, now_s = ReceiveBudgets.initial(1), 100.0
    for _ in range(60):
        now_s += interval_s
        budgets, remaining = budgets.received(LIMIT_BPS * interval_s, np.zeros(1), LIMIT_BPS, LIMIT_BPS, now_s)
    assert (remaining.free_bits >= LIMIT_BPS * remaining.ahead_s[:, None]).all()
    assert remaining.lasting_bits > LIMIT_BPS * remaining.ahead_s[0], "and there is something to grow by"


@pytest.mark.parametrize("interval_s", [0.055, 0.2, 0.5, 1.0])
def test_a_burst_counts_until_a_window_has_passed(interval_s: float) -> None:
    """At an interval like the window, it counts in the next one."""
    budgets, now_s, found = ReceiveBudgets.initial(1), 100.0, []
    for reading in range(60):
        now_s += interval_s
        bits = LIMIT_BPS * (interval_s + 0.3 * (reading == 30))
        budgets, remaining = budgets.received(bits, np.zeros(1), LIMIT_BPS, LIMIT_BPS, now_s)
        found.append(remaining.lasting_bits / LIMIT_BPS)
    less = found[29] - np.concatenate(found[30:])
    assert less[: max(int(0.75 / interval_s), 1)].min() > 0.2
    assert abs(less[int(np.ceil((1.0 + interval_s) / interval_s)) + 1 :]).max() < 0.1


def received_limits(seconds: float) -> float:
    """Return what a receiver gets above its limit, in seconds of it, whose senders take all that they may.

    They stop for a quarter of each second, as TCP does that waits for its time-outs.
    """
    budgets, now_s, bits, total_bits = ReceiveBudgets.initial(1), 100.0, np.zeros(1), 0.0
    for reading in range(round(seconds / 0.05)):
        budgets, remaining = budgets.received(bits, np.zeros(1), LIMIT_BPS, LIMIT_BPS, now_s)
        now_s += 0.05
        bits = np.maximum(remaining.free_bits[0], 0.0) * (reading % 20 >= 5)
        total_bits += bits[0]
    return float(total_bits / LIMIT_BPS[0] - seconds)


def test_no_receiver_exceeds_its_limit_for_long() -> None:
    assert received_limits(10.0) > 0.2
    assert received_limits(100.0) < EXCESS_S
    assert received_limits(100.0) == pytest.approx(received_limits(50.0), abs=0.3)


def test_what_exceeded_the_limit_is_forgotten_when_as_much_less_arrives() -> None:
    budgets = ReceiveBudgets.initial(1)
    steps = ((100.0, 0.0, 0.0), (101.0, 1.5, 0.5), (102.0, 9.0, EXCESS_S), (103.0, 0.0, EXCESS_S - 1))
    for now_s, share, expected_s in steps:
        budgets, _ = budgets.received(LIMIT_BPS * share, np.zeros(1), LIMIT_BPS, LIMIT_BPS, now_s)
        assert budgets.excess_bits / LIMIT_BPS == pytest.approx(expected_s)
    budgets, _ = budgets.received(np.zeros(1), np.zeros(1), LIMIT_BPS, LIMIT_BPS, 200.0)
    assert budgets.excess_bits == 0.0


def test_the_first_readings_are_taken_as_they_come() -> None:
    budgets = ReceiveBudgets.initial(1)
    assert budgets.horizon_s(100.0) == MAX_HORIZON_S + REACTION_S
    for now_s, expected_s in ((100.0, 0.04), (100.04, 0.04), (100.1, 0.05), (100.15, 0.05)):
        budgets = budgets.updated(np.zeros(1), LIMIT_BPS, now_s)
        assert budgets.horizon_s(now_s + expected_s) == pytest.approx(expected_s + REACTION_S)
