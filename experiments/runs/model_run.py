"""A scenario on the model fabric, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from controller.central.controller import CentralController
from controller.config.loader import parse_config
from controller.fabric.topology import PortId
from controller.loop.control_step import effective_limits_bps
from experiments.measure.frame_sizes import TCP_WIRE_BYTES
from experiments.model.control.agents import ModelAgents
from experiments.model.control.control_plane import ControlPlane
from experiments.model.control.delayed_grants import DelayedGrants
from experiments.model.control.uncontrolled import install_forwarding, install_shares
from experiments.model.fabric import ModelFabric, ModelFlow, ModelOptions
from experiments.model.queues import QueueOptions
from experiments.model.sources import UdpSource
from experiments.model.tcp import TcpSource
from experiments.model.web_client import RequestClient
from experiments.runs.map_reduce import MapReduceJob
from experiments.runs.run_configuration import (
    agents_at,
    controller_configuration,
    fields_in_use,
    static_limits,
    uplink_classes,
)
from experiments.runs.scenario_run import (
    DEFAULT_SETTINGS,
    FloatArray,
    RunSettings,
    ScenarioRun,
    receivers_of,
    transfer_rows,
)
from experiments.scenarios.limits import AlgorithmChange, Event
from experiments.scenarios.scenario import BASELINES, CONDITIONS, INTERVAL_S, Scenario, parse_control
from experiments.scenarios.traffic import Job, Session, Source, Span
from topologies.fabric import VirtualNode

SETTLE_S = 0.5
DROPS_FROM = 18  # intervals: a second
START_SPREAD_S = 0.030  # the processes of one span do not start at the same instant
_OPENFLOW_PORT, _REST_PORT = 6653, 8080  # the configuration needs ports; nothing listens

Progress = Callable[[float], None]
"""Called with the seconds of traffic that have passed since the last call."""


def run_on_model(
    scenario: Scenario,
    control: str,
    seed: int,
    progress: Progress,
    settings: RunSettings = DEFAULT_SETTINGS,
    folder: Path | None = None,
) -> ScenarioRun:
    """Run a scenario under a control; ``folder`` gets the controller's configuration.

    The traffic starts at SETTLE_S of the model's time. ``progress`` gets the seconds since its last call.
    """
    queues = QueueOptions(scenario.queue_packets)
    options = ModelOptions(slot_s=settings.slot_s, seed=seed, queues=queues, uplink_queues=QueueOptions())
    model = ModelFabric(scenario.fabric(), options)
    for pn_number, classes in uplink_classes(scenario, model.fabric, control).items():
        model.set_uplink_queues(pn_number, classes)
    plane = _install(model, scenario, control, folder, settings)
    if plane is not None:
        for event in scenario.events:
            model.at(SETTLE_S + event.at_s, _change(plane, event))
        grants = _Grants(plane, scenario).in_force_bps
    else:
        constant_limits_bps = baseline_limits_bps(scenario, control)
        grants = constant_limits_bps.copy
    traffic = ModelTraffic(model, scenario, seed, settings.congestion_control, SETTLE_S, grants)
    final_reports: dict[str, Any] = {}
    model.at(SETTLE_S + scenario.judged[1], lambda: final_reports.update(_reports(model, plane)))
    dropped_packets: list[list[float]] = []
    for interval in range(intervals_of(scenario) + 1):
        # One slot more, so that what is due at this time has happened.
        model.run(SETTLE_S + interval * INTERVAL_S + settings.slot_s)
        dropped_packets.append(_dropped_packets(model))
        progress(INTERVAL_S)
    model.run(SETTLE_S + scenario.duration_s + settings.slot_s)
    notes: dict[str, Any] = {"warnings": []}
    if plane is not None:
        notes["meter_mods"] = plane.counts.meter_mods
        notes["controller_cpu_s"] = plane.counts.cpu_s
        notes["meters"] = sum(len(datapath.meters.ids()) for datapath in model.switches.values())
        central = plane.central
        notified = central.fabric.notifications.astype(int).tolist()
        notes |= _drops_bps(dropped_packets)
        notes["notifications"] = {central.fabric.vn_name(row): count for row, count in enumerate(notified) if count}
    return traffic.run(control, "model", notes, final_reports)


def intervals_of(scenario: Scenario) -> int:
    """Return how many whole intervals a scenario lasts."""
    return int(scenario.duration_s / INTERVAL_S + 1e-6)


def described(model: ModelFabric) -> dict[str, Any]:
    """Return each switch's description of itself."""
    return {switch.name: model.switches[switch.dpid].describe() for switch in model.fabric.switches}


