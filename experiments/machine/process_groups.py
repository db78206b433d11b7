"""Processes that lead a group each, as those of an emulated fabric: mnexec starts a session for them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

END_S = 3.0


def end_groups(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes, each with the group that it leads: SIGTERM to all, SIGKILL to those left after END_S.

    Their files are closed.
    """
    for process in processes:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=END_S)
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=END_S)
        for file in (process.stdin, process.stdout):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):
                    file.close()
