"""A scenario on Open vSwitch with Mininet, in real time, with the real controller (root)."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.machine.controller_process import ControllerProcess
from experiments.machine.cpu_usage import (
    CpuTicks,
    busy_warning,
    cpu_shares,
    process_cpu_s,
    read_cpu_ticks,
    vswitchd_pid,
)
from experiments.machine.process_groups import end_groups
from experiments.ovs import traffic_endpoint
from experiments.ovs.agents import fabric_agents
from experiments.ovs.fabric import OvsFabric, OvsOptions, describe_switches
from experiments.ovs.static_limits import install_static_limits
from experiments.ovs.traffic import BEGIN_IN_S, FRAME_BYTES, EndProcess
from experiments.runs.model_run import Progress, baseline_limits_bps
from experiments.runs.recorded_decisions import POLL_INTERVAL_S, Controllers, NodesDecisions, apply_event, decisions_of
from experiments.runs.run_configuration import agents_at, controllers, static_limits, uplink_classes
from experiments.runs.scenario_run import (
    DEFAULT_SETTINGS,
    FloatArray,
    RunSettings,
    ScenarioRun,
    receivers_of,
    transfer_rows,
)
from experiments.scenarios.scenario import BASELINES, INTERVAL_S, Scenario, Source
from topologies.fabric import Fabric, VirtualNode

FIRST_PORT = 6000
END_TIMEOUT_S = 30.0


def run_on_ovs(
    scenario: Scenario,
    control: str,
    seed: int,
    progress: Progress,
    folder: Path,
    settings: RunSettings = DEFAULT_SETTINGS,
) -> ScenarioRun:
    """Run a scenario under a control; files of the run go to ``folder``, with the controller's recording."""
    folder.mkdir(parents=True, exist_ok=True)
    fabric = scenario.fabric()
    with contextlib.ExitStack() as stack:
        controller, targets = None, None
        if control not in BASELINES:
            controller, openflow = stack.enter_context(controllers(scenario, fabric, control, folder, settings))
            targets = " ".join(f"tcp:{host}:{port}" for host, port in openflow)
        options = OvsOptions(
            controller=targets,
            datapath=settings.datapath,
            edge_queues=control == "none" or not scenario.queues,
            congestion_control=settings.congestion_control,
            patch_links=True,
        )
        ovs = stack.enter_context(OvsFabric(fabric, options))
        for number, classes in uplink_classes(scenario, fabric, control).items():
            ovs.set_uplink_queues(number, classes)
        if controller is not None:
            controller.wait_ready({switch.name for switch in fabric.switches})
            if agents := agents_at(fabric, settings.shaping):
                stack.enter_context(fabric_agents(agents, folder))
                wait_agents(controller, len(agents))
            if settings.announce is not None:
                settings.announce(controller.url)
        elif control == "static":
            install_static_limits(fabric, *static_limits(scenario, fabric))
        if ovs.classifier is not None:
            ovs.classifier.wait_ready()
        endpoints = stack.enter_context(_Endpoints(ovs, scenario, seed, settings.congestion_control, folder))
        return _measure(
            scenario, control, seed, progress, fabric, controller, endpoints, list(ovs.warnings), settings, folder
        )


def wait_agents(controller: Controllers, count: int) -> None:
    """Wait until the controller has ``count`` agents; TimeoutError if it does not."""
    deadline = time.monotonic() + END_TIMEOUT_S
    while True:
        states = [port["agent"]["state"] for port in controller.get("/v1/ports")["ports"] if port["agent"]]
        if sum(state in ("hello", "trusted") for state in states) >= count:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"of {count} agents the controller knows: {', '.join(states)}")
        time.sleep(0.1)