def _reports(model: ModelFabric, plane: ControlPlane | None) -> dict[str, Any]:
    """Return the reports of the switches, and of the controller about VNs (None without one), for the manifest."""
    return {"switches": described(model), "vns": None if plane is None else _vns(plane.central)}


def _dropped_packets(model: ModelFabric) -> list[float]:
    """Return the packets that the queues of each edge port have dropped so far, (PNs,)."""
    ports = [model.ports[PortId(model.fabric.switch(pn.switch).dpid, pn.port_no)] for pn in model.fabric.pns]
    return [port.port.counters["tx_dropped"] + sum(queue.dropped for queue in port.queues.values()) for port in ports]


def _drops_bps(dropped: list[list[float]]) -> dict[str, float]:
    """Return the queue drops in bit/s of the edge port that drops most.

    ``dropped`` are the packets dropped so far, (intervals + 1, PNs). "Worst" is over two intervals in a row, "settled"
    the same after the first second, "mean" over the run.
    """
    bits = np.array(dropped) * TCP_WIRE_BYTES * 8.0
    pair_bps = (bits[2:] - bits[:-2]) / (2 * INTERVAL_S)
    return {
        "queue_drops_worst_bps": float(pair_bps.max(initial=0.0)),
        "queue_drops_settled_bps": float(pair_bps[DROPS_FROM:].max(initial=0.0)),
        "queue_drops_mean_bps": float((bits[-1] - bits[0]).max() / (INTERVAL_S * max(len(bits) - 1, 1))),
    }


def _vns(central: CentralController) -> list[dict[str, Any]]:
    """Return the controller's values of each VN."""
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


def _install(
    model: ModelFabric, scenario: Scenario, control: str, folder: Path | None, settings: RunSettings
) -> ControlPlane | None:
    """Install the control of a scenario on the model; None without a controller."""
    if control == "none":
        install_forwarding(model)
        return None
    if control == "static":
        install_shares(model, *static_limits(scenario, model.fabric))
        return None
    document = controller_configuration(scenario, model.fabric, control, _OPENFLOW_PORT, _REST_PORT, settings)
    text = yaml.safe_dump(document, sort_keys=False)
    if folder is not None:
        (folder / "controller.yaml").write_text(text)
    central = CentralController(parse_config(text, "scenario"))
    if CONDITIONS[scenario.conditions].late_intervals:
        _delay_grants(central, CONDITIONS[scenario.conditions].late_intervals)
    plane = ControlPlane(model, central)
    plane.start()
    if agents := agents_at(model.fabric, settings.shaping):
        ModelAgents(plane, agents)
    return plane


def _delay_grants(central: CentralController, intervals: int) -> None:
    """Make grants effective ``intervals`` intervals after they were decided."""
    control = central.fabric.control
    groups = tuple(replace(group, policy=DelayedGrants(group.policy, intervals)) for group in control.groups)
    central.fabric.control = control._replace(groups=groups)


def baseline_limits_bps(scenario: Scenario, control: str) -> FloatArray:
    """Return the constant limit of each pair under a baseline, (pairs,); NaN without control."""
    if control == "none":
        return np.full(len(scenario.pairs), np.nan)
    shares, _ = static_limits(scenario, scenario.fabric())
    rates = {}
    for share in shares:
        rates[share.sender.vlan_vid, share.sender.pn.number, share.receiver.pn.number] = share.rate_kbps * 1e3
    return np.array([rates[pair] for pair in scenario.pairs])


def _change(plane: ControlPlane, event: Event) -> Callable[[], None]:
    """Return the action that makes an event's change through the operator's interface."""
    central, model, operator = plane.central, plane.model, plane.operator

    def change() -> None:
        if isinstance(event, AlgorithmChange):
            name, parameters = parse_control(event.control)
            if name not in BASELINES:
                operator.set_vlan(event.vlan_vid, model.now_s, algorithm=name, parameters=parameters)
            return
        row = vn_row(central, model, model.fabric.vn(event.vlan_vid, event.pn))
        if fields := fields_in_use(event, central.config.vlans[event.vlan_vid].algorithm):
            operator.set_vn(row, model.now_s, **fields)
            plane.write_queues()

    return change


