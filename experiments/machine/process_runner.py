"""Signals, end and exit status of a process of a test, an experiment or a benchmark."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from typing import Protocol

from apps.cli.support.rest_client import RequestError

STOP_TIMEOUT_S = 15.0
POLL_INTERVAL_S = 0.1


class ControllerError(RuntimeError):
    """The controller did not start, did not become ready, or stopped; the text ends with its last lines of log."""


class Process(Protocol):
    """The methods of ``subprocess.Popen`` that are used here."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit status; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once it has ended; raises subprocess.TimeoutExpired."""

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""

    def kill(self) -> None:
        """Send SIGKILL."""


class ProcessRunner:
    """A process that a subclass starts, as ``_process``, and may restart once it has ended."""

    _process: Process | None = None

    @property
    def started(self) -> bool:
        """Whether it has been started at all."""
        return self._process is not None

    @property
    def running(self) -> bool:
        """Whether it is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None
        return self._process.pid

    def send_signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int | None:
        """End the process, and return its exit status; None if it was never started."""
        return None if self._process is None else end(self._process, number)


def end(process: Process, number: signal.Signals = signal.SIGTERM) -> int:
    """Send a running process a signal, wait for it, kill it if it does not end, and return its exit status."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait(STOP_TIMEOUT_S)


def wait_until(
    condition: Callable[[], object],
    what: str,
    timeout_s: float,
    alive: Callable[[], object] = lambda: None,
    every_s: float = POLL_INTERVAL_S,
    log: Callable[[], str] = str,
) -> None:
    """Wait until a condition is true; an error of a server that does not answer makes it false.

    ``alive`` raises if the awaited process has ended. Raises ControllerError after ``timeout_s``, which names ``what``
    was not true and ends with the ``log``.
    """
    deadline_s = time.monotonic() + timeout_s
    problem: Exception | None = None
    while True:
        alive()
        try:
            if condition():
                return
        except (OSError, RequestError) as error:  # the server does not listen yet, or is too busy
            problem = error
        if time.monotonic() > deadline_s:
            raise ControllerError(f"not within {timeout_s:g} s: {what}{f' ({problem})' if problem else ''}{log()}")
        time.sleep(every_s)
