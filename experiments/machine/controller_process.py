"""The real controller in a process of its own, configured for a fabric, for the time of one experiment."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

import yaml

from topologies.fabric import Fabric

OVSDB = f"unix:{os.environ.get('OVS_RUNDIR', '/var/run/openvswitch')}/db.sock"  # as ovs-vsctl looks for it
STOP_TIMEOUT_S = 15.0
FIRST_PORT, MAX_TRIES = 10_000, 2000
ROOT = Path(__file__).resolve().parents[2]
APPLICATION = ROOT / "apps" / "dets.py"


class ControllerError(RuntimeError):
    """The controller did not start, did not become ready, or stopped; the text ends with its last lines of log."""


def configuration(
    fabric: Fabric,
    limits_bps: Mapping[int, int],
    algorithm: str,
    parameters: Mapping[str, object],
    openflow_port: int,
    rest_port: int,
    *,
    queues: bool = True,
) -> dict[str, Any]:
    """Return a configuration for a fabric: ``limits_bps`` of each VLAN, both ways, for every VN; queues held to limits.

    Without ``queues`` no switch has an OVSDB address, as one whose queues nobody can set.

    The controller is to leave nothing behind when it stops (``on_stop: remove``).
    """
    vlans = {
        vid: {
            "name": f"vlan{vid}",
            "algorithm": algorithm,
            "parameters": dict(parameters),
            "send_limit": limits_bps[vid],
            "receive_limit": limits_bps[vid],
        }
        for vid in fabric.vlans
    }
    switches: dict[str, Any] = {}
    for switch in fabric.switches:
        ports = {
            pn.port_no: {"name": pn.name, "capacity": pn.link_rate_bps, "trunk": list(pn.vlans)}
            for pn in fabric.pns
            if pn.switch == switch.name
        }
        ovsdb = {"ovsdb": OVSDB} if queues else {}
        switches[switch.name] = {"dpid": f"{switch.dpid:016x}", **ovsdb, "ports": ports}
    return {
        "control": {"on_stop": "remove"},
        "openflow": {"listen": f"127.0.0.1:{openflow_port}"},
        "rest": {"listen": f"127.0.0.1:{rest_port}"},
        "queues": {"max_rate": "limit"},
        "vlans": vlans,
        "switches": switches,
    }


def dump_yaml(config: Mapping[str, Any]) -> str:
    """Return a configuration as YAML, in the order it has."""
    # libyaml, where PyYAML was built with it: a configuration of hundreds of switches takes the plain one 10 s.
    text: str = yaml.dump(dict(config), Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)
    return text


def free_ports(count: int) -> list[int]:
    """Return TCP ports that nobody listens on at 127.0.0.1, and that nobody is given by chance until they are used.

    They are none of those that the kernel gives to whoever connects, and processes that ask get other ones in turn.
    """
    found: list[int] = []
    for _ in range(MAX_TRIES):
        if len(found) == count:
            return found
        port = _next_port()
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            found.append(port)
    raise ControllerError(f"of {MAX_TRIES} ports not {count} are free")


def _next_port() -> int:
    """Return the port after the one that this user's processes were given last."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    end = lowest if lowest >= FIRST_PORT + MAX_TRIES else 1 << 16
    path = Path(tempfile.gettempdir()) / f"dets-ports-{os.getuid()}"
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        port = int(last.read() or 0) + 1
        port = port if FIRST_PORT <= port < end else FIRST_PORT
        last.seek(0)
        last.write(f"{port:5}")
    return port


@dataclass(frozen=True)
class ProcessLocation:
    """Where a process runs: the address that others reach it at, what its command begins with, and its environment.

    ``inside`` is the network namespace of its loopback, for one ``with`` in one thread.
    """

    host: str = "127.0.0.1"
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    inside: Callable[[], AbstractContextManager[object]] = nullcontext


