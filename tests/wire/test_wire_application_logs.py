"""The log of the real application: lines for people, JSON for programs, from its first line to its last."""

from __future__ import annotations

import json
import logging
import re

import pytest
from support.wire import WireRun

from apps.runtime.logs import set_format, set_level

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"


def log_of_a_run(folder, **section):
    with WireRun(folder, {1: [1, 2]}, logging=section) as run:
        run.app.wait_ready()
        assert run.app.stop() == 0
        return run.app.log().splitlines()


def test_lines_for_people(tmp_path):
    lines = log_of_a_run(tmp_path)
    for line in lines:
        assert re.match(rf"{TIME} \[(info|warning) +\] ", line), line
    up = "switch-up: switch s1 (0000000000000001) is up"
    assert any(up in line and "[dets.southbound]" in line for line in lines)


def test_json_for_programs(tmp_path):
    entries = [json.loads(line) for line in log_of_a_run(tmp_path, format="json")]
    for entry in entries:
        assert re.fullmatch(TIME, entry["timestamp"])
        assert {"message", "level", "logger"} <= entry.keys()
    up = next(entry for entry in entries if entry.get("kind") == "switch-up")
    assert (up["level"], up["logger"]) == ("info", "dets.southbound")
    assert entries[0]["message"].startswith("loading app")
    assert entries[-1]["message"].startswith("stopped")


def test_less_is_left_out(tmp_path):
    assert [line for line in log_of_a_run(tmp_path, level="error") if "switch-up" in line] == []


@pytest.fixture
def handler():
    root = logging.getLogger()
    handler, before = logging.StreamHandler(), root.level
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


def test_a_traceback_is_one_json_line(handler):
    handlers = logging.getLogger().handlers
    formatters = [one.formatter for one in handlers]
    try:
        set_format("json")
        set_level("warning")
        cause = (ValueError, ValueError("a cause"), None)
        record = logging.getLogger("dets.x").makeRecord("dets.x", logging.ERROR, "f", 1, "failed: %s", ("why",), cause)
        entry = json.loads(handler.format(record))
        assert (entry["message"], entry["level"], entry["logger"]) == ("failed: why", "error", "dets.x")
        assert "ValueError: a cause" in entry["exception"]
    finally:
        for one, formatter in zip(handlers, formatters, strict=True):
            one.setFormatter(formatter)
