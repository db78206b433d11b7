"""The real application in a process of its own, for tests that need all of it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.preloaded_processes import process_forker
from support.rest_server import ask_at

from apps.cli.support.rest_client import RequestError
from experiments.machine.controller_process import ControllerProcess
from experiments.machine.process_runner import STOP_TIMEOUT_S, Process

APPLICATION = "apps.dets"
MAX_POLL_INTERVAL_S = 1.0
_Value = TypeVar("_Value")


_by_command = ControllerProcess._spawn


def fork(
    process: ControllerProcess, nothing: BinaryIO, log: BinaryIO, *beside: Path | str, files: int | None = None
) -> Process:
    """Start a controller that has what it imports, with applications ``beside`` it and so many file descriptors."""
    arguments = ["--dets-config", str(process.config_path), APPLICATION, *map(str, beside)]
    return process_forker().start(arguments, (nothing.fileno(), log.fileno(), log.fileno()), max_files=files)


def spawn(process: ControllerProcess, nothing: BinaryIO, log: BinaryIO) -> Process:
    """Start a controller of an experiment or a benchmark: by ``fork``, if it is as others are."""
    return fork(process, nothing, log) if process.is_plain else _by_command(process, nothing, log)


class Application(ControllerProcess):
    """``dets run`` with a configuration, or ryu-manager with other applications; ended with its ``with``.

    ``start`` and ``stop`` may follow each other any number of times. ``token`` is shown with every request, if set;
    ``files`` is how many file descriptors the process may have. With ``by_command`` it is started as people start it,
    which takes long; else by a process that has what it imports (preloaded_processes.py).
    """

    file_name = "dets"
    rest_timeout_s = 10.0
    by_command = False

    def __init__(
        self,
        config: Mapping[str, Any],
        folder: Path,
        beside: tuple[Path | str, ...] | None = None,
        files: int | None = None,
    ) -> None:
        super().__init__(config, folder)
        self._beside, self._files = beside, files
        self._command = [*self._command, *(word for one in beside or () for word in ("--app", str(one)))]

    def __enter__(self) -> Application:
        self.start()
        return self

    def config(self) -> dict[str, Any]:
        """Return the configuration as it was written last."""
        return dict(yaml.safe_load(self.config_path.read_text()))

    def _spawn(self, nothing: BinaryIO, log: BinaryIO) -> Process:
        if self.by_command and self._files is None:
            return _by_command(self, nothing, log)
        return fork(self, nothing, log, *(self._beside or ()), files=self._files)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit status; TimeoutExpired if it does not end."""
        self.send_signal(number)
        return self.wait_ended()

    def wait_ended(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Return the exit status of a process that ends by itself."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def log(self) -> str:
        """Return what all runs so far have written."""
        return self.log_path.read_text(errors="replace")

    def request(self, method: str, path: str, body: object = None) -> tuple[int, str, Any]:
        """Return (status, content type, parsed JSON) of any answer, refusals included."""
        authorization = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        status, headers, answer = ask_at(self.url.removeprefix("http://"), method, path, body, authorization)
        return status, headers["Content-Type"], answer

    def metrics(self) -> dict[tuple[str, ...], float]:
        """Return all samples of /metrics by name and the values of their labels, the labels in alphabetical order."""
        status, content_type, text = self.request("GET", "/metrics")
        assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
        return {
            (one.name, *(one.labels[key] for key in sorted(one.labels))): one.value
            for family in text_string_to_metric_families(text)
            for one in family.samples
        }

    def events(self, kind: str = "", after: int = 0) -> list[dict[str, Any]]:
        """Return the events of a kind, or all."""
        events = self.get(f"/v1/events?after={after}")["events"]
        return [event for event in events if kind in ("", event["kind"])]

    def last_event(self) -> int:
        """Return the number of the newest event."""
        return int(self.get("/v1/events")["last"])

    def entry(self, sender_port: int, receiver_port: int, vlan_vid: int) -> dict[str, Any] | None:
        """Return the entry between two ports in a VLAN, if there is one."""
        for entry in self.get(f"/v1/pairs?vlan={vlan_vid}")["pairs"]:
            if (entry["sender"]["port_no"], entry["receiver"]["port_no"]) == (sender_port, receiver_port):
                return dict(entry)
        return None

    def wait_ready(self, timeout_s: float = 40.0) -> None:
        """Wait until every switch of the configuration is ready and nothing of the controller has failed."""
        self.wait_for(lambda: self.get("/v1/health")["status"] == "ready", "ready", timeout_s)

    def wait_for(self, condition: Callable[[], _Value], what: str, timeout_s: float = 15.0) -> _Value:
        """Return the condition's value as soon as it is true; AssertionError, with the log's end, when it is not."""
        assert self._process is not None
        problem: object = None
        waited_s, last_s = 0.0, time.monotonic()
        while True:
            assert self._process.poll() is None, f"the application has ended\n{self.log()[-3000:]}"
            try:
                value = condition()
            except (OSError, RequestError) as error:  # it does not listen yet
                value, problem = None, error
            if value:
                return value
            said = f"\n{problem}" if problem else ""
            # A machine that stood still as a whole, as virtual ones do, has not made anybody wait.
            waited_s += min(time.monotonic() - last_s, MAX_POLL_INTERVAL_S)
            last_s = time.monotonic()
            assert waited_s < timeout_s, f"not {what} within {timeout_s:g} s{said}\n{self.log()[-3000:]}"
            time.sleep(0.05)
