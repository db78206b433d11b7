"""Members of etcd as processes, with another program in its place: each is ended, whatever has been done to it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from experiments.machine import process_runner
from experiments.machine.etcd_process import EtcdProcesses

# It ends in its own time, as etcd does, and says when it is there: its arguments begin with --name NAME.
PROGRAM = """#!/bin/sh
trap 'exit 0' TERM
touch "$0-$2"
while :; do sleep 0.05; done
"""


def test_a_paused_member_is_ended_and_so_are_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "etcd"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(process_runner, "STOP_TIMEOUT_S", 1.0)
    etcd = EtcdProcesses(tmp_path, 2)
    for member in etcd.members:
        member.launch()
    deadline_s = time.monotonic() + 10
    while len(list(program.parent.iterdir())) < 3:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    etcd.members[0].send_signal(signal.SIGSTOP)
    etcd.stop(signal.SIGTERM)
    assert all(not member.running for member in etcd.members)
