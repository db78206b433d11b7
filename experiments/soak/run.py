"""``dets bench soak``: minutes of churn on Open vSwitch, and the conditions that did not hold during it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from experiments.bench.harness import check_bounds
from experiments.machine.controller_process import ControllerProcess, configuration, free_ports
from experiments.machine.cpu_usage import cpu_shares, read_cpu_ticks, vswitchd_pid
from experiments.measure.manifest import manifest
from experiments.measure.rate_series import rates_of, read_samples
from experiments.measure.sampler import Sampler
from experiments.ovs.fabric import OvsFabric, OvsOptions
from experiments.ovs.traffic import Traffic, tcp_flows
from experiments.soak.churn import CONGESTION_CONTROL, Churn
from experiments.soak.ledger import Ledger, LogTail, Sample, count_rows, holdings, process_use, unexplained
from experiments.soak.schedule import MAX_S, MIN_S, VICTIM_VLAN_INDEX, Action, make_schedule
from experiments.soak.verdict import verdict
from topologies.builders import fig7
from topologies.fabric import Fabric

OVS_LOGS = tuple(Path("/var/log/openvswitch") / name for name in ("ovs-vswitchd.log", "ovsdb-server.log"))
INTERVAL_S = 0.055
LINK_RATE_BPS = 50_000_000
LIMITS_BPS = (20_000_000, 25_000_000)
MAC_AGEING_S = 5  # so that hosts and their pairs expire many times within a run
SAMPLE_INTERVAL_S, COUNT_S = 1.0, 10.0
QUIET_TIMEOUT_S = 60.0  # time for learned hosts and pairs to expire without traffic
LINKED_TIMEOUT_S = 20.0
MARGIN_S = 180.0  # the judged flows and the sampler may run this much longer than the run, then they end by themselves

Tell = Callable[[str, float], None]
"""Called with the present action and the seconds of the run that have passed."""


def soak_fabric() -> Fabric:
    """Return the fabric: five PNs at three edge switches with two core switches, so that every core link can fail."""
    return fig7(pns=5, edges=3, cores=2, link_rate_bps=LINK_RATE_BPS)


def run(
    minutes: Annotated[float, "Duration, at least 0.5."] = 30.0,
    seed: Annotated[int, "Seed of the actions and their times."] = 1,
    output: Annotated[Path, "Folder of results."] = Path("results/soak"),
) -> dict[str, Any]:
    """Minutes of churn on Open vSwitch (root); exit status 1 if anything was violated, leaked or unexplained.

    Writes soak.json; progress goes to stderr. Raises InvalidValueError for minutes or a seed that are out of bounds.
    """
    check_bounds(minutes=(minutes, MIN_S / 60, MAX_S / 60), seed=(seed, 0, 2**32 - 1))
    output.mkdir(parents=True, exist_ok=True)
    with _progress(minutes * 60) as tell:
        ledger = soak(minutes * 60, seed, output, tell)
    settings = {"minutes": minutes, "seed": seed, "output": str(output)}
    result = {**verdict(ledger), "settings": settings}
    (output / "soak.json").write_text(json.dumps({**result, "manifest": manifest(settings)}, indent=2) + "\n")
    return result


@contextlib.contextmanager
def _progress(duration_s: float) -> Iterator[Tell]:
    """Show the present action and the time left, on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("soak", total=duration_s)
        yield lambda phase, passed_s: bar.update(task, description=f"soak: {phase}", completed=passed_s)


def soak(duration_s: float, seed: int, output: Path, report_progress: Tell) -> Ledger:
    """Run the churn and return its record."""
    fabric = soak_fabric()
    ledger = Ledger(fabric, fabric.vn(fabric.vlans[VICTIM_VLAN_INDEX], fabric.pns[-1].number))
    config = configuration(fabric, dict(zip(fabric.vlans, LIMITS_BPS, strict=True)), "fp", {"d": 2}, *free_ports(2))
    config["control"] |= {"on_stop": "keep", "mac_ageing_s": MAC_AGEING_S}
    ovs_options = OvsOptions(controller=f"tcp:{config['openflow']['listen']}", congestion_control=CONGESTION_CONTROL)
    report_progress("building the fabric", 0.0)
    ledger.rows_before = count_rows()
    with ControllerProcess(config, output) as controller:
        with OvsFabric(fabric, ovs_options) as ovs:
            controller.wait_ready({switch.name for switch in fabric.switches})
            tails = [LogTail(path) for path in OVS_LOGS]
            Soak(ledger, ovs, controller, output, report_progress).run(
                make_schedule(fabric, duration_s, seed), duration_s
            )
            ledger.log_lines = [line for tail in tails for line in unexplained(tail.lines())]
        ledger.log_lines += unexplained(controller.log_path.read_text(errors="replace").splitlines())
    ledger.rows_after = count_rows()
    samples = output / "samples.csv"
    ledger.rates = {vn.name: rates_of(read_samples(samples, vn.switch_interface)) for vn in fabric.vns()}
    return ledger