def _measure(
    scenario: Scenario,
    control: str,
    seed: int,
    progress: Progress,
    fabric: Fabric,
    controller: Controllers | None,
    endpoints: _Endpoints,
    warnings: list[str],
    settings: RunSettings,
    folder: Path,
) -> ScenarioRun:
    """Run the traffic, and return its rates, the decisions and the notes on the machine.

    ``due`` are (time, action), done in this order while the traffic runs: costs are sampled at both ends of the
    judged span, events applied and a node killed at their times.
    """
    decisions = decisions_of(controller, scenario, fabric) if controller is not None else None
    ticks: list[CpuTicks] = []
    costs: list[_Costs] = []
    reports: dict[str, Any] = {}

    def sample_costs() -> None:
        ticks.append(read_cpu_ticks())
        if isinstance(controller, ControllerProcess):
            costs.append(_costs(controller))

    def record_reports() -> None:
        sample_costs()
        reports["switches"] = describe_switches(fabric)
        reports["vns"] = decisions.get("/v1/vns") if decisions is not None else None

    judged = scenario.judged
    due: list[tuple[float, Callable[[], object]]] = [(judged[0], sample_costs)]
    if controller is not None:
        due += [(event.at_s, functools.partial(apply_event, controller, fabric, event)) for event in scenario.events]
    if isinstance(decisions, NodesDecisions) and settings.kill_at_s is not None:
        due.append((settings.kill_at_s, decisions.kill))
    due.append((judged[1], record_reports))
    due.sort(key=lambda action: action[0])
    begun_s = endpoints.begin()
    reported_s = 0.0
    while due or reported_s < scenario.duration_s:
        now_s = time.monotonic() - begun_s
        while due and due[0][0] <= now_s:
            due.pop(0)[1]()
        if decisions is not None:
            decisions.poll()
        passed_s = min(max(now_s, 0.0), scenario.duration_s)
        progress(passed_s - reported_s)
        reported_s = passed_s
        next_s = due[0][0] if due else scenario.duration_s
        max_wait_s = POLL_INTERVAL_S if decisions is None else decisions.poll_interval_s
        time.sleep(max(0.0, min(max_wait_s, next_s - now_s)))
    if decisions is not None:
        decisions.stop()
        decisions.save(folder / "recording")
    cpu = cpu_shares(*ticks)
    endpoints.wait()
    warnings += busy_warning(cpu, f"the run ({control})")
    columns = endpoints.columns()
    notes: dict[str, Any] = {"begun_s": begun_s}  # on the clock of the recording
    if decisions is not None:
        notes |= decisions.notes(begun_s)
        granted_bps = decisions.granted_bps(scenario, fabric, begun_s, columns["time_s"])
    else:
        granted_bps = np.tile(baseline_limits_bps(scenario, control), (len(columns["time_s"]) - 1, 1))
    notes |= {"warnings": warnings, "cpu_idle_share": round(cpu.idle, 3)}
    notes["cpu_stolen_share"] = round(cpu.stolen, 3)
    if costs:
        notes |= _cost_rates(*costs)
    return ScenarioRun(scenario, control, "ovs", seed, granted_bps=granted_bps, notes=notes, seen=reports, **columns)


class _Costs(NamedTuple):
    """The cost of control so far: time on any clock, processor time of controller and switch, meters set."""

    at_s: float
    controller_s: float
    vswitchd_s: float
    modified_meters: int
    skipped_rounds: int


def _costs(controller: ControllerProcess) -> _Costs:
    """Return the costs so far, from the controller and the kernel."""
    loop = controller.get("/v1/loop")
    cpu_s = process_cpu_s(controller.pid), process_cpu_s(vswitchd_pid())
    return _Costs(time.monotonic(), *cpu_s, loop["modified_meters"], loop["skipped_rounds"])


def _cost_rates(before: _Costs, after: _Costs) -> dict[str, float]:
    """Return the costs per second between two samples; CPU shares are of one processor."""
    duration_s = after.at_s - before.at_s
    return {
        "controller_cpu_share": round((after.controller_s - before.controller_s) / duration_s, 4),
        "vswitchd_cpu_share": round((after.vswitchd_s - before.vswitchd_s) / duration_s, 4),
        "set_meters_per_s": round((after.modified_meters - before.modified_meters) / duration_s, 1),
        "skipped_rounds": after.skipped_rounds - before.skipped_rounds,
    }


