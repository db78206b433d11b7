"""iperf3 sources on an Open vSwitch fabric: TCP with a congestion control of one's choice, UDP at a rate.

One iperf3 server per flow, since a server takes one test at a time. Every process ends by itself after a bounded time
and is ended by its own pid before that; each client leaves its JSON report in the run's folder.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.machine.process_groups import end_groups
from experiments.measure.frames import UDP_FRAME_BYTES, UDP_PAYLOAD_BYTES
from experiments.ovs.fabric import OvsFabric
from topologies.fabric import VirtualNode

FIRST_PORT = 5201
GRACE_S = 5.0  # iperf3 exchanges results at the end, over a path that may be full


@dataclass(frozen=True, slots=True)
class IperfSource:
    """What one VN sends to another of its VLAN: TCP ``streams``, or UDP; its ``wire_rate_bps`` counts tagged frames."""

    sender: VirtualNode
    receiver: VirtualNode
    tcp_port: int
    congestion_control: str | None = None
    wire_rate_bps: int | None = None
    streams: int = 1

    @property
    def name(self) -> str:
        """The flow's name, and its report's."""
        return f"{self.sender.name}-to-{self.receiver.name}"

    def client_command(self, duration_s: float) -> list[str]:
        """Return iperf3's command line."""
        command = ["iperf3", "-c", self.receiver.ip, "-p", str(self.tcp_port), "-t", f"{duration_s:.0f}", "-J"]
        command += ["--connect-timeout", "5000"]
        if self.wire_rate_bps is None:
            return [*command, "-C", str(self.congestion_control), "-P", str(self.streams)]
        payload_bps = round(self.wire_rate_bps * UDP_PAYLOAD_BYTES / UDP_FRAME_BYTES)
        return [*command, "-u", "-b", str(payload_bps), "-l", str(UDP_PAYLOAD_BYTES)]


def tcp_sources(senders: Sequence[VirtualNode], receiver: VirtualNode, congestion_control: str) -> list[IperfSource]:
    """Return one TCP flow from each sender to the receiver."""
    return [
        IperfSource(vn, receiver, FIRST_PORT + i, congestion_control=congestion_control) for i, vn in enumerate(senders)
    ]


class IperfTraffic:
    """The iperf3 processes of one run; a context manager that ends them all."""

    def __init__(self, fabric: OvsFabric, folder: Path, max_duration_s: float) -> None:
        self._fabric = fabric
        self._folder = folder
        self._max_duration_s = max_duration_s
        self._servers: list[subprocess.Popen[bytes]] = []
        self._clients: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> IperfTraffic:
        return self

    def __exit__(self, *exception: object) -> None:
        end_groups([*self._clients.values(), *self._servers])

    def serve(self, sources: Iterable[IperfSource]) -> None:
        """Start the servers of these flows and wait until each listens; raise TimeoutError if one does not."""
        sources = list(sources)
        for source in sources:
            # The report of a server goes nowhere: what a VN received is measured on the wire, by the sampler.
            command = [*_bounded(self._max_duration_s), "iperf3", "-s", "-p", str(source.tcp_port)]
            host = self._fabric.host(source.receiver.name)
            self._servers.append(host.popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        deadline = time.monotonic() + 10
        wanted = {(source.receiver.name, source.tcp_port) for source in sources}
        while missing := {key for key in wanted if key[1] not in self._listening(key[0])}:
            if time.monotonic() > deadline:
                raise TimeoutError(f"iperf3 servers do not listen: {sorted(missing)}")
            time.sleep(0.1)

    def start(self, sources: Iterable[IperfSource], duration_s: float) -> None:
        """Start these flows' clients at once."""
        for source in sources:
            host = self._fabric.host(source.sender.name)
            with (self._folder / f"{source.name}.json").open("wb") as report:
                command = [*_bounded(duration_s + GRACE_S), *source.client_command(duration_s)]
                self._clients[source.name] = host.popen(command, stdout=report, stderr=subprocess.STDOUT)

    def check_running(self, sources: Iterable[IperfSource]) -> None:
        """Raise RuntimeError naming the flows that have stopped already, and why."""
        ended = [s.name for s in sources if self._clients[s.name].poll() is not None]
        if ended:
            said = self.report(ended[0]).get("error", "nothing")
            raise RuntimeError(f"{len(ended)} iperf3 flows do not run, {ended[0]} first; it said: {said}")

    def is_running(self, source: IperfSource) -> bool:
        """Whether a flow's client has not ended yet."""
        return self._clients[source.name].poll() is None

    def wait(self, sources: Iterable[IperfSource], timeout_s: float) -> None:
        """Wait until these clients have ended, ``timeout_s`` at most; what has not ended by then is ended."""
        clients = [self._clients[s.name] for s in sources]
        deadline = time.monotonic() + timeout_s
        for client in clients:
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.wait(max(0.0, deadline - time.monotonic()))
        end_groups(clients)

    def report(self, name: str) -> dict[str, Any]:
        """Return a client's JSON report; {"error": ...} if it was ended before it could write one."""
        try:
            return dict(json.loads((self._folder / f"{name}.json").read_text()))
        except (OSError, ValueError) as error:
            return {"error": f"no report: {error}"}

    def _listening(self, host_name: str) -> set[int]:
        text = self._fabric.host(host_name).cmd("ss -Hltn")
        return {int(line.split()[3].rpartition(":")[2]) for line in text.splitlines() if len(line.split()) > 3}


def _bounded(duration_s: float) -> list[str]:
    """Return the start of a command line that ends by itself."""
    return ["timeout", f"{duration_s:.0f}"]
