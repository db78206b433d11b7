"""What is told of the rounds of the control loop."""

from __future__ import annotations

import pytest

from apps.runtime.loop_stats import KEPT_ROUNDS, LoopStats


def noted(
    times: LoopStats,
    *,
    started_s: float = 0.0,
    polled_s: float = 0.01,
    decided_s: float = 0.02,
    sent_s: float = 0.025,
) -> None:
    marks_s = tuple(started_s + part_s for part_s in (0.0, polled_s, decided_s, sent_s))
    times.record_round(marks_s, pair_count=5, read=4, changed=3, timeouts=1)


def skipped(*starts: float) -> list[int]:
    """Rounds of an interval of 1 s that began then: how many were skipped before each."""
    times = LoopStats(1.0)
    found = []
    for started_s in starts:
        before = times.skipped_rounds
        noted(times, started_s=started_s)
        found.append(times.skipped_rounds - before)
    return found


def test_the_parts_of_a_round_and_nothing_before_the_first():
    times = LoopStats(0.055)
    view = times.view()
    assert (view["rounds"], view["sampled_rounds"], view["total_ms"], view["last"]) == (0, 0, None, None)
    noted(times)
    view = times.view()
    assert [view[part]["p50"] for part in ("poll_ms", "step_ms", "push_ms", "total_ms")] == [10.0, 10.0, 5.0, 25.0]
    assert (view["read_meters"], view["modified_meters"], view["poll_timeouts"]) == (4, 3, 1)
    assert view["skipped_rounds"] == 0


def test_rounds_that_were_due_and_never_began_are_skipped() -> None:
    """Whoever held them up: a round, another task, or a process that was stopped."""
    assert skipped(0.0, 1.0, 6.0, 7.0) == [0, 0, 4, 0]


def test_what_is_late_now_and_then_is_not_skipped() -> None:
    assert skipped(0.0, 1.3, 2.0, 3.4, 4.0, 5.0) == [0] * 6


def test_a_loop_that_takes_longer_than_its_interval_loses_rounds_little_by_little() -> None:
    assert sum(skipped(*(1.5 * number for number in range(11)))) == 5


def test_only_later_rounds_are_looked_at_and_only_so_many_are_kept():
    times = LoopStats(0.055)
    for number in range(KEPT_ROUNDS + 5):
        noted(times, sent_s=0.03 if number < KEPT_ROUNDS + 4 else 0.05)
    assert times.view()["sampled_rounds"] == KEPT_ROUNDS
    assert times.view(KEPT_ROUNDS + 4)["total_ms"]["p50"] == pytest.approx(50.0)
    assert times.view()["total_ms"]["max"] == pytest.approx(50.0)
    assert times.view()["rounds"] == KEPT_ROUNDS + 5
