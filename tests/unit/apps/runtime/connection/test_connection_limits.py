"""What peers of the OpenFlow port may take of the process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.runtime.connection.connection_limits import (
    BUDGET_INTERVAL_S,
    REPEAT_S,
    SHARING,
    SWITCH_ALLOWANCE,
    UNMANAGED_ALLOWANCE,
    Allowance,
    ConnectionLimits,
    LogRateLimiter,
    MessageBudget,
)

SMALL = Allowance(messages=4, octets=1000, processing_s=0.01)


class Clock:
    """A clock that goes when it is told to."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


# -- budgets


@pytest.mark.parametrize(
    ("octets", "processing_s", "free"),
    [(8, 0.0, 3), (8, 0.006, 1), (8, 0.02, 0), (400, 0.0, 2), (1000, 0.0, 0)],
)
def test_a_budget_ends_with_whatever_is_used_up_first_until_the_next_interval(
    clock: Clock, octets: int, processing_s: float, free: int
) -> None:
    budget = MessageBudget(SMALL, clock)
    for _ in range(free):
        assert budget.spend(octets, processing_s=processing_s) == 0.0
    assert budget.spend(octets, processing_s=processing_s) == pytest.approx(BUDGET_INTERVAL_S)
    clock.now_s += BUDGET_INTERVAL_S + 1e-9
    assert budget.spend(10) == 0.0


@pytest.mark.parametrize("peers", [1, SHARING, 10 * SHARING])
def test_a_crowd_brings_no_more_than_a_few(clock: Clock, peers: int) -> None:
    """Whoever comes new may do its handshake at once: what a crowd changes is how long one waits after that."""
    budgets = [MessageBudget(SMALL, clock, lambda: peers) for _ in range(peers)]
    began_s, due_s, taken = clock.now_s, [clock.now_s] * peers, 0
    while clock.now_s - began_s < 20 * BUDGET_INTERVAL_S:
        for number, budget in enumerate(budgets):
            while due_s[number] <= clock.now_s:
                due_s[number] = clock.now_s + (budget.spend(8) or 0.0)
                taken += 1
                if due_s[number] > clock.now_s:
                    break
        clock.now_s += BUDGET_INTERVAL_S / 4
    most = 20 * SMALL.messages * min(peers, SHARING)
    assert 0.7 * most < taken <= most + SMALL.messages * peers


@given(st.lists(st.tuples(st.floats(0.0, 0.2), st.integers(8, 2000), st.floats(0.0, 0.02)), max_size=60))
def test_who_waits_as_told_brings_no_more_than_the_allowance_in_any_interval(
    messages: list[tuple[float, int, float]],
) -> None:
    clock = Clock()
    budget = MessageBudget(SMALL, clock)
    taken: list[tuple[float, int, float]] = []
    for pause_s, octets, processing_s in messages:
        clock.now_s += pause_s
        taken.append((clock.now_s, octets, processing_s))
        clock.now_s += budget.spend(octets, processing_s=processing_s)
    for start_s, _, _ in taken:
        some = [one for one in taken if start_s <= one[0] < start_s + BUDGET_INTERVAL_S]
        assert len(some) <= 2 * SMALL.messages  # an interval of the clock's lies over two of the budget's
        longest_s = max(processing_s for _, _, processing_s in some)
        assert sum(processing_s for _, _, processing_s in some) <= 2 * (SMALL.processing_s + longest_s)
        assert sum(octets for _, octets, _ in some) <= 2 * (SMALL.octets + 2000)


def test_a_switch_may_bring_more_than_a_stranger() -> None:
    assert all(known > unknown for known, unknown in zip(SWITCH_ALLOWANCE, UNMANAGED_ALLOWANCE, strict=True))


# -- connections


def admit(limits: ConnectionLimits[str], name: str, host: str = "a") -> list[str]:
    return list(limits.admit(name, host))


def test_the_oldest_of_a_host_goes_and_others_stay() -> None:
    limits: ConnectionLimits[str] = ConnectionLimits(100, 10, 2)
    assert admit(limits, "other", "b") == []
    assert [admit(limits, name) for name in ("one", "two", "three", "four")] == [[], [], ["one"], ["two"]]
    assert limits.waiting == 3


def test_the_oldest_of_all_goes_when_many_hosts_come() -> None:
    limits: ConnectionLimits[str] = ConnectionLimits(100, 3, 2)
    assert [admit(limits, f"v{host}", host) for host in "abcd"] == [[], [], [], ["va"]]


def test_who_has_shaken_hands_does_not_count_among_them() -> None:
    limits: ConnectionLimits[str] = ConnectionLimits(100, 2, 1)
    admit(limits, "one")
    limits.on_handshake_done("one")
    assert admit(limits, "two") == []
    assert (limits.waiting, len(limits)) == (1, 2)


def test_of_all_connections_strangers_go_first_and_switches_never() -> None:
    limits: ConnectionLimits[str] = ConnectionLimits(2, 2, 2)
    for name in ("switch", "stranger"):
        admit(limits, name)
        limits.on_handshake_done(name)
    limits.mark_controlled("switch")
    assert admit(limits, "new") == ["stranger"]
    limits.on_handshake_done("new")
    limits.mark_controlled("new")
    assert admit(limits, "late") == ["late"]
    assert len(limits) == 2


def test_who_leaves_makes_room_however_often_it_is_said() -> None:
    limits: ConnectionLimits[str] = ConnectionLimits(1, 1, 1)
    admit(limits, "one")
    limits.leave("one")
    limits.leave("one")
    limits.on_handshake_done("one")
    limits.mark_controlled("one")
    assert (admit(limits, "two"), len(limits)) == ([], 1)


@given(
    st.lists(
        st.tuples(st.sampled_from(["admit", "introduced", "keep", "leave"]), st.integers(0, 20), st.sampled_from("abc"))
    )
)
def test_there_are_never_more_than_may_be(orders: list[tuple[str, int, str]]) -> None:
    limits: ConnectionLimits[int] = ConnectionLimits(6, 4, 2)
    kept, there = set(), set()
    for order, visitor, host in orders:
        if order == "admit" and visitor not in there:
            gone = set(limits.admit(visitor, host))
            assert not gone & kept
            there = (there | {visitor}) - gone
        elif order == "introduced":
            limits.on_handshake_done(visitor)
        elif order == "keep":
            before = limits.waiting, len(limits)
            limits.mark_controlled(visitor)
            assert before == (limits.waiting, len(limits))
        elif order == "leave":
            limits.leave(visitor)
            there.discard(visitor)
            kept.discard(visitor)
        assert len(limits) == len(there) <= 6
        assert limits.waiting <= 4


# -- saying things


def test_the_same_is_said_once_in_a_while(clock: Clock) -> None:
    sparing = LogRateLimiter(clock)
    assert [sparing.due("a"), sparing.due("a"), sparing.due("b")] == [True, False, True]
    clock.now_s += REPEAT_S
    assert sparing.due("a")


def test_what_was_said_is_not_remembered_without_end(clock: Clock) -> None:
    sparing = LogRateLimiter(clock)
    assert all(sparing.due(number) for number in range(5000))
    assert len(sparing._logged_s) <= 1000