class Soak:
    """The run, in one thread: actions when they are due, and samples once a second."""

    def __init__(
        self, ledger: Ledger, ovs: OvsFabric, controller: ControllerProcess, output: Path, report_progress: Tell
    ) -> None:
        self._ledger, self._ovs, self._controller = ledger, ovs, controller
        self._output, self._report_progress = output, report_progress
        self._churn = Churn(ledger, ovs, controller, output)
        self._ticks = read_cpu_ticks()
        self._sampled_s = self._counted_s = 0.0
        self._pid = self._last_event = 0

    def run(self, schedule: list[Action], duration_s: float) -> None:
        """Run the schedule."""
        ledger, fabric = self._ledger, self._ovs.fabric
        longest_s = duration_s + MARGIN_S
        self._churn.note_start()
        self._wait_linked()
        start = self._take_sample(count=True)
        interfaces = [vn.switch_interface for vn in fabric.vns()]
        senders = [fabric.vn(ledger.judged.vlan_vid, pn.number) for pn in fabric.pns[:-1]]
        flows = tcp_flows(senders, ledger.judged, CONGESTION_CONTROL)
        with contextlib.ExitStack() as stack:
            traffic = stack.enter_context(Traffic(self._ovs, self._output, longest_s))
            traffic.serve(flows)
            stack.enter_context(Sampler(interfaces, INTERVAL_S, longest_s, self._output / "samples.csv"))
            stack.callback(self._churn.close)
            traffic.start(flows, longest_s)
            ledger.begin_s = time.monotonic()
            for phase in self._pass_time(schedule, duration_s):
                for flow in flows:
                    if not traffic.is_running(flow):
                        ledger.broken_flows += 1
                        traffic.start([flow], longest_s)
                self._report_progress(phase, time.monotonic() - ledger.begin_s)
            ledger.end_s = time.monotonic()
        self._report_progress("waiting until all hosts and pairs have expired", duration_s)
        self._wait_expired(start)

    def _pass_time(self, schedule: list[Action], duration_s: float) -> Iterator[str]:
        """Perform the actions when they are due; yield the present action once a second."""
        remaining_actions = list(schedule)
        phase = "TCP alone"
        while (passed_s := time.monotonic() - self._ledger.begin_s) < duration_s:
            self._churn.tick()
            if remaining_actions and passed_s >= remaining_actions[0].at_s:
                action = remaining_actions.pop(0)
                phase = str(action.kind)
                self._churn.apply(action)
            now_s = time.monotonic()
            if now_s - self._sampled_s >= SAMPLE_INTERVAL_S:
                self._take_sample(count=now_s - self._counted_s >= COUNT_S)
                self._read_health()
                yield phase
            time.sleep(0.05)

    def _take_sample(self, *, count: bool) -> Sample:
        """Record the resources of processes, and with ``count`` those of switches and the database."""
        ticks = read_cpu_ticks()
        sample = Sample(time.monotonic(), cpu_shares(self._ticks, ticks).idle)
        self._ticks, self._sampled_s = ticks, sample.at_s
        sample.controller, sample.vswitchd = process_use(self._controller.pid), process_use(vswitchd_pid())
        if count:
            sample.held = holdings(self._ovs.fabric)
            self._counted_s = sample.at_s
        self._ledger.samples.append(sample)
        return sample

    def _read_health(self) -> None:
        """Record the controller's faults: those of its health, outside of transients, and those in its events."""
        self._controller.check_alive()
        health = self._controller.health()
        now_s = time.monotonic()
        if health.get("status") != "ready" and not self._ledger.in_transient(now_s):
            self._ledger.health_faults.append((now_s, json.dumps(health)))
        if self._pid != self._controller.pid:
            self._pid, self._last_event = self._controller.pid, 0
        answer = self._controller.get(f"/v1/events?after={self._last_event}")
        self._last_event = answer["last"]
        self._ledger.note_events(answer["events"])

    def _wait_linked(self) -> None:
        """Wait until all core links are found, and the switches have the resulting flow entries.

        A switch that is ready may receive its first discovery probe later. Raises TimeoutError.
        """
        deadline_s = time.monotonic() + LINKED_TIMEOUT_S
        while True:
            kinds = [event["kind"] for event in self._controller.get("/v1/events")["events"]]
            if kinds.count("link-up") >= len(self._ovs.fabric.core_links):
                break
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the core links were not all found within {LINKED_TIMEOUT_S:g} s")
            time.sleep(0.1)
        time.sleep(SAMPLE_INTERVAL_S)

    def _wait_expired(self, start: Sample) -> None:
        """Wait until the switches hold what they held before the first frame, or for QUIET_TIMEOUT_S."""
        deadline_s = time.monotonic() + QUIET_TIMEOUT_S
        while self._take_sample(count=True).held != start.held and time.monotonic() < deadline_s:
            time.sleep(1.0)
