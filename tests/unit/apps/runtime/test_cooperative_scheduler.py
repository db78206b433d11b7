"""Work that can wait and the control loop share one thread: whose turn it is when, on a manual clock."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from greenlet import greenlet

from apps.runtime.cooperative_scheduler import MIN_SLEEP_S, ROUND_GUARD_S, CooperativeScheduler

INTERVAL_S = 0.055


class Process:
    """A clock, and an event; whoever waits for either lets the time pass.

    A round begins and ends at ``begins_s`` and ``round_ends_s``.
    """

    def __init__(self) -> None:
        self.now_s, self.begins_s, self.round_ends_s, self.idle = 0.0, float("inf"), float("inf"), True
        self.at_work: AbstractContextManager[None] | None = None
        self.spare = CooperativeScheduler(INTERVAL_S, lambda: self.now_s, self.sleep, self, self, lambda call: call())

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.idle and self.now_s >= self.begins_s:  # whoever sleeps lets the loop come round
            self.begins_s, self.at_work = float("inf"), self.spare.control_round()
            self.at_work.__enter__()

    def set(self) -> None:
        self.idle = True

    def clear(self) -> None:
        self.idle = False

    def is_set(self) -> bool:
        return self.idle

    def acquire(self) -> None:
        """Nobody else asks."""

    release = acquire

    def wait(self, timeout_s: float) -> None:
        self.now_s = min(self.now_s + timeout_s, max(self.round_ends_s, self.now_s))
        self.idle = self.now_s >= self.round_ends_s


def test_between_rounds_nobody_waits() -> None:
    process = Process()
    with process.spare.control_round():
        process.now_s = 0.020
    process.spare.sleep(0.0)
    assert process.now_s == 0.020
    process.spare.sleep(0.010)
    assert process.now_s == pytest.approx(0.030)


def test_during_a_round_work_goes_on_while_it_waits_and_then_waits_for_its_end() -> None:
    process = Process()
    process.round_ends_s = 0.030
    with process.spare.control_round():
        process.now_s = 0.002
        with process.spare.io_wait():
            process.spare.sleep(0.0)
            assert process.now_s == 0.002
        process.spare.sleep(0.0)
        assert process.now_s == 0.030


class Hub:
    """Greenlets take turns as eventlet's do: in a pass all that are due, then whoever has something to read.

    ``passes_s`` is when each pass began. A clock, an event and a semaphore, too.
    """

    def __init__(self) -> None:
        self.now_s, self.passes_s, self._due = 0.0, [0.0], list[tuple[float, int, greenlet]]()
        self._is_set, self._waiting, self._queue = True, list[greenlet](), deque[greenlet]()
        self._free, self._order = True, itertools.count()
        self._main = greenlet.getcurrent()

    def call(self, work: Callable[[], object]) -> None:
        self._wake(greenlet(work, self._main))

    def _wake(self, one: greenlet, after_s: float = 0.0) -> None:
        heapq.heappush(self._due, (self.now_s + after_s, next(self._order), one))

    def sleep(self, seconds: float) -> None:
        self._wake(greenlet.getcurrent(), seconds)
        self._main.switch()

    def run_until(self, end_s: float) -> None:
        while self.now_s < end_s:
            self.passes_s.append(self.now_s)
            due = [heapq.heappop(self._due) for _ in range(sum(at_s <= self.now_s for at_s, *_ in self._due))]
            for _, _, one in due:
                one.switch()
            self.now_s = max(self.now_s, min(at_s for at_s, *_ in self._due))

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._wake_all()

    def _wake_all(self) -> None:
        while self._waiting:
            self._wake(self._waiting.pop())

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout_s: float) -> None:
        one = greenlet.getcurrent()
        self._waiting.append(one)
        self._wake(greenlet(lambda: one in self._waiting and self._wake_all(), self._main), timeout_s)
        self._main.switch()

    def acquire(self) -> None:
        if not self._free:
            self._queue.append(greenlet.getcurrent())
            self._main.switch()
        self._free = False

    def release(self) -> None:
        if self._queue:
            self._wake(self._queue.popleft())
        else:
            self._free = True


@pytest.mark.parametrize("round_s", [0.010, 0.050])
@pytest.mark.parametrize("requests", [1, 60])
def test_no_pass_of_the_hub_takes_longer_than_a_round_or_a_piece_however_many_work(
    requests: int, round_s: float
) -> None:
    hub, piece_s, pieces, begun_s = Hub(), 0.001, Counter[int](), list[float]()
    spare = CooperativeScheduler(INTERVAL_S, lambda: hub.now_s, hub.sleep, hub, hub, hub.call)

    def request(number: int) -> None:
        while True:
            spare.yield_control()
            pieces[number] += 1
            hub.now_s += piece_s

    def rounds() -> None:
        while True:
            began_s = hub.now_s
            begun_s.append(began_s)
            with spare.control_round():
                hub.now_s += round_s / 2  # it works
                with spare.io_wait():
                    hub.sleep(round_s / 2)
            hub.sleep(max(began_s + INTERVAL_S - hub.now_s, 0.0))

    hub.call(rounds)
    for number in range(requests):
        hub.call(lambda number=number: request(number))
    hub.run_until(40 * INTERVAL_S)
    assert max(after - before for before, after in itertools.pairwise(hub.passes_s)) <= round_s / 2 + 2 * piece_s
    assert max(after - before for before, after in itertools.pairwise(begun_s)) <= INTERVAL_S + 2 * piece_s
    assert sum(pieces.values()) * piece_s > 0.5 * 40 * (INTERVAL_S - round_s / 2 - ROUND_GUARD_S), "the time is used"
    assert len(pieces) == requests
    assert max(pieces.values()) <= min(pieces.values()) + 1, "everybody has his turn"


@pytest.mark.parametrize("early_s", [ROUND_GUARD_S / 2, 0.0, -0.02])
def test_work_waits_for_a_round_that_is_about_to_begin_or_late(early_s: float) -> None:
    process = Process()
    with process.spare.control_round():
        process.now_s = 0.010
    process.begins_s, process.round_ends_s = INTERVAL_S, INTERVAL_S + 0.030
    process.now_s = INTERVAL_S - early_s
    process.spare.sleep(0.0)
    assert process.now_s == process.round_ends_s


def test_nobody_waits_longer_than_an_interval_for_a_round_that_does_not_come() -> None:
    process = Process()
    with process.spare.control_round():
        process.now_s = 0.010
    process.now_s = INTERVAL_S + 0.001
    process.spare.sleep(0.0)
    assert process.now_s == pytest.approx(2 * INTERVAL_S, abs=MIN_SLEEP_S)


def test_nobody_waits_longer_than_an_interval_when_rounds_leave_nothing() -> None:
    process = Process()
    with process.spare.control_round():
        process.now_s = 0.001
        process.spare.sleep(0.0)
        assert process.now_s == pytest.approx(0.001 + INTERVAL_S)


def test_nobody_waits_where_rounds_take_longer_than_their_interval() -> None:
    process = Process()
    with process.spare.control_round():
        process.now_s = 2 * INTERVAL_S
    with process.spare.control_round():
        process.spare.wait()
        assert process.now_s == 2 * INTERVAL_S
    process.spare.wait()
    assert not process.spare._overloaded


def test_a_late_round_stops_nobody() -> None:
    process = Process()
    with process.spare.control_round():
        pass
    process.now_s = 10 * INTERVAL_S
    process.spare.sleep(0.0)
    assert process.now_s == 10 * INTERVAL_S


def test_a_round_that_fails_has_ended_as_well() -> None:
    process = Process()
    with pytest.raises(ZeroDivisionError), process.spare.control_round():
        raise ZeroDivisionError
    assert process.is_set()