def vn_row(central: CentralController, model: ModelFabric, vn: VirtualNode) -> int:
    """Return the row of a VN in the controller's table."""
    port = model.edge_port(vn)
    row = central.vns.row_of(vn.vlan_vid, port.dpid, port.port_no)
    assert row is not None
    return row


class _Grants:
    """Reads the effective limits of a scenario's pairs from a controller on the model."""

    def __init__(self, plane: ControlPlane, scenario: Scenario) -> None:
        self._central, self._pairs = plane.central, len(scenario.pairs)
        self._number: dict[tuple[int, int], int] = {}
        for pair_number, (vid, sender, receiver) in enumerate(scenario.pairs):
            ends = (plane.model.fabric.vn(vid, pn) for pn in (sender, receiver))
            sender_row, receiver_row = (vn_row(plane.central, plane.model, vn) for vn in ends)
            self._number[sender_row, receiver_row] = pair_number

    def in_force_bps(self) -> FloatArray:
        """Return the effective limit of each pair of the scenario, (pairs,); inf for a pair without a meter."""
        granted_bps = np.full(self._pairs, np.inf)
        state = self._central.state
        ends = zip(state.entries.sender.tolist(), state.entries.receiver.tolist(), strict=True)
        for pair, limit_bps in zip(ends, effective_limits_bps(state, self._central.vns).tolist(), strict=True):
            if pair in self._number:
                granted_bps[self._number[pair]] = limit_bps
        return granted_bps


