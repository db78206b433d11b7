"""An experiment: a topology, VNs with their limits, sources and events; used by ``experiments.scenarios``.

Rates are wire rates in bit/s at the paper's speed (links of 1 Gb/s); a fabric that cannot carry them runs the scenario
scaled. Times are seconds from the start of the traffic. Standard library only, so that listing scenarios is quick.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.errors import InvalidValueError
from experiments.scenarios.limits import RATES as LIMIT_RATES
from experiments.scenarios.limits import AlgorithmChange, Event, LimitChange, Limits
from experiments.scenarios.traffic import (
    Job,
    Session,
    Source,
    Span,
    VnPair,
    WebRequests,
    require,
    scaled_fields,
    scaled_rate_bps,
)
from topologies.builders import fabrics
from topologies.fabric import Fabric, VirtualNode

__all__ = ["AlgorithmChange", "LimitChange", "Limits", "Scenario", "Source", "WebRequests"]

INTERVAL_S = 0.055  # DETS's timer, and the time unit of the paper's figures
BASELINES = ("none", "static")
CONTROLS = (*BASELINES, "fs", "sp", "fp", "fe", "max-min", "level")
LONGEST_S = 10_800.0


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a scenario: with a shaping queue at the receiver or without, delayed grants or not.

    With ``packets`` it runs packet by packet on the network of the HyGenICC paper (experiments/runs/packet_run.py).
    """

    title: str
    shaped: bool = True
    late_intervals: int = 0
    packets: bool = False


# The paper has no queue at the receiver, and "it takes two time units for the control algorithm to receive the
# measurements and make the decision and apply the limits" (section IV). The two conditions between show which one
# decides.
CONDITIONS = {
    "product": Conditions("the product's: the receiver's queue shapes, grants work at once"),
    "unshaped": Conditions("without the receiver's shaping queue", shaped=False),
    "late": Conditions("grants work two intervals late", late_intervals=2),
    "paper": Conditions("the paper's: neither queue nor prompt grants", shaped=False, late_intervals=2),
    "packets": Conditions("packet by packet, without a controller", packets=True),
}

# Where traffic is shaped: by meters, by agents on the PNs without any meter, by agents with meters behind them, or by
# agents alone at every second PN and meters at the others.
SHAPINGS = ("meter", "agent", "both", "mixed")

