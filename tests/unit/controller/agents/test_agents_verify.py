"""What agents report, compared with what their backstop meters count."""

from __future__ import annotations

import numpy as np
import pytest

from controller.agents.verification import WINDOW_INTERVALS, Verification

INTERVAL_S = 0.05
RATE_BPS = 20e6
OCTETS = RATE_BPS * INTERVAL_S / 8


def lies(read_at, *, counted=1.0, reported=1.0, late_s=0.0, intervals=200):
    """Whether an agent ever lied; its meter counts ``counted`` times its grant, it reports ``reported`` times that.

    The meter is read where ``read_at`` says so, and then as it was up to ``late_s`` before: the later, the fuller the
    switch's queue is, which fills and empties by turns.
    """
    one, lied = Verification.initial(1), False
    for number in range(intervals):
        at_s = number * INTERVAL_S - (late_s if number // 30 % 2 else 0.0)
        reading = np.array([counted * RATE_BPS / 8 * at_s, at_s]) if read_at(number) else np.full(2, np.nan)
        told = (np.full(1, reported * OCTETS), np.full(1, RATE_BPS), INTERVAL_S)
        lied |= bool(one.updated(np.ones(1, dtype=bool), reading[:1], reading[1:], *told)[0])
    return lied


def always(_number):
    return True


def seldom(number):
    return number % 23 == 7


@pytest.mark.parametrize("read_at", [always, seldom])
@pytest.mark.parametrize("late_s", [0.0, 12 * INTERVAL_S])
def test_an_honest_agent_is_believed_however_a_busy_switch_answers(read_at, late_s) -> None:
    assert not lies(read_at, late_s=late_s)


@pytest.mark.parametrize("read_at", [always, seldom])
@pytest.mark.parametrize("late_s", [0.0, 12 * INTERVAL_S])
@pytest.mark.parametrize(("counted", "reported"), [(1.2, 1.2), (1.0, 0.8)])
def test_one_that_sends_more_than_it_was_granted_or_reports_is_not(read_at, late_s, counted, reported) -> None:
    assert lies(read_at, late_s=late_s, counted=counted, reported=reported)


def test_it_takes_a_window() -> None:
    assert not lies(always, counted=2.0, intervals=WINDOW_INTERVALS)
    assert lies(always, counted=2.0, intervals=WINDOW_INTERVALS + 1)


@pytest.mark.parametrize("falls_at", range(20, 44))
def test_an_honest_agent_is_believed_when_its_grant_falls_to_a_tenth(falls_at) -> None:
    """The rate reaches the agent 20 ms after the reading: so long it sends at the one before."""
    one, sent, delay = Verification.initial(1), 0.0, 0.4
    for number in range(falls_at + 2 * WINDOW_INTERVALS):
        granted, was = (10 * OCTETS if at < falls_at else OCTETS for at in (number, number - 1))
        octets = delay * was + (1 - delay) * granted
        sent += octets
        reading = np.array([sent]), np.array([number * INTERVAL_S])
        limit_bps = np.array([granted * 8 / INTERVAL_S])
        lied = one.updated(np.ones(1, dtype=bool), *reading, np.array([octets]), limit_bps, INTERVAL_S)
        assert not lied.any()