class ModelTraffic:
    """The sources of a scenario on a model, and their results.

    The traffic starts at ``begin_s`` of the model's time.

    ``grants`` returns the limits of the pairs, (pairs,), at the end of each interval.
    """

    def __init__(
        self,
        model: ModelFabric,
        scenario: Scenario,
        seed: int,
        law: str,
        begin_s: float,
        grants: Callable[[], FloatArray],
    ) -> None:
        self._model, self._scenario, self._seed, self._begin_s, self._grants = model, scenario, seed, begin_s, grants
        self._flows = [self._connect(source, source.congestion_control or law) for source in scenario.sources]
        self._receivers = [model.fabric.vn(vid, pn) for vid, pn in receivers_of(scenario)]
        self._clients: dict[int, RequestClient] = {}
        self._job = None if scenario.job is None else self._start_job(scenario.job)
        timeline, sessions = scenario.timeline(seed), scenario.sessions(seed)
        for number, source in enumerate(scenario.sources):
            if source.requests is not None:
                self._clients[number] = self._client(self._flows[number], sessions[number])
                continue
            if scenario.job is not None and source.vlan_vid == scenario.job.vlan_vid:
                continue
            for flow in self._flows[number]:
                self._schedule(flow, source, timeline[number])
        self._time_s: list[float] = []
        self._delivered: list[list[int]] = []
        self._received: list[list[int]] = []
        self._packets: list[list[int]] = []
        self._granted: list[FloatArray] = []
        for interval in range(intervals_of(scenario) + 1):
            model.at(begin_s + interval * INTERVAL_S, self._sample)

    def run(self, control: str, fabric: str, notes: dict[str, Any], seen: dict[str, Any]) -> ScenarioRun:
        """Return the results of the run, once the model has passed its end; ``notes`` and ``seen`` as in ScenarioRun.

        The samples are totals so far; their differences are the counts of intervals.
        """
        return ScenarioRun(
            self._scenario,
            control,
            fabric,
            self._seed,
            np.array(self._time_s),
            np.diff(np.array(self._delivered, dtype=np.float64), axis=0),
            np.diff(np.array(self._received, dtype=np.float64), axis=0),
            np.diff(np.array(self._packets, dtype=np.float64), axis=0),
            np.array(self._granted)[1:],
            np.array([sum(flow.source.sent for flow in flows) for flows in self._flows], dtype=np.float64),
            np.array([sum(flow.source.lost for flow in flows) for flows in self._flows], dtype=np.float64),
            transfer_rows(self._transfers()),
            notes,
            seen,
        )

    def _connect(self, source: Source, law: str) -> list[ModelFlow]:
        """Connect the flows of a source."""
        model = self._model
        ends = model.fabric.vn(source.vlan_vid, source.sender), model.fabric.vn(source.vlan_vid, source.receiver)
        if source.protocol == "udp":
            assert source.rate_bps is not None
            return [model.connect(UdpSource(source.rate_bps, model.slot_s, model.rng.random()), *ends)]
        return_s = model.round_trip_s(*ends)
        rate_bps = None if source.rate_bps is None else source.rate_bps / source.flows
        sources = (TcpSource(law, model.slot_s, return_s=return_s, rate_bps=rate_bps) for _ in range(source.flows))
        return [model.connect(tcp_source, *ends) for tcp_source in sources]

    def _client(self, flows: list[ModelFlow], sessions: tuple[Session, ...]) -> RequestClient:
        """Return a web client that the model drives from now on; the TCP ``flows`` are its connections."""
        connections = [flow.source for flow in flows if isinstance(flow.source, TcpSource)]
        due = [(self._begin_s + begin_s, answers) for begin_s, answers in sessions]
        client = RequestClient(due, connections, self._model.slot_s)
        self._model.generate(client)
        return client

    def _start_job(self, job: Job) -> MapReduceJob:
        """Start the job on the connections between its PNs."""
        connections = {}
        for source, flows in zip(self._scenario.sources, self._flows, strict=True):
            if source.vlan_vid == job.vlan_vid and isinstance(flows[0].source, TcpSource):
                connections[source.sender, source.receiver] = flows[0].source
        running = MapReduceJob(job, connections, self._begin_s, self._seed, self._model.slot_s)
        self._model.generate(running)
        return running

    def _schedule(self, flow: ModelFlow, source: Source, spans: tuple[Span, ...]) -> None:
        """Schedule the start and stop of a flow in each span, or its transfers.

        Starts are spread at random over 30 ms.
        """
        model = self._model
        start_delay_s = model.rng.uniform(0.0, START_SPREAD_S)
        sender, octets = flow.source, source.octets
        for begin_s, end_s in spans:
            begin_s = self._begin_s + min(begin_s + start_delay_s, end_s)  # from here on in the model's time
            if octets is not None:
                assert isinstance(sender, TcpSource)
                model.at(begin_s, lambda: sender.transfer(octets, model.slot))
                continue
            model.at(begin_s, lambda: sender.start(model.slot))
            model.at(self._begin_s + end_s, lambda: sender.stop(model.slot))

    def _sample(self) -> None:
        """Append the counters of all sources and receivers, and the grants, at the present time."""
        model = self._model
        self._time_s.append(model.now_s - self._begin_s)
        self._delivered.append(
            [sum(flow.source.delivered * flow.source.frame_bits for flow in flows) for flows in self._flows]
        )
        self._received.append([model.received[vn].octets * 8 for vn in self._receivers])
        self._packets.append([model.received[vn].packets for vn in self._receivers])
        self._granted.append(self._grants())

    def _transfers(self) -> list[tuple[int, float, float | None]]:
        """Return (source, begun, ended) of every file, fetch of a job and answer to a web request."""
        rows = self._fetches()
        timeline = self._scenario.timeline(self._seed)
        for number, (flows, spans) in enumerate(zip(self._flows, timeline, strict=True)):
            if number in self._clients:
                answers = self._clients[number].rows(self._begin_s + self._scenario.duration_s)
                relative_times = [
                    (at_s - self._begin_s, None if answered_s is None else answered_s - self._begin_s)
                    for at_s, answered_s in answers
                ]
                rows += [(number, *one) for one in relative_times]
            elif self._scenario.sources[number].octets is not None and isinstance(flows[0].source, TcpSource):
                finished = flows[0].source.transfers
                ended = [one.ended_s - self._begin_s for one in finished if one.ended_s is not None]
                ends: list[float | None] = [*ended, *[None] * (len(spans) - len(ended))]
                rows += [(number, span[0], end_s) for span, end_s in zip(spans, ends, strict=True)]
        return rows

    def _fetches(self) -> list[tuple[int, float, float | None]]:
        """Return (source's number, start, end or None) of each fetch of the job, in seconds."""
        job, begin_s = self._scenario.job, self._begin_s
        if job is None or self._job is None:
            return []
        number_of = {source.pair: number for number, source in enumerate(self._scenario.sources)}
        return [
            (number_of[job.vlan_vid, *ends], began_s - begin_s, None if ended_s is None else ended_s - begin_s)
            for ends, began_s, ended_s in self._job.rows()
        ]
