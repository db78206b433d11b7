"""``dets bench enforcement``: delivered against granted rates, on real Open vSwitch.

The real controller sets the meters of one edge switch over OpenFlow, with grants that follow a schedule
(grant_injection.py). Each case has its own sender and receiver, a *slot*; as many cases as the machine carries run side
by side, as a *batch*. Every batch runs three times: with the product's enforcement, and with every meter modified in
every interval, to a burst of 200 ms and of 20 ms. Rates are those of tagged frames on the wire. Each receiver's port
has a single queue, at PORT_FACTOR times the grant.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from controller.errors import InvalidValueError
from controller.units import parse_rate
from experiments.bench.enforcement.burst_bench import run_bursts
from experiments.bench.enforcement.cases import (
    ENFORCEMENT_MODES,
    INTERVAL_MS,
    MAX_PPS,
    PORT_FACTOR,
    Case,
    chosen_cases,
    default_cases,
    full_cases,
    packed,
)
from experiments.bench.enforcement.grant_injection import ENVIRONMENT, GrantPlan, Slot
from experiments.bench.enforcement.grant_schedules import PATTERNS
from experiments.bench.enforcement.result_figures import case_figures, read_grants, targets
from experiments.bench.harness import check_bounds, check_known, check_left_out, finished
from experiments.machine.controller_process import ControllerProcess, configuration, free_ports
from experiments.machine.cpu_usage import BUSY_IDLE_SHARE, cpu_shares, read_cpu_ticks
from experiments.machine.kernel_datapath import is_native
from experiments.measure.rate_series import Window, read_samples
from experiments.measure.sampler import Sampler
from experiments.ovs.fabric import OvsFabric, OvsOptions
from experiments.ovs.traffic import FIRST_PORT, Flow, Traffic
from topologies.fabric import MAX_MININET_RATE_BPS, Fabric, PhysicalNode, TopoSwitch

DATAPATHS = {"userspace": "user", "kernel": "kernel"}
SENDERS_VLAN = 1
SAMPLE_S = 0.011  # between two readings of the receivers' byte counters
WARM_UP_S = 2.5  # traffic before the measurement
MEASURE_S = 8.0
SETUP_S = 5.0  # start and stop of a batch's controller, for the estimate of the time left
COLUMNS = {
    "case": "{case}",
    "enforcement": "{way}",
    "granted, bit/s": "{granted_bps:,.0f}",
    "delivered / granted": "{ratio:.3f}",
    "after a step down": "{step_ratio:.3f}",
    "MeterMods/s": "{meter_mods_per_s:.1f}",
}
SILENT_RATIO = 0.01  # delivered / granted; below it a case counts as without traffic


def run(
    datapath: Annotated[str, "userspace or kernel."] = "userspace",
    full: Annotated[bool, "All cases; by default a subset."] = False,
    grant: Annotated[list[str] | None, "Only this grant, a rate; repeatable."] = None,
    traffic: Annotated[list[str] | None, "Only this traffic; repeatable."] = None,
    pattern: Annotated[list[str] | None, "Only this schedule; repeatable."] = None,
    seconds: Annotated[float, "How long each batch is measured."] = MEASURE_S,
    seed: Annotated[int, "Seed of random schedules."] = 1,
    bursts: Annotated[bool, "Measure what bursting senders gain and others lose, instead."] = False,
    output: Annotated[Path, "Folder of the results."] = Path("results/bench-enforcement"),
) -> dict[str, Any]:
    """Delivered against granted rates, on real Open vSwitch (root).

    The default subset takes under five minutes. Raises InvalidValueError for options that are out of bounds or mean
    nothing on this machine.
    """
    check_bounds(seconds=(seconds, 1, 600), seed=(seed, 0, 2**32 - 1))
    if bursts:
        others = {"datapath": datapath, "grant": grant, "traffic": traffic, "pattern": pattern, "seconds": seconds}
        check_left_out(run, others, "means nothing with --bursts")
        return run_bursts(full, seed, output)
    grants_bps = [parse_rate(text, "grant") for text in grant or []]
    cases = _cases(full, grants_bps, traffic, pattern)
    _check(datapath)
    batches = packed(cases, MAX_PPS[DATAPATHS[datapath]])
    rows: list[dict[str, Any]] = []
    warnings: list[str] = []
    run_s, runs_left = WARM_UP_S + seconds + SETUP_S, len(batches) * len(ENFORCEMENT_MODES)
    for grant_bps in dict.fromkeys(batch[0].grant_bps for batch in batches):
        equal_grants = [batch for batch in batches if batch[0].grant_bps == grant_bps]
        with _fabric(grant_bps, max(map(len, equal_grants)), DATAPATHS[datapath]) as (ovs, ports):
            for batch, mode in itertools.product(equal_grants, ENFORCEMENT_MODES):
                left_s = runs_left * run_s
                print(f"{batch[0].name} and {len(batch) - 1} more: {mode}; {left_s:.0f} s left", file=sys.stderr)
                rows += _measure(ovs, ports, batch, mode, seconds, seed)
                runs_left -= 1
            warnings += ovs.warnings
    rows.sort(key=itemgetter("case"))
    silent = [f"{row['case']} ({row['way']})" for row in rows if row["ratio"] < SILENT_RATIO]
    if silent:
        warnings.append(f"no traffic, for example because a source could not start, in: {', '.join(silent)}")
    busy = sorted({row["case"] for row in rows if row["cpu_idle_share"] < BUSY_IDLE_SHARE})
    if busy:
        warnings.append(f"the processors were idle for less than {BUSY_IDLE_SHARE:.0%} in: {', '.join(busy)}")
    settings = {"datapath": datapath, "seconds": seconds, "warm_up_s": WARM_UP_S, "interval_ms": INTERVAL_MS}
    settings |= {"seed": seed, "cases": len(cases), "warnings": list(dict.fromkeys(warnings))}
    return finished("enforcement", {"rows": rows}, targets(rows), settings, output, COLUMNS)


def _cases(
    full: bool,
    grants_bps: Sequence[int] | None,
    traffic: Sequence[str] | None,
    patterns: Sequence[str] | None,
) -> list[Case]:
    """Return the cases with the requested grants, traffic and patterns; without any request the full or default set.

    Requested grants or traffic that are None are those of that set; patterns that are None are all.
    """
    base = full_cases() if full else default_cases()
    if not (grants_bps or traffic or patterns):
        return base
    return chosen_cases(
        grants_bps or dict.fromkeys(case.grant_bps for case in base),
        tuple(traffic or dict.fromkeys(case.traffic.name for case in base)),
        tuple(patterns or PATTERNS),
    )


def _check(datapath: str) -> None:
    """Raise InvalidValueError for a datapath that is unknown or absent here."""
    check_known("datapath", [datapath], list(DATAPATHS))
    if datapath == "kernel" and not is_native():
        reason = f"needs the module openvswitch, which this kernel ({os.uname().release}) does not have"
        raise InvalidValueError("datapath", datapath, reason)


def describe_fabric(grant_bps: int, slots: int) -> Fabric:
    """Return a star with a sender and a receiver PN per slot.

    Slot n, from 0 on, has PNs 2n + 1 (sender) and 2n + 2 (receiver), at the ports of these numbers.
    """
    sending_bps = min(12 * grant_bps, MAX_MININET_RATE_BPS)  # more than the largest load of UDP, 10 times the grant
    nodes = []
    for slot in range(slots):
        nodes.append(PhysicalNode(2 * slot + 1, "s1", 2 * slot + 1, (SENDERS_VLAN,), sending_bps))
        nodes.append(PhysicalNode(2 * slot + 2, "s1", 2 * slot + 2, (SENDERS_VLAN,), PORT_FACTOR * grant_bps))
    return Fabric("dets-enforcement", (TopoSwitch("s1", 1),), tuple(nodes), (SENDERS_VLAN,))


def describe_control(fabric: Fabric, grant_bps: int, openflow_port: int, rest_port: int) -> dict[str, Any]:
    """Return the controller's configuration: limits so high that the schedule alone decides, and no queues."""
    config = configuration(fabric, {SENDERS_VLAN: grant_bps}, "fs", {}, openflow_port, rest_port, queues=False)
    ports = config["switches"]["s1"]["ports"]
    for sender in fabric.pns[::2]:
        limits = {"send_limit": sender.link_rate_bps, "receive_limit": grant_bps}
        ports[sender.port_no]["vns"] = {SENDERS_VLAN: limits}
    return config