class ControllerProcess:
    """``dets run`` with a configuration, inside a ``with``; its log and configuration stay in ``folder``.

    Another Ryu ``application`` can run in its place; ``environment`` is added to the process's own; ``profile`` is a
    file for where its processor time goes (``experiments.machine.profiler``). It runs at ``place``.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        folder: Path,
        application: Path | None = None,
        environment: Mapping[str, str] | None = None,
        profile: Path | None = None,
        place: ProcessLocation | None = None,
    ) -> None:
        self._place, folder = place or ProcessLocation(), folder.resolve()  # the process runs elsewhere
        self.config_path = folder / "controller.yaml"
        self.log_path = folder / "controller.log"
        self.config_path.write_text(dump_yaml(config))
        self.rest_url = f"http://{config['rest']['listen']}"
        self._command = [sys.executable, "-m", "apps.cli", "run", "--config", str(self.config_path)]
        if application is not None or profile is not None:
            launcher = [
                "apps.runtime.launcher",
                "--dets-config",
                str(self.config_path),
                str(application or APPLICATION),
            ]
            runner = [] if profile is None else ["experiments.machine.profiler", str(profile.resolve())]
            self._command = [sys.executable, "-m", *runner, *launcher]
        self._command = [*self._place.command, *self._command]
        self._environment = {**os.environ, **(environment or {}), **self._place.environment}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ControllerProcess:
        for kept in self.config_path.parent.glob(f"{self.config_path.stem}.db*"):
            kept.unlink()  # what an earlier run has set is not to be in force in this one
        self.log_path.write_bytes(b"")
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.end(signal.SIGTERM)

    def start(self) -> None:
        """Start the process; it may not listen yet."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def end(self, number: signal.Signals) -> int:
        """Send a signal, wait for the process, killing it if it does not end, and return its exit status."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP_TIMEOUT_S)
        return self._process.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def wait_ready(self, switches: set[str], timeout_s: float = 40.0) -> None:
        """Wait until the controller says that each of these switches is ready; else ControllerError."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.check_alive()
            states = self.health().get("switches", {})
            missing = sorted(name for name in switches if states.get(name) != "ready")
            if not missing:
                return
            if time.monotonic() > deadline:
                said = ", ".join(f"{name}: {states.get(name, 'unknown')}" for name in missing)
                raise ControllerError(f"switches not ready within {timeout_s:g} s ({said}){self.log_tail()}")
            time.sleep(0.2)

    def check_alive(self) -> None:
        """Raise ControllerError if the process has ended."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise ControllerError(f"the controller ended with status {self._process.returncode}{self.log_tail()}")

    def get(self, path: str) -> Any:
        """Return the JSON of a REST resource."""
        return json.loads(self.read(path))

    def read(self, path: str) -> str:
        """Return the text of a REST resource."""
        return self._ask(urllib.request.Request(f"{self.rest_url}{path}")).decode()

    def patch(self, path: str, **fields: object) -> Any:
        """Change a REST resource and return it as it is then; urllib's HTTPError, an OSError, if that is refused."""
        body, headers = json.dumps(fields).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.rest_url}{path}", body, headers, method="PATCH")
        return json.loads(self._ask(request))

    def health(self) -> dict[str, Any]:
        """Return what the controller says of itself, well or not; {} while it does not answer."""
        try:
            return dict(self.get("/v1/health"))
        except urllib.error.HTTPError as error:  # an unhealthy controller may say so by its status as well
            with error, suppress(OSError, HTTPException, ValueError, TypeError):
                return dict(json.load(error))
        except (OSError, ValueError):
            pass  # it does not listen yet
        return {}

    def _ask(self, request: urllib.request.Request) -> bytes:
        """Return the body of an answer. Raises OSError without one, and for one that breaks off as the process ends."""
        try:
            with self._place.inside(), urllib.request.urlopen(request, timeout=5) as answer:
                return bytes(answer.read())
        except HTTPException as error:
            raise ConnectionError(f"{request.full_url}: the answer breaks off ({error!r})") from error

    def log_tail(self) -> str:
        """Return the last lines of its log as the end of a complaint."""
        lines = self.log_path.read_text(errors="replace").splitlines()[-15:]
        return "; its log ends with:\n" + "\n".join(lines) if lines else "; its log is empty"
