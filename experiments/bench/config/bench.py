"""``dets bench config``: check, start and reload with a large configuration file, while the control loop runs.

Every VLAN is at every port, with its own limits there: the most virtual nodes (VNs), and the most text, for that number
of ports. No switch is connected. Reloads come one at a time, each with five changed limits; then from several clients
at once; then as signals, faster than reloads can be done. Each phase counts the intervals that the loop missed.

Seconds depend on the machine and its load. So the processor time of PyYAML's ``safe_load`` of the same file with
libyaml, in the same run, is printed too, and the ratio of check and reload to it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import yaml

from experiments.bench.harness import Target, check_bounds, finished, missed_intervals
from experiments.machine.controller_process import ROOT, ControllerProcess, free_ports
from experiments.machine.process_runner import wait_until

VLANS, PORTS, SECONDS = 1_000, 48, 3.0
INTERVAL_MS = 55
CLIENTS, SIGNALS_PER_S, CHANGED = 8, 100, 5
MAX_CHECK_S, MAX_START_S, MAX_RELOAD_S = 1.0, 3.0, 2.0
_TIMEOUT_S = 120.0
_AFTERWARDS_S = 0.5
_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LIMIT_BPS, _CAPACITY_BPS = 1_000_000, 10_000_000_000
_MAX_VLANS = _CAPACITY_BPS // (2 * _LIMIT_BPS)


def run(
    vlans: Annotated[int, "VLANs, each at every port."] = VLANS,
    ports: Annotated[int, "Edge ports."] = PORTS,
    seconds: Annotated[float, "Duration of the phases without requests and with signals."] = SECONDS,
    reloads: Annotated[int, "How often the file is changed and reloaded."] = 3,
) -> dict[str, Any]:
    """Duration of check, start and reload with a large configuration, and intervals that the loop misses."""
    check_bounds(
        vlans=(vlans, 1, _MAX_VLANS), ports=(ports, 1, 10_000), seconds=(seconds, 1, 600), reloads=(reloads, 1, 1_000)
    )
    with TemporaryDirectory(prefix="dets-config-") as folder:
        figures = _measured(_File(Path(folder), vlans, ports), seconds, reloads)
    figures["check_of_baseline"] = round(figures["check_cpu_s"] / figures["baseline_cpu_s"], 2)
    targets = [
        Target("check", figures["check_s"], "s", MAX_CHECK_S),
        Target("start", figures["start_s"], "s", MAX_START_S),
        Target("reload", figures["reload_s"], "s", MAX_RELOAD_S),
        Target("intervals missed in reloads", figures["reload_missed"], "", 0),
        Target(f"intervals missed in {CLIENTS} reloads at once", figures["at_once_missed"], "", 0),
        Target(f"intervals missed in {SIGNALS_PER_S} signals a second", figures["signals_missed"], "", 0),
    ]
    settings = {"vlans": vlans, "ports": ports, "vns": vlans * ports, "seconds": seconds, "reloads": reloads}
    return finished("config", figures, targets, {**settings, "interval_ms": INTERVAL_MS})


class _File:
    """The configuration file; ``change`` sets other limits of five VNs each time."""

    def __init__(self, folder: Path, vlans: int, ports: int) -> None:
        openflow, rest = free_ports(2)
        self._vlans, self._ports, self._changes = vlans, ports, 0
        self.controller = ControllerProcess({"rest": {"listen": f"127.0.0.1:{rest}"}}, folder)
        self.controller.rest_timeout_s = _TIMEOUT_S
        self._head = {
            "control": {"interval_ms": INTERVAL_MS},
            "openflow": {"listen": f"127.0.0.1:{openflow}", "first_meter_id": 1, "last_meter_id": 1_000_000},
            "rest": {"listen": f"127.0.0.1:{rest}", "requests_per_s": 10_000},
            "metrics": {"vns": False},  # a client does not read those of 48,000 VNs
        }
        self.path = self.controller.config_path
        self.change()

    def change(self) -> None:
        """Write the file with other limits than before."""
        self._changes += 1
        lines = [yaml.safe_dump(self._head), "vlans:"]
        lines += [f"  {vid}: {{name: tenant{vid}}}" for vid in range(1, self._vlans + 1)]
        lines += ["switches:", "  s1:", "    dpid: 1", "    ports:"]
        vids = ", ".join(map(str, range(1, self._vlans + 1)))
        for port_no in range(1, self._ports + 1):
            lines += [f"      {port_no}:", f"        capacity: {_CAPACITY_BPS}", f"        trunk: [{vids}]"]
            lines.append("        vns:")
            for vid in range(1, self._vlans + 1):
                send_bps = _LIMIT_BPS + 1_000 * ((vid + port_no) % 500)
                if port_no == 1 and vid <= CHANGED:
                    send_bps += 1_000 * (self._changes % 100)
                lines.append(f"          {vid}: {{send_limit: {send_bps}, receive_limit: {_LIMIT_BPS}}}")
        self.path.write_text("\n".join(lines) + "\n")

    def reload(self) -> Any:
        """Request a reload, and return the response."""
        return self.controller.call("/v1/reload", "POST")

    def reload_at_once(self) -> None:
        """Request reloads from several clients at once."""
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(lambda _: self.reload(), range(CLIENTS)))


def _measured(file: _File, seconds: float, reloads: int) -> dict[str, float]:
    """Return the durations and missed intervals of check, start, reloads and signals, and the CPU time of the check.

    "idle_missed" are intervals missed without any request. "reload_s" is that of the median reload. "reloaded" is how
    often the file became effective during all signals.
    """
    controller = file.controller
    figures = {"baseline_cpu_s": _cpu_of(lambda: yaml.load(file.path.read_text(), _LOADER))}
    before_s = _children_cpu_s()
    check_command = [sys.executable, "-m", "apps.cli", "check", str(file.path)]
    figures["check_s"] = _seconds(
        lambda: subprocess.run(check_command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    )
    figures["check_cpu_s"] = round(_children_cpu_s() - before_s, 2)
    with controller:
        figures["start_s"] = _seconds(lambda: _wait_for_answer(controller))
        _missed_while(controller, lambda: None)  # deferred work of the start
        figures["idle_missed"] = _missed_while(controller, lambda: time.sleep(seconds))
        durations_s, missed = [], 0
        for _ in range(reloads):
            file.change()
            missed += _missed_while(controller, lambda: durations_s.append(_seconds(file.reload)))
        figures |= {"reload_s": median(durations_s), "reload_missed": missed}
        file.change()
        figures["at_once_missed"] = _missed_while(controller, lambda: durations_s.append(_seconds(file.reload_at_once)))
        figures["at_once_s"] = durations_s[-1]
        file.change()
        reloads_before = _reloads(controller)
        figures["signals_missed"] = _missed_while(controller, lambda: _send_signals(controller, seconds))
        file.reload()
        figures["reloaded"] = _reloads(controller) - reloads_before - 1
    return figures


def _send_signals(controller: ControllerProcess, seconds: float) -> None:
    """Send SIGHUP to the controller SIGNALS_PER_S times a second."""
    for _ in range(round(seconds * SIGNALS_PER_S)):
        controller.send_signal(signal.SIGHUP)
        time.sleep(1 / SIGNALS_PER_S)


def _missed_while(controller: ControllerProcess, function: Callable[[], object]) -> int:
    """Return how many intervals the loop missed while ``function`` ran, up to the next answer."""
    before = controller.get("/v1/loop")
    function()
    time.sleep(_AFTERWARDS_S)
    return missed_intervals(before, controller.get("/v1/loop"))


def _seconds(function: Callable[[], object]) -> float:
    """Return how long a function takes, in seconds."""
    began_s = time.monotonic()
    function()
    return round(time.monotonic() - began_s, 2)


def _cpu_of(function: Callable[[], object]) -> float:
    """Return the processor time of a function in this process, in seconds."""
    began_s = time.process_time()
    function()
    return round(time.process_time() - began_s, 4)


def _children_cpu_s() -> float:
    """Return the processor time of all ended child processes of this process."""
    used = os.times()
    return used.children_user + used.children_system


def _wait_for_answer(controller: ControllerProcess) -> None:
    """Wait until the controller responds and has run an interval."""
    wait_until(
        lambda: controller.health() and controller.get("/v1/loop")["last"],
        "a first interval",
        _TIMEOUT_S,
        controller.check_alive,
        every_s=0.02,
    )


def _reloads(controller: ControllerProcess) -> int:
    """Return how often the file has become effective, or was unchanged, since the start."""
    name = 'dets_config_reloads_total{result="done"}'
    lines = controller.read("/metrics").splitlines()
    return next(int(float(line.removeprefix(name))) for line in lines if line.startswith(name))