@contextlib.contextmanager
def _fabric(grant_bps: int, slots: int, datapath: str) -> Iterator[tuple[OvsFabric, tuple[int, int]]]:
    """Yield a started fabric and its (OpenFlow, REST) ports."""
    openflow_port, rest_port = free_ports(2)
    target = f"tcp:127.0.0.1:{openflow_port}"
    options = OvsOptions(controller=target, datapath=datapath, edge_queues=True, static_arp=True)
    with OvsFabric(describe_fabric(grant_bps, slots), options) as ovs:
        yield ovs, (openflow_port, rest_port)


def _measure(
    ovs: OvsFabric,
    ports: tuple[int, int],
    batch: Sequence[Case],
    mode: str,
    seconds: float,
    seed: int,
) -> list[dict[str, Any]]:
    """Run a batch of cases in one enforcement mode, side by side; return a row of figures for each case."""
    fabric = ovs.fabric
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dets-enforcement-")))
        config = describe_control(fabric, batch[0].grant_bps, *ports)
        config["control"]["interval_ms"] = INTERVAL_MS
        plan = _plan(batch, mode, seconds, seed, folder)
        plan.write(folder / "plan.json")
        environment = {ENVIRONMENT: str(folder / "plan.json")}
        application = Path(__file__).with_name("grant_injection_app.py")
        controller = stack.enter_context(ControllerProcess(config, folder, application, environment))
        traffic = stack.enter_context(Traffic(ovs, folder, WARM_UP_S + seconds + 60.0))
        sources = [_source(fabric, slot, case) for slot, case in enumerate(batch)]
        traffic.serve(sources)
        controller.wait_ready({"s1"})
        receivers = [source.receiver for source in sources]
        samples = folder / "samples.csv"
        interfaces = [receiver.switch_interface for receiver in receivers]
        with Sampler(interfaces, SAMPLE_S, WARM_UP_S + seconds + 30.0, samples):
            traffic.start(sources, WARM_UP_S + seconds + 1.0)
            time.sleep(WARM_UP_S)
            traffic.check_running(sources)
            first_ticks, start_s = read_cpu_ticks(), time.monotonic()
            time.sleep(seconds)
            window = Window(start_s, time.monotonic())
            idle_share = cpu_shares(first_ticks, read_cpu_ticks()).idle
            traffic.check_running(sources)
        controller.check_alive()
        logs = read_grants(Path(plan.log), len(batch))
        return [
            {
                "case": case.name,
                "grant_bps": case.grant_bps,
                "traffic": case.traffic.name,
                "udp": case.traffic.udp,
                "pattern": case.pattern,
                "within": case.traffic.within,
                "way": mode,
                "cpu_idle_share": idle_share,
                **case_figures(case, log, read_samples(samples, interface), window),
            }
            for case, log, interface in zip(batch, logs, interfaces, strict=True)
        ]


