"""``dets bench soak``: minutes of churn on Open vSwitch, and what did not hold meanwhile."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.errors import InvalidValueError
from experiments.machine.controller_process import ControllerProcess, configuration, free_ports
from experiments.machine.processors import cpu_shares, read_cpu_ticks
from experiments.measure.manifest import manifest
from experiments.measure.sampler import Sampler
from experiments.measure.series import rates_of, read_samples
from experiments.ovs.fabric import OvsFabric, OvsOptions
from experiments.ovs.traffic import Traffic, tcp_flows
from experiments.soak.churn import CONGESTION_CONTROL, Churn
from experiments.soak.events import troubles
from experiments.soak.logs import OVS_LOGS, LogTail, unexplained
from experiments.soak.record import Look, Record
from experiments.soak.resources import count_rows, holdings, pid_of, process_use
from experiments.soak.schedule import LEAST_S, MOST_S, VICTIM_VLAN_INDEX, Action, make_schedule
from experiments.soak.verdict import verdict
from topologies.builders import fig7
from topologies.fabric import Fabric

OVS_LOG_FOLDER = Path("/var/log/openvswitch")
INTERVAL_S = 0.055
LINK_RATE_BPS = 50_000_000
LIMITS_BPS = (20_000_000, 25_000_000)
MAC_AGEING_S = 5  # so that hosts and their pairs are forgotten many times within a run
LOOK_S, COUNT_S = 1.0, 10.0
QUIET_TIMEOUT_S = 60.0  # how long what was learned may take to be forgotten once nobody talks
LINKED_TIMEOUT_S = 20.0
MARGIN_S = 180.0

Tell = Callable[[str, float], None]
"""Called with what is being done and how many seconds of the run have passed."""


@dataclass(frozen=True, slots=True)
class SoakOptions:
    """How long, which chances, and where the results go."""

    minutes: float = 30.0
    seed: int = 1
    output: Path = Path("results/soak")

    def checked(self) -> SoakOptions:
        """Return these options; InvalidValueError naming the first that is not acceptable."""
        if not LEAST_S <= self.minutes * 60 <= MOST_S:
            reason = f"is outside {LEAST_S / 60:g} to {MOST_S / 60:g} minutes"
            raise InvalidValueError("minutes", self.minutes, reason)
        if not 0 <= self.seed < 2**32:
            raise InvalidValueError("seed", self.seed, "is outside 0 to 2^32 - 1")
        return self


def soak_fabric() -> Fabric:
    """Return the fabric: five PNs at three edge switches with two core switches, so that every core link can fail."""
    return fig7(pns=5, edges=3, cores=2, link_rate_bps=LINK_RATE_BPS)


def run(minutes: float = 30.0, seed: int = 1, output: Path = Path("results/soak")) -> dict[str, Any]:
    """Soak, write soak.json, series.csv and soak.png to ``output``, and return the result; progress goes to stderr."""
    from experiments.soak.report import progress, write_report

    options = SoakOptions(minutes, seed, output).checked()
    output.mkdir(parents=True, exist_ok=True)
    with progress(options.minutes * 60) as tell:
        record = soak(options, tell)
    result = verdict(record)
    result["settings"] = {"minutes": minutes, "seed": seed, "output": str(output)}
    (output / "soak.json").write_text(json.dumps({**result, "manifest": manifest(options)}, indent=2) + "\n")
    write_report(record, result, output)
    return result


def soak(options: SoakOptions, tell: Tell) -> Record:
    """Run the churn and return what was measured."""
    fabric = soak_fabric()
    duration_s = options.minutes * 60
    record = Record(fabric, fabric.vn(fabric.vlans[VICTIM_VLAN_INDEX], fabric.pns[-1].number))
    config = configuration(fabric, dict(zip(fabric.vlans, LIMITS_BPS, strict=True)), "fp", {"d": 2}, *free_ports(2))
    config["control"] |= {"on_stop": "keep", "mac_ageing_s": MAC_AGEING_S}
    ovs_options = OvsOptions(controller=f"tcp:{config['openflow']['listen']}", congestion_control=CONGESTION_CONTROL)
    tell("building the fabric", 0.0)
    record.rows_before = count_rows()
    with ControllerProcess(config, options.output) as controller:
        with OvsFabric(fabric, ovs_options) as ovs:
            controller.wait_ready({switch.name for switch in fabric.switches})
            tails = [LogTail(OVS_LOG_FOLDER / name) for name in OVS_LOGS]
            Soak(record, ovs, controller, options, tell).run(make_schedule(fabric, duration_s, options.seed))
            record.log_lines = [line for tail in tails for line in unexplained(tail.lines())]
        record.log_lines += unexplained(controller.log_path.read_text(errors="replace").splitlines())
    record.rows_after = count_rows()
    samples = options.output / "samples.csv"
    record.rates = {vn.name: rates_of(read_samples(samples, vn.switch_interface)) for vn in fabric.vns()}
    return record


class Soak:
    """The run itself, in one thread: actions when they are due, looks once a second, and nothing else."""

    def __init__(
        self, record: Record, ovs: OvsFabric, controller: ControllerProcess, options: SoakOptions, tell: Tell
    ) -> None:
        self._record = record
        self._ovs = ovs
        self._controller = controller
        self._options = options
        self._tell = tell
        self._churn = Churn(ovs, controller, options.output)
        self._ticks = read_cpu_ticks()
        self._looked_s = self._counted_s = 0.0
        self._life = self._last_event = 0

    def run(self, schedule: list[Action]) -> None:
        """Do it all."""
        record, fabric = self._record, self._ovs.fabric
        duration_s = self._options.minutes * 60
        record.diary = self._churn.diary
        self._churn.begin()
        self._wait_linked()
        start = self._look(count=True)
        interfaces = [vn.switch_interface for vn in fabric.vns()]
        samples = self._options.output / "samples.csv"
        senders = [fabric.vn(record.judged.vlan_vid, pn.number) for pn in fabric.pns[:-1]]
        flows = tcp_flows(senders, record.judged, CONGESTION_CONTROL)
        with contextlib.ExitStack() as stack:
            traffic = stack.enter_context(Traffic(self._ovs, self._options.output, duration_s + MARGIN_S))
            traffic.serve(flows)
            stack.enter_context(Sampler(interfaces, INTERVAL_S, duration_s + MARGIN_S, samples))
            stack.callback(self._churn.close)
            traffic.start(flows, duration_s + MARGIN_S)
            record.begin_s = time.monotonic()
            for phase in self._pass_time(schedule, duration_s):
                for flow in flows:
                    if not traffic.is_running(flow):
                        record.broken_flows += 1
                        traffic.start([flow], duration_s + MARGIN_S)
                self._tell(phase, time.monotonic() - record.begin_s)
            record.end_s = time.monotonic()
        self._tell("waiting until all is forgotten", duration_s)
        record.quiet = start, self._wait_quiet(start)

    def _pass_time(self, schedule: list[Action], duration_s: float) -> Iterator[str]:
        """Do the actions when they are due; give back once a second what is being done."""
        waiting = list(schedule)
        phase = "TCP alone"
        while (passed_s := time.monotonic() - self._record.begin_s) < duration_s:
            self._churn.tick()
            if waiting and passed_s >= waiting[0].at_s:
                action = waiting.pop(0)
                phase = str(action.kind)
                self._churn.apply(action)
            now_s = time.monotonic()
            if now_s - self._looked_s >= LOOK_S:
                self._look(count=now_s - self._counted_s >= COUNT_S)
                self._ask_health()
                yield phase
            time.sleep(0.05)

    def _look(self, *, count: bool) -> Look:
        ticks = read_cpu_ticks()
        look = Look(time.monotonic(), cpu_shares(self._ticks, ticks).idle)
        self._ticks, self._looked_s = ticks, look.at_s
        look.controller = process_use(self._controller.pid)
        look.vswitchd = process_use(pid_of("ovs-vswitchd"))
        if count:
            look.held = holdings(self._ovs.fabric)
            self._counted_s = look.at_s
        self._record.looks.append(look)
        return look

    def _ask_health(self) -> None:
        """Note what the controller says is wrong: with its health, outside of transients, and in its events."""
        self._controller.check_alive()
        health = self._controller.health()
        now_s = time.monotonic()
        if health.get("status") != "ready" and not self._record.diary.in_transient(now_s):
            self._record.ailments.append((now_s, json.dumps(health)))
        if self._life != self._controller.pid:
            self._life, self._last_event = self._controller.pid, 0
        answer = self._controller.get(f"/v1/events?after={self._last_event}")
        self._last_event = answer["last"]
        self._record.events.update(event["kind"] for event in answer["events"])
        self._record.troubles += troubles(answer["events"], self._record.diary.lives[-1][0])

    def _wait_linked(self) -> None:
        """Wait until all core links are found, and what follows from them has been put on the switches.

        A switch that is ready may hear its first hello later than that. Raises TimeoutError.
        """
        deadline_s = time.monotonic() + LINKED_TIMEOUT_S
        while True:
            kinds = [event["kind"] for event in self._controller.get("/v1/events")["events"]]
            if kinds.count("link-up") >= len(self._ovs.fabric.core_links):
                break
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the core links were not all found within {LINKED_TIMEOUT_S:g} s")
            time.sleep(0.1)
        time.sleep(LOOK_S)

    def _wait_quiet(self, start: Look) -> Look:
        """Wait until the switches hold what they held before the first frame; return the last look, so or otherwise."""
        deadline_s = time.monotonic() + QUIET_TIMEOUT_S
        while True:
            look = self._look(count=True)
            if look.held == start.held or time.monotonic() > deadline_s:
                return look
            time.sleep(1.0)
