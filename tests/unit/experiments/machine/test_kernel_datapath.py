"""A command where this kernel has Open vSwitch's datapath itself. user-mode-linux is tested in tests/kernel/host."""

from __future__ import annotations

import sys

import pytest

from experiments.machine import kernel_datapath
from experiments.machine.kernel_datapath import TIMED_OUT, main


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this kernel say that it has the module."""
    monkeypatch.setattr(kernel_datapath, "is_native", lambda: True)


def test_a_native_command_gives_its_status() -> None:
    assert main(["--", sys.executable, "-c", "raise SystemExit(3)"]) == 3


def test_a_native_command_that_takes_too_long_ends_as_one_in_user_mode_linux(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--timeout", "0.3", "--", "sleep", "60"]) == TIMED_OUT
    assert capfd.readouterr().err == "timed out\n"
