"""The isolation run on the model fabric: the same phases, files and figures as on Open vSwitch."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from controller.central.controller import CentralController
from controller.config.load import parse_config
from experiments.isolation import INTERVAL_S, SETTLE_S, IsolationRun, Progress, build_fabric, traffic_duration_s
from experiments.machine.controller_process import configuration
from experiments.measure.frames import VLAN_TAG_BYTES
from experiments.measure.series import Window, isolation_figures, rates_of, read_samples
from experiments.model.control import ControlPlane
from experiments.model.fabric import ModelFabric, ModelFlow, ModelOptions
from experiments.model.plain import install_plain_forwarding, install_static_limits
from experiments.model.sources import UdpSource
from experiments.model.tcp import TcpSource
from experiments.options import ExperimentOptions
from experiments.ovs.static_limits import TCP_BURST_S, UDP_BURST_S
from topologies.fabric import Fabric, VirtualNode

START_SPREAD_S = 0.030  # the processes of one phase do not start in the same instant
PROGRESS_S = 0.25
_OPENFLOW_PORT, _REST_PORT = 6653, 8080  # a configuration names them; nothing listens


def run_on_model(options: ExperimentOptions, control: str, folder: Path, progress: Progress) -> IsolationRun:
    """Do what ``experiments.isolation.run_isolation`` does, in virtual time."""
    fabric = build_fabric(options)
    model = ModelFabric(fabric, ModelOptions(slot_s=options.slot_s, seed=options.seed))
    plane = install_control(model, control, options, limits_of(fabric, options), folder)
    phases = Phases(model, options)
    vns = phases.run(model.run, progress, lambda: vn_figures(plane.central) if plane is not None else None)
    return phases.result(control, folder, vns)


def limits_of(fabric: Fabric, options: ExperimentOptions) -> dict[int, int]:
    """Return the limit of each VLAN."""
    return dict(zip(fabric.vlans, (options.victim_limit_bps, options.aggressor_limit_bps), strict=True))


class Phases:
    """The traffic of one run, set to begin SETTLE_S from now, and what the receiver got of it."""

    def __init__(self, model: ModelFabric, options: ExperimentOptions) -> None:
        self.model, self._options = model, options
        self._begin_s = model.now_s + SETTLE_S
        self._blast_s = self._begin_s + options.warmup_s
        self._end_s = self._begin_s + traffic_duration_s(options)
        tcp, udp = _flows(model, options)
        for flow in tcp:
            _start(model, flow, self._begin_s, self._end_s)
        for flow in udp:
            _start(model, flow, self._blast_s, self._blast_s + options.blast_s)
        fabric = model.fabric
        self._receivers = tuple(fabric.vn(vid, fabric.pns[-1].number) for vid in fabric.vlans)
        self._lines = _sample(model, self._receivers, self._begin_s)
        self._switches: dict[str, dict[str, Any]] = {}

    def run(self, run: Callable[[float], None], progress: Progress, look: Callable[[], Any]) -> Any:
        """Let all of it pass; return what ``look`` gives at the end of the blast. ``run`` lets time pass until then."""
        self._pass_time(run, "TCP alone", self._blast_s, progress)
        self._pass_time(run, "UDP blast", self._blast_s + self._options.blast_s, progress)
        switches = self.model.fabric.switches
        self._switches = {switch.name: self.model.switches[switch.dpid].describe() for switch in switches}
        seen = look()
        self._pass_time(run, "TCP alone again", self._end_s, progress)
        return seen

    def result(self, control: str, folder: Path, vns: Any, warnings: Sequence[str] = ()) -> IsolationRun:
        """Write the samples to ``folder``, and return what they say."""
        options, samples = self._options, folder / "samples.csv"
        samples.write_text("\n".join(self._lines) + "\n")
        rates = [rates_of(read_samples(samples, vn.switch_interface)) for vn in self._receivers]
        before = Window(self._begin_s + options.warmup_s / 2, self._blast_s)
        blast = Window(self._blast_s, self._blast_s + options.blast_s)
        figures = isolation_figures(*rates, before, blast, options.victim_limit_bps, options.aggressor_limit_bps)
        return IsolationRun(control, *rates, before, blast, figures, self._switches, list(warnings), vns)

    def _pass_time(self, run: Callable[[float], None], phase: str, until_s: float, progress: Progress) -> None:
        model = self.model
        while model.now_s < until_s - model.slot_s / 2:
            before_s = model.now_s
            run(min(before_s + PROGRESS_S, until_s))
            progress(phase, model.now_s - before_s)


def install_control(
    model: ModelFabric, control: str, options: ExperimentOptions, limits_bps: Mapping[int, int], folder: Path
) -> ControlPlane | None:
    """Bring the fabric under one of ``CONTROLS``; return the controller's side of it, if there is one."""
    if control == "none":
        install_plain_forwarding(model)
        return None
    if control == "static":
        bursts_s = dict(zip(model.fabric.vlans, (TCP_BURST_S, UDP_BURST_S), strict=True))
        install_static_limits(model, limits_bps, bursts_s)
        return None
    central = central_of(model.fabric, limits_bps, options.algorithm, options.parameters, folder / "controller.yaml")
    plane = ControlPlane(model, central)
    plane.start()
    return plane


