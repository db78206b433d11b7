"""Events as lines of the log: all of them, in order, with others running in between."""

from __future__ import annotations

import logging

import pytest

from apps.runtime.logs import EventLines
from controller.events import EventKind


def test_all_are_written_in_order_and_others_run_in_between(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    lines = EventLines(lambda: seen.append(len(caplog.records)))
    with caplog.at_level(logging.INFO):
        for number in range(120):
            lines.note(EventKind.SWITCH_UP, f"switch {number}")
        assert not caplog.records
        lines.write()
        assert [record.getMessage() for record in caplog.records] == [f"switch-up: switch {n}" for n in range(120)]
        assert seen == [50, 100, 120]
        lines.write()
    assert len(caplog.records) == 120
    assert {record.kind for record in caplog.records} == {"switch-up"}
