"""Loops go on whatever happens in them, and it can be told how they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from apps.runtime.supervisor import HANG_TIMEOUT_S, RESTART_PAUSE_S, Supervisor


class Stopped(BaseException):
    """Ends a loop that would go on for ever."""


class Desk:
    """A supervisor whose loops run by hand; sleeping makes the time pass, and too much of it ends the loop."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.end_s = 101.0
        self.started: list[Callable[[], None]] = []
        self.killed: list[object] = []
        self.supervisor = Supervisor(lambda: self.now_s, self._spawn, self.sleep, self.killed.append)

    def _spawn(self, loop: Callable[[], None]) -> Callable[[], None]:
        self.started.append(loop)
        return loop

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0.0
        self.now_s += seconds
        if self.now_s > self.end_s:
            raise Stopped

    def run(self) -> None:
        for loop in self.started:
            with pytest.raises(Stopped):
                loop()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_loop_comes_round_at_its_pace_whatever_its_rounds_take(desk: Desk) -> None:
    rounds: list[float] = []

    def work() -> None:
        rounds.append(desk.now_s)
        desk.now_s += 0.04 if len(rounds) != 4 else 0.3

    desk.supervisor.every("paced", 0.1, work)
    desk.run()
    assert rounds[:4] == pytest.approx([100.1, 100.2, 100.3, 100.4])
    assert rounds[4:7] == pytest.approx([100.7, 100.8, 100.9])  # at once after one that took too long


def test_a_round_that_fails_is_followed_by_the_next_and_is_counted(desk: Desk) -> None:
    rounds: list[float] = []

    def work() -> None:
        rounds.append(desk.now_s)
        if len(rounds) in (2, 3):
            raise ValueError("no such luck")

    desk.end_s = 100.35
    desk.supervisor.every("unlucky", 0.1, work)
    desk.run()
    assert len(rounds) == 3
    assert desk.supervisor.faults() == {"unlucky": "ValueError: no such luck"}
    assert desk.supervisor.loops["unlucky"].failures == 2
    desk.end_s = 101.0
    desk.run()
    assert desk.supervisor.faults() == {}
    assert desk.supervisor.loops["unlucky"].failures == 2
    assert desk.supervisor.loops["unlucky"].last_error == "ValueError: no such luck"


def test_a_loop_that_waits_for_work_tries_again_after_a_failure_without_waiting(desk: Desk) -> None:
    waits: list[float] = []
    rounds: list[float] = []

    def wait() -> None:
        waits.append(desk.now_s)
        desk.sleep(0.5)

    def work() -> None:
        rounds.append(desk.now_s)
        if len(rounds) == 1:
            raise KeyError("s1")

    desk.end_s = 102.5
    desk.supervisor.on_demand("queues", wait, work)
    desk.run()
    assert rounds == [100.5, 100.5 + RESTART_PAUSE_S, 102.0, 102.5]
    assert waits == [100.0, 101.5, 102.0, 102.5]
    assert desk.supervisor.loops["queues"].failures == 1
    assert desk.supervisor.faults() == {}


def test_a_loop_that_hangs_is_told_of_but_not_one_that_has_nothing_to_do(desk: Desk) -> None:
    def hang() -> None:
        raise Stopped

    desk.supervisor.every("hung", 0.1, hang)
    desk.supervisor.on_demand("idle", hang, lambda: None)
    desk.run()
    desk.now_s += HANG_TIMEOUT_S
    assert desk.supervisor.faults() == {}
    desk.now_s += 1.0
    assert desk.supervisor.faults() == {"hung": "has not run for 61 s"}


def test_a_stop_ends_every_loop(desk: Desk) -> None:
    desk.supervisor.every("one", 1.0, lambda: None)
    desk.supervisor.on_demand("other", lambda: None, lambda: None)
    desk.supervisor.stop()
    assert desk.killed == desk.started
