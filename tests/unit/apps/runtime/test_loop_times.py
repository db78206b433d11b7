"""What is told of the rounds of the control loop."""

from __future__ import annotations

import pytest

from apps.runtime.loop_times import KEPT_ROUNDS, LoopTimes


def noted(times: LoopTimes, *, polled_s: float = 0.01, decided_s: float = 0.02, sent_s: float = 0.025) -> None:
    times.note((0.0, polled_s, decided_s, sent_s), entries=5, read=4, changed=3, unanswered=1)


def test_before_the_first_round_nothing_is_known():
    view = LoopTimes(0.055).view()
    assert (view["rounds"], view["over_rounds"], view["total_ms"], view["last"]) == (0, 0, None, None)


def test_the_parts_of_a_round():
    times = LoopTimes(0.055)
    noted(times)
    view = times.view()
    assert [view[part]["p50"] for part in ("poll_ms", "step_ms", "push_ms", "total_ms")] == [10.0, 10.0, 5.0, 25.0]
    assert (view["read_meters"], view["set_meters"], view["unanswered_polls"]) == (4, 3, 1)
    assert view["skipped_intervals"] == 0


def test_a_round_of_more_than_two_intervals_skips_two():
    times = LoopTimes(0.055)
    noted(times, sent_s=0.12)
    assert times.view()["skipped_intervals"] == 2
    assert times.view()["last"]["skipped"] == 2


def test_only_later_rounds_are_looked_at_and_only_so_many_are_kept():
    times = LoopTimes(0.055)
    for number in range(KEPT_ROUNDS + 5):
        noted(times, sent_s=0.03 if number < KEPT_ROUNDS + 4 else 0.05)
    assert times.view()["over_rounds"] == KEPT_ROUNDS
    assert times.view(KEPT_ROUNDS + 4)["total_ms"]["p50"] == pytest.approx(50.0)
    assert times.view()["total_ms"]["max"] == pytest.approx(50.0)
    assert times.view()["rounds"] == KEPT_ROUNDS + 5
