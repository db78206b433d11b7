"""Processes are waited for until something holds or cannot any more, and are ended, by force if need be."""

from __future__ import annotations

import subprocess
import sys

import pytest

from apps.cli.support.rest_client import RequestError
from experiments.machine import process_runner
from experiments.machine.process_runner import ControllerError, end, wait_until


def test_waiting_ends_when_something_holds_or_never_will(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([OSError("does not listen"), RequestError("refused"), False, True])

    def condition() -> object:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    wait_until(condition, "x", 10.0, lambda: None, 0.0)
    with pytest.raises(ControllerError, match="not within 0 s: all of it"):
        wait_until(lambda: False, "all of it", 0.0, lambda: None, 0.0)

    def dead() -> None:
        raise RuntimeError("it has ended")

    with pytest.raises(RuntimeError, match="it has ended"):
        wait_until(lambda: True, "x", 10.0, dead)


@pytest.mark.parametrize(
    "script", ["", "import signal, time; signal.signal(15, signal.SIG_IGN); print(); time.sleep(60)"]
)
def test_a_process_is_ended(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_runner, "STOP_TIMEOUT_S", 0.5)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        if script:
            assert process.stdout is not None
            process.stdout.readline()
        else:
            process.wait(30)
        end(process)
        assert process.returncode == (-9 if script else 0)