class _Endpoints:
    """The processes at both ends of all sources; a context manager that ends them."""

    def __init__(self, ovs: OvsFabric, scenario: Scenario, seed: int, law: str, folder: Path) -> None:
        self._ovs, self._scenario, self._folder = ovs, scenario, folder
        self._spans, self._sessions, self._law = scenario.timeline(seed), scenario.sessions(seed), law
        self._ends: dict[str, EndProcess] = {}
        self._senders: dict[str, list[int]] = {}
        self._receivers: dict[str, list[int]] = {}

    def __enter__(self) -> _Endpoints:
        for number, source in enumerate(self._scenario.sources):
            sender, receiver = self._vns_of(source)
            # One process for each VN and direction carries all of the VN's sources, by their numbers.
            self._senders.setdefault(sender.name, []).append(number)
            self._receivers.setdefault(receiver.name, []).append(number)
        try:
            self._start("receive", self._receivers)
            self._start("send", self._senders)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def begin(self) -> float:
        """Start the traffic; return its start, in seconds of CLOCK_MONOTONIC."""
        begin_ns = time.monotonic_ns() + round(BEGIN_IN_S * 1e9)
        for end in self._ends.values():
            end.begin(begin_ns)
        return begin_ns / 1e9

    def wait(self) -> None:
        """Wait until all processes have written their reports; RuntimeError naming one that failed."""
        for name, end in self._ends.items():
            status = end.process.wait(END_TIMEOUT_S)
            if status != 0:
                raise RuntimeError(f"{name}: ended with status {status}: {end.last_line()}")

    def columns(self) -> dict[str, FloatArray]:
        """Return the columns of a run, except the grants, from the reports of all processes.

        Lost packets are those that the sender reports, or for UDP those sent and not received.
        """
        sources = self._scenario.sources
        intervals = self._intervals()
        delivered = np.zeros((intervals, len(sources)))
        sent, lost = np.zeros(len(sources)), np.zeros(len(sources))
        received_packets = np.zeros(len(sources))
        received, packets, transfers = [], [], []
        time_s = np.zeros(0)
        for vid, pn in receivers_of(self._scenario):
            name = self._ovs.fabric.vn(vid, pn).name
            report = self._ends[f"receive-{name}"].report()
            # Each row: time in ns, received bytes and packets so far, and the received payload of each source.
            rows = np.array(report["rows"], dtype=np.float64)
            sample_s = rows[:, 0] / 1e9
            time_s = time_s if len(time_s) else sample_s
            # Each receiver samples at its own times: its counts are scaled to the intervals of the first receiver.
            counts = np.diff(rows[:, 1:], axis=0) * (np.diff(time_s) / np.diff(sample_s))[:, None]
            received.append(counts[:, 0] * 8)
            packets.append(counts[:, 1])
            for column, number in enumerate(self._receivers[name]):
                frames = FRAME_BYTES[sources[number].protocol] / traffic_endpoint.PAYLOAD_BYTES
                delivered[:, number] = counts[:, 2 + column] * 8 * frames
                received_packets[number] = report["total"][column] / traffic_endpoint.PAYLOAD_BYTES
                transfers += [(number, *times) for times in report["requests"].get(str(column), [])]
        for name, numbers in self._senders.items():
            for number, source_report in zip(numbers, self._ends[f"send-{name}"].report()["sources"], strict=True):
                sent[number] = source_report["sent"]
                lost[number] = source_report.get("lost", max(source_report["sent"] - received_packets[number], 0.0))
                transfers += [(number, begun_s, ended_s) for begun_s, ended_s in source_report["transfers"]]
        return {
            "time_s": time_s,
            "delivered_bits": delivered,
            "received_bits": np.stack(received, axis=1),
            "received_packets": np.stack(packets, axis=1),
            "sent_packets": sent,
            "lost_packets": lost,
            "transfers": transfer_rows(transfers),
        }

    def _intervals(self) -> int:
        """Return the number of whole intervals."""
        return int(self._scenario.duration_s / INTERVAL_S + 1e-6)

    def _vns_of(self, source: Source) -> tuple[VirtualNode, VirtualNode]:
        """Return the sending and the receiving VN of a source."""
        fabric = self._ovs.fabric
        return fabric.vn(source.vlan_vid, source.sender), fabric.vn(source.vlan_vid, source.receiver)

    def _start(self, role: str, hosts: dict[str, list[int]]) -> None:
        """Start the processes of one role, and wait until each is ready."""
        for name, numbers in hosts.items():
            vn = next(vn for vn in self._ovs.fabric.vns() if vn.name == name)
            job = {
                "duration_s": self._scenario.duration_s,
                "intervals": self._intervals(),
                "interval_s": INTERVAL_S,
                "sources": [self._job(number) for number in numbers],
            }
            self._ends[f"{role}-{name}"] = EndProcess(self._ovs, vn, role, job, self._folder / f"{role}-{name}.json")
        for name in hosts:
            self._ends[f"{role}-{name}"].wait_ready()

    def _job(self, number: int) -> dict[str, Any]:
        """Return the JSON job of the process that sends or receives a source's traffic."""
        source = self._scenario.sources[number]
        payload = traffic_endpoint.PAYLOAD_BYTES / FRAME_BYTES[source.protocol]
        return {
            "protocol": source.protocol,
            "address": self._vns_of(source)[1].ip,
            "port": FIRST_PORT + number,
            "payload_bps": None if source.rate_bps is None else source.rate_bps * payload / source.flows,
            "spans": [list(span) for span in self._spans[number]],
            "octets": source.octets,
            "flows": source.flows,
            "sessions": self._sessions[number] if source.requests is not None else None,
            "congestion_control": source.congestion_control or self._law,
        }

    def _end(self) -> None:
        """End all processes."""
        end_groups([end.process for end in self._ends.values()])
