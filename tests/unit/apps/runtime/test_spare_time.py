"""Work that can wait and the control loop share one thread: whose turn it is when, on a manual clock."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from apps.runtime.spare_time import LEAST_SLEEP_S, RESERVE_S, SpareTime

INTERVAL_S = 0.055


class Process:
    """A clock, and an event; whoever waits for either lets the time pass.

    A round begins and ends at ``begins_s`` and ``round_ends_s``.
    """

    def __init__(self) -> None:
        self.now_s, self.begins_s, self.round_ends_s, self.idle = 0.0, float("inf"), float("inf"), True
        self.at_work: AbstractContextManager[None] | None = None
        self.spare = SpareTime(INTERVAL_S, lambda: self.now_s, self.sleep, self)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.idle and self.now_s >= self.begins_s:  # whoever sleeps lets the loop come round
            self.begins_s, self.at_work = float("inf"), self.spare.round()
            self.at_work.__enter__()

    def set(self) -> None:
        self.idle = True

    def clear(self) -> None:
        self.idle = False

    def is_set(self) -> bool:
        return self.idle

    def wait(self, timeout_s: float) -> None:
        self.now_s = min(self.now_s + timeout_s, max(self.round_ends_s, self.now_s))
        self.idle = self.now_s >= self.round_ends_s


def test_between_rounds_nobody_waits() -> None:
    process = Process()
    with process.spare.round():
        process.now_s = 0.020
    process.spare.sleep(0.0)
    assert process.now_s == 0.020
    process.spare.sleep(0.010)
    assert process.now_s == pytest.approx(0.030)


def test_during_a_round_work_waits_for_its_end() -> None:
    process = Process()
    process.round_ends_s = 0.030
    with process.spare.round():
        process.now_s = 0.002
        process.spare.sleep(0.0)
        assert process.now_s == 0.030


def test_work_goes_on_while_a_round_waits() -> None:
    process = Process()
    process.round_ends_s = 0.030
    with process.spare.round():
        process.now_s = 0.002
        with process.spare.waiting():
            process.spare.sleep(0.0)
            assert process.now_s == 0.002
        process.spare.sleep(0.0)
        assert process.now_s == 0.030


@pytest.mark.parametrize("early_s", [RESERVE_S / 2, 0.0, -0.02])
def test_work_waits_for_a_round_that_is_about_to_begin_or_late(early_s: float) -> None:
    process = Process()
    with process.spare.round():
        process.now_s = 0.010
    process.begins_s, process.round_ends_s = INTERVAL_S, INTERVAL_S + 0.030
    process.now_s = INTERVAL_S - early_s
    process.spare.sleep(0.0)
    assert process.now_s == process.round_ends_s


def test_nobody_waits_longer_than_an_interval_for_a_round_that_does_not_come() -> None:
    process = Process()
    with process.spare.round():
        process.now_s = 0.010
    process.now_s = INTERVAL_S + 0.001
    process.spare.sleep(0.0)
    assert process.now_s == pytest.approx(2 * INTERVAL_S, abs=LEAST_SLEEP_S)


def test_nobody_waits_longer_than_an_interval_when_rounds_leave_nothing() -> None:
    process = Process()
    with process.spare.round():
        process.now_s = 0.001
        process.spare.sleep(0.0)
        assert process.now_s == pytest.approx(0.001 + INTERVAL_S)


def test_nobody_waits_where_rounds_take_longer_than_their_interval() -> None:
    process = Process()
    with process.spare.round():
        process.now_s = 2 * INTERVAL_S
    with process.spare.round():
        process.spare.wait()
        assert process.now_s == 2 * INTERVAL_S
    process.spare.wait()
    assert not process.spare._overloaded


def test_a_late_round_stops_nobody() -> None:
    process = Process()
    with process.spare.round():
        pass
    process.now_s = 10 * INTERVAL_S
    process.spare.sleep(0.0)
    assert process.now_s == 10 * INTERVAL_S


def test_a_round_that_fails_has_ended_as_well() -> None:
    process = Process()
    with pytest.raises(ZeroDivisionError), process.spare.round():
        raise ZeroDivisionError
    assert process.is_set()