def central_of(
    fabric: Fabric,
    limits_bps: Mapping[int, int],
    algorithm: str,
    parameters: Mapping[str, object],
    path: Path | None = None,
) -> CentralController:
    """Return a central controller with the configuration that it would have on Open vSwitch, written to ``path``."""
    document = configuration(fabric, limits_bps, algorithm, parameters, _OPENFLOW_PORT, _REST_PORT)
    text = yaml.safe_dump(document, sort_keys=False)
    if path is not None:
        path.write_text(text)
    return CentralController(parse_config(text, str(path or "model")))


def vn_figures(central: CentralController) -> list[dict[str, Any]]:
    """Return what the controller thinks of each VN."""
    return [
        {
            "name": central.fabric.vn_name(row),
            "send_limit_bps": float(central.vns.send_limit_bps[row]),
            "receive_limit_bps": float(central.vns.receive_limit_bps[row]),
            "received_bps": float(central.fabric.received_bps[row]),
            "congested": bool(central.state.allocators.congested[row]),
        }
        for row in range(len(central.vns))
    ]


def _flows(model: ModelFabric, options: ExperimentOptions) -> tuple[list[ModelFlow], list[ModelFlow]]:
    fabric = model.fabric
    victim_vid, aggressor_vid = fabric.vlans
    *senders, last = fabric.pns
    order = random.Random(options.seed).sample([pn.number for pn in senders], len(senders))
    tcp, udp = [], []
    for number in order:
        ends = fabric.vn(victim_vid, number), fabric.vn(victim_vid, last.number)
        source = TcpSource(options.congestion_control, model.slot_s, return_s=model.round_trip_s(*ends))
        tcp.append(model.connect(source, *ends))
        blaster = UdpSource(options.udp_rate_bps, model.slot_s, model.rng.random())
        udp.append(model.connect(blaster, fabric.vn(aggressor_vid, number), fabric.vn(aggressor_vid, last.number)))
    return tcp, udp


def _start(model: ModelFabric, flow: ModelFlow, begin_s: float, end_s: float) -> None:
    model.at(begin_s + model.rng.uniform(0.0, START_SPREAD_S), lambda: flow.source.start(model.slot))
    model.at(end_s, lambda: flow.source.stop(model.slot))


def _sample(model: ModelFabric, vns: tuple[VirtualNode, ...], begin_s: float) -> list[str]:
    """Let the lines of a sampler's file gather: what each VN's interface has sent to its host, untagged."""
    columns = [f"{vn.switch_interface}_{what}" for vn in vns for what in ("bytes", "packets")]
    lines = [",".join(["time_ns", *columns])]

    def sample() -> None:
        counts = []
        for vn in vns:
            got = model.received[vn]
            counts += [got.octets - VLAN_TAG_BYTES * got.packets, got.packets]
        lines.append(f"{round(model.now_s * 1e9)}," + ",".join(map(str, counts)))
        model.at(begin_s + len(lines[1:]) * INTERVAL_S, sample)

    model.at(begin_s, sample)
    return lines
