"""The real controller in its own process, configured for a fabric, for the time of one experiment."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

import yaml

from apps.cli.support.rest_client import Client, RequestError
from experiments.machine.process_runner import ControllerError, Process, ProcessRunner, wait_until
from topologies.fabric import Fabric

OVSDB = f"unix:{os.environ.get('OVS_RUNDIR', '/var/run/openvswitch')}/db.sock"  # the default of ovs-vsctl
REST_TIMEOUT_S = 5.0
FIRST_PORT, MAX_TRIES = 10_000, 2000
ROOT = Path(__file__).resolve().parents[2]
APPLICATION = ROOT / "apps" / "dets.py"


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
    """Return a configuration for a fabric: ``limits_bps`` by VLAN, both directions, for every VN; queues at the limits.

    Without ``queues`` no switch has an OVSDB address, like a switch without configurable queues.

    The controller removes its state from the switches when it stops (``on_stop: remove``).
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


def has_ovsdb() -> bool:
    """Whether a database of Open vSwitch exists at the address of configurations."""
    return Path(OVSDB.removeprefix("unix:")).exists()


def dump_yaml(config: Mapping[str, Any]) -> str:
    """Return a configuration as YAML, in its order; a value used twice is written twice."""
    text: str = yaml.dump(dict(config), Dumper=_DUMPER, sort_keys=False)
    return text


# libyaml, if PyYAML was built with it: the pure Python dumper takes 10 s for a configuration of hundreds of switches.
_DUMPER: Any = type("_DUMPER", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {"ignore_aliases": lambda *_: True})


def free_ports(count: int) -> list[int]:
    """Return TCP ports that are free at 127.0.0.1, and that stay free until they are used.

    They are outside the kernel's range of ephemeral ports, and processes that ask get different ones in turn.
    """
    ports: list[int] = []
    for _ in range(MAX_TRIES):
        if len(ports) == count:
            return ports
        port = _next_port()
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            ports.append(port)
    raise ControllerError(f"of {MAX_TRIES} ports not {count} are free")


def _next_port() -> int:
    """Return the port after the last one given to a process of this user."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    end = lowest if lowest >= FIRST_PORT + MAX_TRIES else 1 << 16
    path = Path(tempfile.gettempdir()) / f"dets-ports-{os.getuid()}"
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        port = int(last.read() or 0) + 1
        port = port if FIRST_PORT <= port < end else FIRST_PORT
        last.seek(0)
        last.write(f"{port:5}")  # of fixed length, so that it overwrites the last port completely
    return port


@dataclass(frozen=True)
class ProcessLocation:
    """Where a process runs: its address for others, the beginning of its command, and its environment.

    ``inside`` is the network namespace of its loopback, for one ``with`` in one thread.
    """

    host: str = "127.0.0.1"
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    inside: Callable[[], AbstractContextManager[object]] = nullcontext


class ControllerProcess(ProcessRunner):
    """``dets run`` with a configuration, inside a ``with``; its log and configuration stay in ``folder``.

    Another Ryu ``application`` can run in its place; ``environment`` is added to the process's own; ``profile`` is a
    file for its processor time by function (``experiments.machine.profiler``). It runs at ``location``. Requests raise
    RequestError when the controller rejects them, or does not answer.
    """

    file_name = "controller"
    rest_timeout_s = REST_TIMEOUT_S

    def __init__(
        self,
        config: Mapping[str, Any],
        folder: Path,
        application: Path | None = None,
        environment: Mapping[str, str] | None = None,
        profile: Path | None = None,
        location: ProcessLocation | None = None,
    ) -> None:
        folder = folder.resolve()  # the process has another working directory
        self._location = location or ProcessLocation()
        self.config_path = folder / f"{self.file_name}.yaml"
        self.log_path = folder / f"{self.file_name}.log"
        self.token: str | None = None
        self.configure(config)
        # With an application or a profile the launcher runs instead; is_plain compares with this command.
        self._command = self._plain = [sys.executable, "-m", "apps.cli", "run", "--config", str(self.config_path)]
        if application is not None or profile is not None:
            launcher = [
                "apps.runtime.launcher",
                "--dets-config",
                str(self.config_path),
                str(application or APPLICATION),
            ]
            runner = [] if profile is None else ["experiments.machine.profiler", str(profile.resolve())]
            self._command = [sys.executable, "-m", *runner, *launcher]
        self._command = [*self._location.command, *self._command]
        self._environment = {**os.environ, **(environment or {}), **self._location.environment}

    def __enter__(self) -> Self:
        for kept in self.config_path.parent.glob(f"{self.config_path.stem}.db*"):
            kept.unlink()  # settings of an earlier run must not apply to this one
        self.log_path.write_bytes(b"")
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def configure(self, config: Mapping[str, Any]) -> None:
        """Write the configuration for the next start."""
        self.config_path.write_text(dump_yaml(config))
        self.url = f"http://{config['rest']['listen']}"

    @property
    def is_plain(self) -> bool:
        """Whether it is ``dets run`` at this process's location and in its environment, without additions."""
        return self._command == self._plain and self._environment == os.environ

    def start(self) -> None:
        """Start the process; it may not listen yet."""
        with self.log_path.open("ab") as log, open(os.devnull, "rb") as nothing:
            self._process = self._spawn(nothing, log)

    def _spawn(self, nothing: BinaryIO, log: BinaryIO) -> Process:
        """Return the new process, which reads ``nothing`` and writes to ``log``."""
        return subprocess.Popen(
            self._command, cwd=ROOT, env=self._environment, stdin=nothing, stdout=log, stderr=subprocess.STDOUT
        )

    def wait_ready(self, switches: set[str], timeout_s: float = 40.0) -> None:
        """Wait until the controller reports each of these switches as ready; ControllerError after ``timeout_s``."""

        def states() -> dict[str, str]:
            reported = self.health().get("switches", {})
            return {name: reported.get(name, "unknown") for name in sorted(switches)}

        def log() -> str:
            pending = ", ".join(f"{name}: {state}" for name, state in states().items() if state != "ready")
            return f" ({pending}){self.log_tail()}"

        wait_until(lambda: set(states().values()) <= {"ready"}, "switches ready", timeout_s, self.check_alive, log=log)

    def check_alive(self) -> None:
        """Raise ControllerError if the process has ended."""
        assert self._process is not None
        if (status := self._process.poll()) is not None:
            raise ControllerError(f"the controller ended with status {status}{self.log_tail()}")

    def call(self, path: str, method: str = "GET", body: object = None) -> Any:
        """Return the JSON of the controller's response to a request."""
        with self._location.inside():
            return self.client.call(path, method=method, body=body)

    def get(self, path: str) -> Any:
        """Return the JSON of a REST resource."""
        return self.call(path)

    def patch(self, path: str, **fields: object) -> Any:
        """Change a REST resource and return its new state."""
        return self.call(path, "PATCH", fields)

    def read(self, path: str) -> str:
        """Return the text of a REST resource."""
        with self._location.inside():
            return self.client.read(path).decode()

    def health(self) -> dict[str, Any]:
        """Return the controller's health; {} while it does not answer."""
        try:
            return dict(self.get("/v1/health"))
        except RequestError:
            return {}

    def log_tail(self) -> str:
        """Return the last lines of the log, as the end of an error message."""
        lines = self.log_path.read_text(errors="replace").splitlines()[-15:]
        return "; its log ends with:\n" + "\n".join(lines) if lines else "; its log is empty"

    @property
    def client(self) -> Client:
        """A client of the REST interface."""
        return Client(self.url, self.token, timeout_s=self.rest_timeout_s)