# The reference for the rates of a run, and the base of Jain's index (experiments/evaluation/oracle.py).
PROMISES = {
    "limits": "limits of senders and receivers, max-min fairly over pairs",
    "ceilings": "limits first, then what is left, by weight, up to ceilings and links; fairness over sending VNs",
    "entities": "weighted max-min over sending VNs on each link, within ceilings; fairness over sending VNs by weight",
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """An experiment on any fabric. ``limits`` are by VLAN; ``vn_limits``, exceptions, by (VLAN, PN).

    ``phases`` are spans that are measured separately. ``isolation`` names two of them, before and while the second VLAN
    of ``limits`` sends UDP to the receiver of the first's TCP: then the first VLAN's isolation is measured as well.
    ``controls`` lists the controls: ``none``, ``static`` (equal limits set once), or an algorithm with parameters, such
    as ``fp d=4``. Fabrics in real time run only ``emulated_controls``, if given, for ``emulated_s``, with
    ``emulated_seeds``, which may be given by control. ``conditions`` is one of CONDITIONS, which are compared under
    ``paper_controls``, those that are controls of the fabric. Without ``queues`` a receiving port has a single queue,
    and only meters enforce the limits. ``promise`` is one of PROMISES; ``topology_options`` go to the topology's
    builder, those that end with ``_bps`` scaled. With ``uplink_queues`` the senders' own schedulers serve VLANs by
    their send limits, and up to their send ceilings, under every control except ``none``. ``queue_packets`` is the
    depth of the queues of the model's switches; None: the default. ``shaping`` is one of SHAPINGS. Plots show the
    traffic of the ``tagged`` PN. ``interval_ms`` is the control interval. ``job`` drives the sources of its VLAN, on
    the model. Raises InvalidValueError naming the field.
    """

    name: str
    title: str
    limits: Mapping[int, Limits]
    sources: tuple[Source, ...]
    duration_s: float
    topology: str = "dets-fig5"
    pns: int = 11
    link_rate_bps: int = 1_000_000_000
    vn_limits: Mapping[tuple[int, int], Limits] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    phases: Mapping[str, Span] = field(default_factory=dict)
    isolation: tuple[str, str] | None = None
    controls: tuple[str, ...] = CONTROLS
    emulated_controls: tuple[str, ...] | None = None
    emulated_s: float | None = None
    paper_controls: tuple[str, ...] = ()
    conditions: str = "product"
    promise: str = "limits"
    topology_options: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 5
    emulated_seeds: int | Mapping[str, int] = 1
    queues: bool = True
    uplink_queues: bool = False
    queue_packets: int | None = None
    shaping: str = field(default="meter", repr=False)  # not in digests of completed runs, whose names differ
    tagged: int | None = field(default=None, repr=False)  # not in digests: only for plots
    interval_ms: int = field(default=55, repr=False)  # not in digests: names differ
    job: Job | None = None

    def __post_init__(self) -> None:
        require(self.conditions in CONDITIONS, "conditions", self.conditions, f"is not one of {', '.join(CONDITIONS)}")
        late = CONDITIONS[self.conditions].late_intervals
        require(not (late and self.events), "conditions", self.conditions, "delay grants: events cannot change them")
        require(self.topology in fabrics, "topology", self.topology, f"is not one of {', '.join(fabrics)}")
        require(2 <= self.pns <= 250, "pns", self.pns, "is outside 2 to 250")
        in_bounds = 1.0 <= self.duration_s <= LONGEST_S
        require(in_bounds, "duration_s", self.duration_s, f"is outside 1 to {LONGEST_S:g} seconds")
        require(len(self.sources) > 0, "sources", (), "are none: nobody sends")
        require(len(self.limits) > 0, "limits", {}, "name no VLAN")
        require(self.shaping in SHAPINGS, "shaping", self.shaping, f"is not one of {', '.join(SHAPINGS)}")
        require(self.promise in PROMISES, "promise", self.promise, f"is not one of {', '.join(PROMISES)}")
        require(
            self.tagged is None or 1 <= self.tagged <= self.pns, "tagged", self.tagged, f"is outside 1 to {self.pns}"
        )
        self._check_limits()
        for number, source in enumerate(self.sources):
            source.check(f"sources[{number}]", tuple(self.limits), self.pns, self.duration_s)
        if self.job is not None:
            self.job.check(self.sources)
        for name, span in self.phases.items():
            self._check_span(f"phases.{name}", span)
        for name in self.isolation or ():
            require(name in self.phases, "isolation", name, f"is not one of the phases: {', '.join(self.phases)}")
        require(self.isolation is None or len(self.limits) > 1, "isolation", self.isolation, "needs two VLANs")
        for number, event in enumerate(self.events):
            key = f"events[{number}]"
            require(0 <= event.at_s <= self.duration_s, f"{key}.at_s", event.at_s, f"is after {self.duration_s:g} s")
            require(event.vlan_vid in self.limits, f"{key}.vlan_vid", event.vlan_vid, "is not a VLAN of limits")
            if isinstance(event, LimitChange):
                require(1 <= event.pn <= self.pns, f"{key}.pn", event.pn, f"is outside 1 to {self.pns}")
        for control in (*self.controls, *(self.emulated_controls or ()), *self.paper_controls):
            parse_control(control)

    def _check_limits(self) -> None:
        """Raise InvalidValueError naming an invalid limit, or a VN that does not exist."""
        for vid, limits in self.limits.items():
            limits.check(f"limits[{vid}]")
        for (vid, pn), limits in self.vn_limits.items():
            key = f"vn_limits[{vid}, {pn}]"
            require(vid in self.limits, key, vid, "is not a VLAN of limits")
            require(1 <= pn <= self.pns, key, pn, f"is outside 1 to {self.pns}")
            limits.check(key)

    def _check_span(self, key: str, span: Span) -> None:
        """Raise InvalidValueError unless a span lies within the scenario."""
        begin_s, end_s = span
        require(0 <= begin_s < end_s <= self.duration_s, key, span, f"is not within 0 to {self.duration_s:g} seconds")

    def controls_on(self, fabric: str) -> tuple[str, ...]:
        """Return the controls on a fabric."""
        return self.controls if fabric == "model" or self.emulated_controls is None else self.emulated_controls

    def seeds_on(self, fabric: str, control: str) -> int:
        """Return the number of seeds of a control on a fabric."""
        if fabric == "model":
            return self.seeds
        return self.emulated_seeds if isinstance(self.emulated_seeds, int) else self.emulated_seeds.get(control, 1)

    @property
    def judged(self) -> Span:
        """The judged span: while the second VLAN sends, or the whole run."""
        return self.phases[self.isolation[1]] if self.isolation else (0.0, self.duration_s)

    def phase_at(self, time_s: float) -> str:
        """Return the name of the phase at a time, or of the next phase; "" after the last."""
        return next((name for name, (_, end_s) in self.phases.items() if time_s < end_s), "")

    def on(self, fabric: str, scale: float = 1.0) -> Scenario:
        """Return the scenario for a fabric: scaled, and in real time shortened.

        Raises InvalidValueError for a source, or for conditions, that the fabric does not support.
        """
        packets = CONDITIONS[self.conditions].packets
        require(fabric == "model" or self.job is None, "job", self.name, f"is not run on {fabric}, but on the model")
        require(fabric == "model" or not packets, "conditions", self.conditions, f"are not those of {fabric}")
        for number, source in enumerate(self.sources):
            source.check_on(f"sources[{number}]", fabric)
            require(packets or not source.ecn, f"sources[{number}].ecn", True, "needs the conditions 'packets'")
        scenario = self if scale == 1.0 else self.scaled(scale)
        return scenario if fabric == "model" or self.emulated_s is None else scenario.lasting(self.emulated_s)

    def with_conditions(self, conditions: str) -> Scenario:
        """Return the scenario under other conditions; InvalidValueError for unknown conditions."""
        return dataclasses.replace(self, conditions=conditions)

    @property
    def pairs(self) -> tuple[VnPair, ...]:
        """The sending and receiving VNs, in the order of the sources."""
        return tuple(dict.fromkeys(source.pair for source in self.sources))

    def fabric(self) -> Fabric:
        """Return the fabric's description."""
        sizes = {"pns": self.pns, "link_rate_bps": self.link_rate_bps, "vlans": tuple(self.limits)}
        return fabrics[self.topology](**sizes, **self.topology_options)

    def limits_of(self, vn: VirtualNode) -> Limits:
        """Return a VN's limits at the beginning; its weight is the VLAN's unless it has its own."""
        vlan = self.limits[vn.vlan_vid]
        own = self.vn_limits.get((vn.vlan_vid, vn.pn.number), vlan)
        return own if own.weight is not None else dataclasses.replace(own, weight=vlan.weight)

    def scaled(self, factor: float) -> Scenario:
        """Return the scenario with every rate, and the size of transfers, times ``factor``; times do not change.

        The rate of web requests changes, not their size: a page of a few packets would be less than one packet.
        """
        return dataclasses.replace(
            self,
            link_rate_bps=scaled_rate_bps(self.link_rate_bps, factor),
            topology_options={key: _scaled_option(key, value, factor) for key, value in self.topology_options.items()},
            limits={vid: limits.scaled(factor) for vid, limits in self.limits.items()},
            vn_limits={key: limits.scaled(factor) for key, limits in self.vn_limits.items()},
            sources=tuple(source.scaled(factor) for source in self.sources),
            events=tuple(scaled_fields(event, LIMIT_RATES, factor) for event in self.events),
            job=None if self.job is None else scaled_fields(self.job, ("fetch_bytes",), factor),
        )

    def lasting(self, duration_s: float) -> Scenario:
        """Return the scenario ended after ``duration_s``, without later spans and with the last spans shortened."""

        def clip(span: Span) -> Span:
            return span[0], min(span[1], duration_s)

        return dataclasses.replace(
            self,
            duration_s=duration_s,
            phases={name: clip(span) for name, span in self.phases.items() if span[0] < duration_s},
            sources=tuple(
                dataclasses.replace(source, spans=tuple(clip(span) for span in source.spans if span[0] < duration_s))
                for source in self.sources
                if not source.spans or source.spans[0][0] < duration_s
            ),
            events=tuple(event for event in self.events if event.at_s <= duration_s),
        )

    def timeline(self, seed: int) -> tuple[tuple[Span, ...], ...]:
        """Return the spans of traffic of each source: the same for a seed on every fabric, under every control."""
        return tuple(source.spans_of(number, seed, self.duration_s) for number, source in enumerate(self.sources))

    def sessions(self, seed: int) -> tuple[tuple[Session, ...], ...]:
        """Return the sessions of web requests of each source: the same for a seed on every fabric and control."""
        return tuple(source.sessions_of(number, seed, self.duration_s) for number, source in enumerate(self.sources))


def parse_control(control: str) -> tuple[str, dict[str, float]]:
    """Return algorithm (or baseline) and parameters of a control such as ``fp d=4``.

    Raises InvalidValueError. Whether the algorithm has these parameters is checked when the policy is made.
    """
    name, *words = control.split() or [""]
    if name not in CONTROLS:
        from controller.policy.registry import policies  # slower to import than all scenarios

        known = (*BASELINES, *policies)
        require(name in known, "control", control, f"does not begin with one of {', '.join(known)}")
    parameters = {}
    for word in words:
        key, _, value = word.partition("=")
        try:
            parameters[key] = float(value)
        except ValueError:
            raise InvalidValueError("control", control, f"{word!r} is not KEY=NUMBER") from None
    require(not (parameters and name in BASELINES), "control", control, f"{name} has no parameters")
    return name, parameters


def _scaled_option(key: str, value: Any, factor: float) -> Any:
    """Return an option of the topology, times ``factor`` if its name ends with ``_bps``."""
    if not key.endswith("_bps") or value is None:
        return value
    if isinstance(value, Mapping):
        return {name: scaled_rate_bps(rate_bps, factor) for name, rate_bps in value.items()}
    return scaled_rate_bps(value, factor)
