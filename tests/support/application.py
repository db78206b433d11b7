"""The real application in a process of its own, for tests that need all of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.nursery import Child, nursery
from support.paths import ROOT

APPLICATION = "apps.dets"
STOP_TIMEOUT_S = 15.0
LONGEST_LOOK_S = 1.0
_Value = TypeVar("_Value")


class _Plain(yaml.SafeDumper):
    """Writes a value that stands in two places twice: no anchors and aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Whatever it is."""
        return True


class Application:
    """``dets run`` with a configuration, or ryu-manager with other applications; ended with its ``with``.

    ``start`` and ``stop`` may follow each other any number of times. ``token`` is shown with every request, if set;
    ``files`` is how many file descriptors the process may have. With ``by_command`` it is started as people start it,
    which takes long; else by a process that has what it imports (nursery.py).
    """

    by_command = False

    def __init__(
        self,
        config: Mapping[str, Any],
        folder: Path,
        beside: tuple[Path | str, ...] | None = None,
        files: int | None = None,
    ) -> None:
        self.config_path = folder / "dets.yaml"
        self.log_path = folder / "dets.log"
        self.token = ""
        self._beside, self._files = beside, files
        self._process: subprocess.Popen[bytes] | Child | None = None
        self.configure(config)

    def __enter__(self) -> Application:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP_TIMEOUT_S)

    def configure(self, config: Mapping[str, Any]) -> None:
        """Write the configuration that the next start reads."""
        self.config_path.write_text(yaml.dump(dict(config), Dumper=_Plain, sort_keys=False))
        self.url = f"http://{config['rest']['listen']}"

    def config(self) -> dict[str, Any]:
        """Return the configuration as it was written last."""
        return dict(yaml.safe_load(self.config_path.read_text()))

    def start(self) -> None:
        """Start the process; it may not listen yet."""
        with self.log_path.open("ab") as log, open(os.devnull, "rb") as nothing:
            if self.by_command and self._beside is None and self._files is None:
                command = [sys.executable, "-m", "apps.cli", "run", "--config", str(self.config_path)]
                self._process = subprocess.Popen(command, cwd=ROOT, stdin=nothing, stdout=log, stderr=log)
                return
            arguments = ["--dets-config", str(self.config_path), APPLICATION, *map(str, self._beside or ())]
            files = (nothing.fileno(), log.fileno(), log.fileno())
            self._process = nursery().start(arguments, files, most_files=self._files)

    @property
    def started(self) -> bool:
        """Whether it has been started at all."""
        return self._process is not None

    @property
    def running(self) -> bool:
        """Whether it runs now."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None
        return self._process.pid

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit status; TimeoutExpired if it does not end."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(STOP_TIMEOUT_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait_ended(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Return the exit status of a process that ends by itself."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def log(self) -> str:
        """Return what all runs so far have written."""
        return self.log_path.read_text(errors="replace")

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str, Any]:
        """Return (status, content type, parsed JSON) of any answer, refusals included."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.headers["Content-Type"], json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.headers["Content-Type"], json.load(refusal)

    def get(self, path: str) -> Any:
        """Return the JSON of a resource; AssertionError if the answer is not 200."""
        status, _, answer = self.request("GET", path)
        assert status == 200, answer
        return answer

    def metrics(self) -> dict[tuple[str, ...], float]:
        """Return all samples of /metrics by name and the values of their labels, the labels in alphabetical order."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            text = answer.read().decode()
        return {
            (one.name, *(one.labels[key] for key in sorted(one.labels))): one.value
            for family in text_string_to_metric_families(text)
            for one in family.samples
        }

    def patch(self, path: str, **fields: object) -> Any:
        """Change a resource; AssertionError if the change is refused."""
        status, _, answer = self.request("PATCH", path, json.dumps(fields).encode())
        assert status == 200, answer
        return answer

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
            except OSError as error:  # it does not listen yet
                value, problem = None, error
            if value:
                return value
            said = f"\n{problem}" if problem else ""
            # A machine that stood still as a whole, as virtual ones do, has not made anybody wait.
            waited_s += min(time.monotonic() - last_s, LONGEST_LOOK_S)
            last_s = time.monotonic()
            assert waited_s < timeout_s, f"not {what} within {timeout_s:g} s{said}\n{self.log()[-3000:]}"
            time.sleep(0.05)
