"""One run on a fabric: TCP from many VNs to one, then UDP of another VLAN joins towards the same PN, then stops.

Figures 2 and 5 of the DETS paper are this run without and with control. Here it runs on Open vSwitch, or is handed to
``experiments.model`` or ``experiments.wire``.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.machine.controller_process import ControllerProcess, configuration, free_ports
from experiments.machine.processors import busy_warning, cpu_shares, read_cpu_ticks
from experiments.measure.sampler import Sampler
from experiments.measure.series import Rates, Window, isolation_figures, rates_of, read_samples
from experiments.options import ExperimentOptions
from experiments.ovs.fabric import OvsFabric, OvsOptions, describe_switches
from experiments.ovs.static_limits import TCP_BURST_S, UDP_BURST_S, install_static_limits, star_shares
from experiments.ovs.traffic import GRACE_S, IperfTraffic, tcp_sources, udp_sources
from topologies.builders import fabrics
from topologies.fabric import Fabric

INTERVAL_S = 0.055  # DETS's timer, and the time unit of the paper's figures
CONTROLS = ("none", "static", "dets")
SETTLE_S = 0.5  # between the fabric's readiness and the first flow
MARGIN_S = 30.0  # what a run may take beyond its traffic before its processes end by themselves

Progress = Callable[[str, float], None]
"""Called with the phase and the seconds of it that have passed since the last call."""


@dataclass(frozen=True, slots=True)
class IsolationRun:
    """What a run gave: rates at the receiving PN, when things happened, the figures, what the switches said."""

    control: str
    victim: Rates
    aggressor: Rates
    before: Window
    blast: Window
    figures: dict[str, float | int | None]
    switches: dict[str, dict[str, Any]]
    warnings: list[str]
    vns: Any = None


def build_fabric(options: ExperimentOptions) -> Fabric:
    """Return the fabric's description: ``senders`` PNs and a receiver; ValueError for an unknown topology."""
    if options.topology not in fabrics:
        raise ValueError(f"topology: {options.topology!r} is not one of {', '.join(sorted(fabrics))}")
    return fabrics[options.topology](pns=options.senders + 1, link_rate_bps=options.link_rate_bps)


def traffic_duration_s(options: ExperimentOptions) -> float:
    """Return how long the traffic of one run lasts."""
    return options.warmup_s + options.blast_s + options.cooldown_s


def run_isolation(options: ExperimentOptions, control: str, folder: Path, progress: Progress) -> IsolationRun:
    """Build the fabric, run the traffic under ``control`` (none, static or dets), and return what the receiver got.

    Files of the run go to ``folder``: samples.csv, the controller's configuration and, on Open vSwitch, its log and the
    flows' reports.
    """
    if control not in CONTROLS:
        raise ValueError(f"control: {control!r} is not one of {', '.join(CONTROLS)}")
    folder.mkdir(parents=True, exist_ok=True)
    if options.fabric == "model":
        from experiments.model.isolation import run_on_model

        return run_on_model(options, control, folder, progress)
    if options.fabric == "wire":
        from experiments.wire.isolation import run_on_wire

        return run_on_wire(options, control, folder, progress)
    fabric = build_fabric(options)
    limits_bps = dict(zip(fabric.vlans, (options.victim_limit_bps, options.aggressor_limit_bps), strict=True))
    openflow_port, rest_port = free_ports(2)
    target = f"tcp:127.0.0.1:{openflow_port}" if control == "dets" else None
    ovs_options = OvsOptions(
        controller=target,
        datapath=options.datapath,
        edge_queues=control == "none",
        congestion_control=options.congestion_control,
        patch_links=True,
    )
    progress("building the fabric", 0)
    with contextlib.ExitStack() as stack:
        controller = None
        if control == "dets":
            config = configuration(fabric, limits_bps, options.algorithm, options.parameters, openflow_port, rest_port)
            controller = stack.enter_context(ControllerProcess(config, folder))
        ovs = stack.enter_context(OvsFabric(fabric, ovs_options))
        if controller is not None:
            progress("waiting for the controller", 0)
            controller.wait_ready({switch.name for switch in fabric.switches})
        elif control == "static":
            bursts_s = dict(zip(fabric.vlans, (TCP_BURST_S, UDP_BURST_S), strict=True))
            install_static_limits(fabric, star_shares(fabric, limits_bps, bursts_s), {fabric.pns[-1]: limits_bps})
        if ovs.classifier is not None:
            ovs.classifier.settle()
        return _measure(options, control, folder, ovs, controller, limits_bps, progress)


def _measure(
    options: ExperimentOptions,
    control: str,
    folder: Path,
    ovs: OvsFabric,
    controller: ControllerProcess | None,
    limits_bps: Mapping[int, int],
    progress: Progress,
) -> IsolationRun:
    fabric = ovs.fabric
    victim_vid, aggressor_vid = fabric.vlans
    *senders, last = fabric.pns
    order = random.Random(options.seed).sample([pn.number for pn in senders], len(senders))
    victim, aggressor = fabric.vn(victim_vid, last.number), fabric.vn(aggressor_vid, last.number)
    tcp = tcp_sources([fabric.vn(victim_vid, n) for n in order], victim, options.congestion_control)
    udp = udp_sources([fabric.vn(aggressor_vid, n) for n in order], aggressor, options.udp_rate_bps)
    duration_s = traffic_duration_s(options)
    samples = folder / "samples.csv"
    interfaces = [victim.switch_interface, aggressor.switch_interface]
    with IperfTraffic(ovs, folder, duration_s + MARGIN_S) as traffic:
        traffic.serve([*tcp, *udp])
        time.sleep(SETTLE_S)
        with Sampler(interfaces, INTERVAL_S, duration_s + MARGIN_S, samples):
            begin_s = time.monotonic()
            traffic.start(tcp, duration_s)
            _pass_time("TCP alone", begin_s, options.warmup_s, progress)
            traffic.check_running(tcp)
            blast_s = time.monotonic()
            cpu_before = read_cpu_ticks()
            traffic.start(udp, options.blast_s)
            _pass_time("UDP blast", blast_s, options.blast_s, progress)
            shares = cpu_shares(cpu_before, read_cpu_ticks())
            traffic.check_running(tcp)
            switches = describe_switches(fabric)
            vns = controller.get("/v1/vns") if controller is not None else None
            _pass_time("TCP alone again", blast_s + options.blast_s, options.cooldown_s, progress)
        if controller is not None:
            controller.check_alive()
        traffic.wait([*tcp, *udp], GRACE_S)
    rates = [rates_of(read_samples(samples, interface)) for interface in interfaces]
    before = Window(begin_s + options.warmup_s / 2, blast_s)
    blast = Window(blast_s, blast_s + options.blast_s)
    figures = isolation_figures(*rates, before, blast, limits_bps[victim_vid], limits_bps[aggressor_vid])
    figures["cpu_idle_share_during"] = round(shares.idle, 3)
    figures["cpu_stolen_share_during"] = round(shares.stolen, 3)
    warnings = [*ovs.warnings, *busy_warning(shares, f"the blast ({control})")]
    return IsolationRun(control, *rates, before, blast, figures, switches, warnings, vns)


def _pass_time(phase: str, begin_s: float, duration_s: float, progress: Progress) -> None:
    """Sleep until ``begin_s + duration_s``, telling the progress."""
    told_s = begin_s
    while (now_s := time.monotonic()) < begin_s + duration_s:
        progress(phase, now_s - told_s)
        told_s = now_s
        time.sleep(min(0.25, max(0.0, begin_s + duration_s - time.monotonic())))
    progress(phase, max(0.0, begin_s + duration_s - told_s))
