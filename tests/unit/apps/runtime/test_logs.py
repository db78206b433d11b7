"""Events as lines of the log: all of them, in order, with others running in between."""

from __future__ import annotations

import io
import json
import logging
from threading import Event

import pytest

from apps.runtime import logs
from apps.runtime.logs import FORMATS, EventLines, LogFormat, set_format
from controller.events import EventKind


def test_all_are_written_in_order_and_others_run_in_between(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    filled = Event()
    lines = EventLines(lambda: seen.append(len(caplog.records)), filled)
    with caplog.at_level(logging.INFO):
        for number in range(120):
            lines.note(EventKind.SWITCH_UP, f"switch {number}")
        assert not caplog.records
        assert filled.is_set()
        lines.wait()
        lines.write()
        assert not filled.is_set()
        assert [record.getMessage() for record in caplog.records] == [f"switch-up: switch {n}" for n in range(120)]
        assert seen == [50, 100, 120]
        lines.write()
    assert len(caplog.records) == 120
    assert {record.kind for record in caplog.records} == {"switch-up"}


def test_of_more_than_can_be_written_the_oldest_are_left_out_and_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_LINES", 100)
    lines = EventLines(lambda: None, Event())
    with caplog.at_level(logging.INFO):
        for number in range(107):
            lines.note(EventKind.SWITCH_UP, f"switch {number}")
        lines.write()
    said = [record.getMessage() for record in caplog.records]
    assert said[:2] == ["7 events were left out of the log: there were too many", "switch-up: switch 7"]
    assert len(said) == 101


def test_what_is_noted_while_lines_are_written_is_written_too(caplog: pytest.LogCaptureFixture) -> None:
    filled = Event()
    more = [1]

    def yield_control() -> None:
        if more:
            lines.note(EventKind.SWITCH_UP, f"late {more.pop()}")

    lines = EventLines(yield_control, filled)
    with caplog.at_level(logging.INFO):
        lines.note(EventKind.SWITCH_UP, "first")
        lines.write()
    assert [record.getMessage() for record in caplog.records] == ["switch-up: first", "switch-up: late 1"]


NASTY = "x\x1b[2J\r\n2026-01-01T00:00:00Z [info] dets ok\x9b1m\x85\u202e\u2028\ud800"


@pytest.mark.parametrize("log_format", FORMATS)
def test_names_of_others_forge_no_line_and_move_nothing(log_format: LogFormat) -> None:
    """Names by hosts, switches and clients: in what is said, in its fields, in what an error says."""
    stream, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(stream)
    before, formatters = root.handlers[:], [one.formatter for one in root.handlers]
    root.handlers = [handler]
    try:
        set_format(log_format)
        log = logging.getLogger("dets.test")
        log.warning("%s", NASTY, extra={"who": NASTY})
        try:
            raise ValueError(NASTY)
        except ValueError:
            log.exception("it failed: %s", NASTY)
    finally:
        root.handlers = before
        for one, formatter in zip(before, formatters, strict=True):
            one.setFormatter(formatter)
    lines = stream.getvalue().splitlines() if log_format == "json" else stream.getvalue().split("\n")
    assert all(line.isprintable() for line in lines), lines
    if log_format == "json":
        assert [json.loads(line)["level"] for line in lines] == ["warning", "error"]
    else:
        starts = [line for line in lines if line[:4] == "2026" or "[warning" in line or "[error" in line]
        assert len(starts) == 2, lines
