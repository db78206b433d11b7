"""A scenario packet by packet, with limiters of the HyGenICC paper, of fixed rates, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from controller.errors import InvalidValueError
from experiments.model.packets import FRAME_BITS, Flow, Limiter, PacketLink, PacketNetwork, TcpFlow, UdpFlow, Unlimited
from experiments.runs.reference_hygenicc import PaperConstants, Source
from experiments.runs.scenario_run import FloatArray, ScenarioRun, receivers_of, transfer_rows
from experiments.scenarios.scenario import INTERVAL_S, Scenario, parse_control
from experiments.scenarios.traffic import Source as Traffic

CONTROLS = ("none", "static", "hygenicc")
QUEUE, TIMEOUT_MS = "queue", "timeout"


@dataclass
class StaticLimiter(Source):
    """A token bucket of a fixed rate. Guests see marks."""

    hides_marks: bool = False

    def update(self, now_s: float) -> None:
        """Keep the rate."""


def run_packets(scenario: Scenario, control: str, seed: int, progress: Callable[[float], None]) -> ScenarioRun:
    """Run a scenario of senders to one receiver under one of CONTROLS; InvalidValueError for another scenario.

    ``hygenicc`` is the paper's Algorithm 1 with its own constants and its slips repaired; each sender begins at C,
    which is its Capacity Share, since it is alone on its NIC. With ``queue=N`` its limiters keep up to N frames and
    drop the rest; otherwise they drop what exceeds their rate, as printed. ``timeout`` is the congestion time-out in
    ms. ``static`` gives each sender an equal part of the link.
    """
    name, parameters = parse_control(control)
    if name not in CONTROLS or set(parameters) - {QUEUE, TIMEOUT_MS} or (parameters and name != "hygenicc"):
        raise InvalidValueError(
            "control", control, f"is not one of {', '.join(CONTROLS)}, hygenicc {QUEUE}=N {TIMEOUT_MS}=MS"
        )
    queue_frames = int(parameters.get(QUEUE, 0))
    if len(receivers_of(scenario)) != 1 or len(scenario.pairs) != len(scenario.sources):
        raise InvalidValueError("sources", scenario.name, "must be one for each sender, to one receiver")
    if any(source.protocol == "udp" and source.rate_bps != scenario.link_rate_bps for source in scenario.sources):
        raise InvalidValueError("rate_bps", scenario.name, "of UDP must be the link's")
    link = PacketLink(scenario.link_rate_bps)
    paper = PaperConstants(link.capacity_bps)
    if TIMEOUT_MS in parameters:
        paper = replace(paper, congestion_timeout_s=parameters[TIMEOUT_MS] / 1e3)
    limiters = [_limiter(name, paper, len(scenario.sources), queue_frames) for _ in scenario.sources]
    flows = [_flows(source, link) for source in scenario.sources]
    network = PacketNetwork(link, list(zip(limiters, flows, strict=True)), seed)
    changes = sorted(
        (at_s, starts, number)
        for number, spans in enumerate(scenario.timeline(seed))
        for span in spans
        for at_s, starts in zip(span, (True, False), strict=True)
    )
    intervals = int(scenario.duration_s / INTERVAL_S + 1e-6)
    delivered, granted = [network.delivered()], []
    update_number = 1
    for interval in range(1, intervals + 1):
        end_s = interval * INTERVAL_S
        while update_number * paper.update_s <= end_s + 1e-9:
            while changes and changes[0][0] <= network.now_s:
                _, starts, number = changes.pop(0)
                for flow in flows[number]:
                    flow.start(network.slot) if starts else flow.stop()
            network.run(update_number * paper.update_s)
            for limiter in limiters:
                if isinstance(limiter, Source):
                    limiter.update(network.now_s)
            update_number += 1
        delivered.append(network.delivered())
        granted.append([one.rate_bps if isinstance(one, Source) else np.nan for one in limiters])
        progress(INTERVAL_S)
    frames = np.diff(np.array(delivered, dtype=np.float64), axis=0)
    received = frames.sum(axis=1, keepdims=True)
    notes: dict[str, Any] = {"warnings": [], "link_dropped": network.dropped}
    return ScenarioRun(
        scenario, control, "model", seed, INTERVAL_S * np.arange(intervals + 1, dtype=np.float64),
        frames * FRAME_BITS, received * FRAME_BITS, received, np.array(granted),
        _sums(flows, "sent"), _sums(flows, "lost"), transfer_rows([]), notes,
    )  # fmt: skip


def _limiter(control: str, paper: PaperConstants, senders: int, queue_frames: int) -> Limiter:
    """Return the limiter of a sender under a control; ``queue_frames`` 0: frames above the rate are dropped."""
    if control == "none":
        return Unlimited()
    if control == "static":
        return StaticLimiter(paper, paper.capacity_bps / senders, paper.capacity_bps / senders)
    return Source(paper, paper.capacity_bps, paper.capacity_bps, queue_frames=queue_frames)


def _flows(source: Traffic, link: PacketLink) -> list[Flow]:
    """Return the flows of a source: one of UDP, or its number of TCP flows."""
    if source.protocol == "udp":
        return [UdpFlow()]
    law = source.congestion_control or "reno"
    return [TcpFlow(law, source.ecn or law == "dctcp", link.slot_s) for _ in range(source.flows)]


def _sums(flows: list[list[Flow]], name: str) -> FloatArray:
    """Return the sum of a counter over the flows of each source, (sources,)."""
    return np.array(
        [sum(getattr(flow, name) for flow in flows_of_source) for flows_of_source in flows], dtype=np.float64
    )
