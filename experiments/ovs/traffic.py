"""Traffic on an Open vSwitch fabric: the processes at both ends of sources, in VNs' namespaces (``endpoint``).

Every process ends after a bounded time, or is ended by its pid before that; its job, its log and its report are in the
run's folder.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.machine.process_groups import end_groups
from experiments.measure.frame_sizes import TCP_WIRE_BYTES, UDP_FRAME_BYTES
from experiments.ovs import traffic_endpoint
from experiments.ovs.fabric import OvsFabric
from topologies.fabric import VirtualNode

FIRST_PORT = 5201
BEGIN_IN_S = 0.5
FRAME_BYTES = {"udp": UDP_FRAME_BYTES, "tcp": TCP_WIRE_BYTES}


class EndProcess:
    """One end of sources, "receive" or "send", at a VN."""

    def __init__(self, ovs: OvsFabric, vn: VirtualNode, role: str, job: Mapping[str, Any], path: Path) -> None:
        job = {**job, "address": vn.ip, "interface": vn.host_interface}
        path.write_text(json.dumps(job))
        self._path = path
        command = [sys.executable, traffic_endpoint.__file__, role, str(path)]
        with path.with_suffix(".log").open("wb") as log:
            self.process: subprocess.Popen[bytes] = ovs.host(vn.name).popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )

    def wait_ready(self) -> None:
        """Wait until the process is ready; RuntimeError with its last output if it ends before that."""
        assert self.process.stdout is not None
        if self.process.stdout.readline() != traffic_endpoint.READY:
            raise RuntimeError(f"{self._path.stem}: did not get ready: {self.last_line()}")

    def begin(self, at_ns: int) -> None:
        """Start the traffic at a time of CLOCK_MONOTONIC, later if the process is not ready by then."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended: its status has the reason
            self.process.stdin.write(f"{at_ns}\n".encode())
            self.process.stdin.flush()

    def last_line(self) -> str:
        """Return the last line of the log."""
        return " ".join(self._path.with_suffix(".log").read_text().strip().splitlines()[-1:])

    def report(self) -> dict[str, Any]:
        """Return the report; OSError or ValueError if the process ended before it wrote one."""
        return dict(json.loads(self._path.with_suffix(".report.json").read_text()))


@dataclass(frozen=True, slots=True)
class Flow:
    """Traffic from one VN to another of its VLAN: TCP ``streams``, or UDP; ``wire_rate_bps`` counts tagged frames."""

    sender: VirtualNode
    receiver: VirtualNode
    port: int
    congestion_control: str | None = None
    wire_rate_bps: int | None = None
    streams: int = 1

    @property
    def name(self) -> str:
        """The flow's name, and its report's."""
        return f"{self.sender.name}-to-{self.receiver.name}"

    def job(self, duration_s: float) -> dict[str, Any]:
        """Return the job of both ends for that duration, with one interval of counting."""
        is_udp = self.wire_rate_bps is not None
        rate_bps = self.wire_rate_bps * traffic_endpoint.PAYLOAD_BYTES / UDP_FRAME_BYTES if self.wire_rate_bps else None
        source = {
            "protocol": "udp" if is_udp else "tcp",
            "address": self.receiver.ip,
            "port": self.port,
            "payload_bps": rate_bps,
            "spans": [[0.0, duration_s]],
            "octets": None,
            "flows": self.streams,
            "sessions": None,
            "congestion_control": self.congestion_control,
        }
        return {"duration_s": duration_s, "intervals": 1, "interval_s": duration_s, "sources": [source]}


def tcp_flows(senders: Sequence[VirtualNode], receiver: VirtualNode, congestion_control: str) -> list[Flow]:
    """Return one TCP flow from each sender to the receiver."""
    return [
        Flow(vn, receiver, FIRST_PORT + number, congestion_control=congestion_control)
        for number, vn in enumerate(senders)
    ]


class Traffic:
    """The processes of some flows; a context manager that ends them all."""

    def __init__(self, fabric: OvsFabric, folder: Path, max_duration_s: float) -> None:
        self._fabric = fabric
        self._folder = folder
        self._max_duration_s = max_duration_s
        self._receivers: list[EndProcess] = []
        self._senders: dict[str, EndProcess] = {}

    def __enter__(self) -> Traffic:
        return self

    def __exit__(self, *exception: object) -> None:
        end_groups([sender.process for sender in (*self._senders.values(), *self._receivers)])

    def serve(self, flows: Iterable[Flow]) -> None:
        """Start the receivers of these flows and wait until each listens; RuntimeError if one does not."""
        started = []
        for flow in flows:
            path = self._folder / f"receive-{flow.name}.json"
            process = EndProcess(self._fabric, flow.receiver, "receive", flow.job(self._max_duration_s), path)
            self._receivers.append(process)
            started.append(process)
        for process in started:
            process.wait_ready()
            process.begin(time.monotonic_ns())

    def start(self, flows: Iterable[Flow], duration_s: float) -> None:
        """Start these flows' senders; they begin together, in half a second; those not ready then begin later."""
        begin_ns = time.monotonic_ns() + round(BEGIN_IN_S * 1e9)
        for flow in flows:
            path = self._folder / f"send-{flow.name}.json"
            path.with_suffix(".report.json").unlink(missing_ok=True)
            process = EndProcess(self._fabric, flow.sender, "send", flow.job(duration_s), path)
            process.begin(begin_ns)
            self._senders[flow.name] = process

    def check_running(self, flows: Iterable[Flow]) -> None:
        """Raise RuntimeError naming the flows that have stopped already, and why."""
        ended = [flow.name for flow in flows if self._senders[flow.name].process.poll() is not None]
        if ended:
            output = self._senders[ended[0]].last_line() or "nothing"
            raise RuntimeError(f"{len(ended)} flows do not run, {ended[0]} first; last output: {output}")

    def is_running(self, flow: Flow) -> bool:
        """Whether a flow's sender is still running."""
        return self._senders[flow.name].process.poll() is None

    def wait(self, flows: Iterable[Flow], timeout_s: float) -> None:
        """Wait until the senders of these flows have ended, ``timeout_s`` in all; then end those that still run."""
        processes = [self._senders[flow.name].process for flow in flows]
        deadline = time.monotonic() + timeout_s
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        end_groups(processes)

    def report(self, name: str) -> dict[str, int]:
        """Return how many segments or datagrams a flow has "sent", and TCP has resent ("lost"); {} if cut off."""
        try:
            (report,) = self._senders[name].report()["sources"]
        except (OSError, ValueError):
            return {}
        return {key: int(report[key]) for key in ("sent", "lost") if key in report}
