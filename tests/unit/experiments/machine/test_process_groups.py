"""Processes are ended with the groups that they lead, those that do not listen too, and their files are closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from experiments.machine import process_groups

CHILD = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, getattr(signal, sys.argv[1]))
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(60)
"""


def started(way: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a process that answers SIGTERM in a way, with a child in its group; return it and its child."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, way], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def is_running(pid: int) -> bool:
    """Whether a process is there, and no zombie that nobody has waited for."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_groups_end_whether_they_listen_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_groups, "END_S", 0.5)
    quick, deaf = started("SIG_DFL"), started("SIG_IGN")
    gone = started("SIG_DFL")
    os.killpg(gone[0].pid, signal.SIGKILL)
    gone[0].wait()
    process_groups.end_groups([one for one, _ in (quick, deaf, gone)])
    assert [one.returncode for one, _ in (quick, deaf)] == [-signal.SIGTERM, -signal.SIGKILL]
    for _, child in (quick, deaf, gone):
        until_s = time.monotonic() + 20.0
        while is_running(child) and time.monotonic() < until_s:
            time.sleep(0.01)
        assert not is_running(child)
    for process, _ in (quick, deaf, gone):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdin.closed
        assert process.stdout.closed