def _plan(batch: Sequence[Case], mode: str, seconds: float, seed: int, folder: Path) -> GrantPlan:
    """Return the grants of a batch: a slot per case, with the case's schedule, for longer than the batch runs."""
    slots = [
        Slot(SENDERS_VLAN, 1, 2 * number + 1, 2 * number + 2, case.grant_bps, case.pattern)
        for number, case in enumerate(batch)
    ]
    intervals = round((WARM_UP_S + seconds + 60.0) / (INTERVAL_MS * 1e-3))
    return GrantPlan(tuple(slots), ENFORCEMENT_MODES[mode], seed, intervals, str(folder / "grants.csv"))


def _source(fabric: Fabric, slot: int, case: Case) -> Flow:
    """Return the flow of a case, from the sender of its slot to the slot's receiver: PNs 2 x slot + 1 and + 2.

    UDP offers ``factor`` times the grant; TCP sends as much as it can.
    """
    sender, receiver = (fabric.vn(SENDERS_VLAN, pn) for pn in (2 * slot + 1, 2 * slot + 2))
    if case.traffic.udp:
        offered_bps = case.traffic.factor * case.grant_bps
        return Flow(sender, receiver, FIRST_PORT, wire_rate_bps=offered_bps)
    congestion_control, streams = case.traffic.congestion_control, case.traffic.streams
    return Flow(sender, receiver, FIRST_PORT, congestion_control=congestion_control, streams=streams)
