"""A configuration that is read in a process of its own is the one that is read here, and so are its problems."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from apps import config_reader
from controller.config.loader import load_config
from controller.config.yaml_document import ConfigError

CONFIG = """\
vlans:
  10: {send_limit: 40M, receive_limit: 40M, algorithm: fp, parameters: {d: 2}}
  20: {send_limit: 20M, receive_limit: 20M}
switches:
  s1: {dpid: 1, ports: {1: {capacity: 100M, trunk: [10, 20], vns: {10: {send_limit: 1M}}}}}
"""


def here(function: object, *arguments: object) -> object:
    return function(*arguments)  # type: ignore[operator]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "dets.yaml"
    path.write_text(CONFIG)
    return path


@pytest.mark.parametrize("small_bytes", [0, config_reader.SMALL_BYTES], ids=["in a process", "in a thread"])
def test_the_configuration_and_the_problems_are_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    monkeypatch.setattr(config_reader, "SMALL_BYTES", small_bytes)
    assert config_reader.read(str(path), here) == load_config(path)
    for text in (CONFIG.replace("40M", "4x"), "a: [", "", None):
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(ConfigError) as expected:
            load_config(path)
        with pytest.raises(ConfigError) as seen:
            config_reader.read(str(path), here)
        assert (str(seen.value), seen.value.problems) == (str(expected.value), expected.value.problems)
    assert "dets.yaml: cannot be read: No such file or directory" in str(seen.value)


def test_a_process_that_dies_is_a_problem_of_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(config_reader, "SMALL_BYTES", 0)
    monkeypatch.setattr(config_reader.sys, "executable", "/bin/false")
    with pytest.raises(ConfigError, match="cannot be read: the process that reads it ended with status 1"):
        config_reader.read(str(path), here)
    assert len(os.listdir("/proc/self/fd")) == files


def test_nobody_is_left_behind_by_who_stops_waiting(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    popen = config_reader.subprocess.Popen
    monkeypatch.setattr(
        config_reader.subprocess, "Popen", lambda *given, **named: started.append(popen(*given, **named)) or started[0]
    )
    monkeypatch.setattr(config_reader, "SMALL_BYTES", 0)

    def stop(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(config_reader.time, "sleep", stop)
    with pytest.raises(KeyboardInterrupt):
        config_reader.read(str(path), here)
    assert started[0].returncode is not None  # type: ignore[attr-defined]
