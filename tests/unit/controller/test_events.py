"""The events that are kept: what hosts can cause at every VN, again and again, pushes out nothing else."""

from __future__ import annotations

import numpy as np

from controller.events import NAMED_BURST, NAMED_PER_S, EventKind, EventLog

BEGAN, ENDED = EventKind.CONGESTION_BEGAN, EventKind.CONGESTION_ENDED
ROWS = np.arange(2000)
INTERVAL_S = 0.055


def note(log: EventLog, kind: EventKind, at_s: float) -> list[int]:
    named = log.limit_named(kind, ROWS, at_s)
    for row in named:
        log.add(kind, f"row {row}", at_s)
    log.report_suppressed(at_s)
    return named


def test_of_many_at_once_the_first_are_named_and_the_others_counted() -> None:
    lines: list[tuple[EventKind, str]] = []
    log = EventLog(lambda kind, text: lines.append((kind, text)))
    assert note(log, BEGAN, 5.0) == list(range(int(NAMED_BURST)))
    assert [event.text for event in log.newer_than(0)][-1].startswith("1900 more without a text")
    assert (log.counts[BEGAN], len(lines)) == (len(ROWS), NAMED_BURST + 1)


def test_few_are_all_named_and_nothing_more_is_told() -> None:
    log = EventLog()
    assert log.limit_named(BEGAN, ROWS[:7], 5.0) == list(range(7))
    log.report_suppressed(6.0)
    assert not log.newer_than(0)


def test_who_goes_on_gets_few_lines_a_second_and_each_kind_has_its_own() -> None:
    log = EventLog()
    note(log, BEGAN, 5.0)
    named = [len(note(log, BEGAN, 5.0 + number * INTERVAL_S)) for number in range(1, 182)]  # for ten seconds
    assert sum(named) == int(NAMED_PER_S * 181 * INTERVAL_S)
    assert log.counts[BEGAN] == 182 * len(ROWS)
    told = [event for event in log.newer_than(0) if "without a text" in event.text]
    assert 9 <= len(told) <= 11
    assert len(log.limit_named(ENDED, ROWS, 15.0)) == NAMED_BURST


def test_events_of_every_day_push_out_no_others_and_all_are_in_order() -> None:
    log = EventLog(keep=50)
    log.add(EventKind.SWITCH_DOWN, "down", 1.0)
    log.add(EventKind.DPID_CONFLICT, "claimed", 2.0)
    for number in range(200):
        log.add(BEGAN, f"began {number}", 3.0)
    log.add(EventKind.LINK_DOWN, "links", 4.0)
    events = log.newer_than(0)
    assert [event.number for event in events] == [1, 2, *range(153, 204)]
    assert [event.kind for event in (events[0], events[1], events[-1])] == [
        EventKind.SWITCH_DOWN,
        EventKind.DPID_CONFLICT,
        EventKind.LINK_DOWN,
    ]
    assert [event.number for event in log.newer_than(200)] == [201, 202, 203]
