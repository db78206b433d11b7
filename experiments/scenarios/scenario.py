"""What an experimenter writes: a topology, VNs with their limits, sources and events, in ``experiments.scenarios``.

Rates are wire rates in bit/s at the paper's speed (links of 1 Gb/s); a fabric that cannot carry them runs the scenario
scaled. Times are seconds from the start of the traffic. Standard library only, so that listing scenarios is quick.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from controller.errors import InvalidValueError
from topologies.builders import fabrics
from topologies.fabric import Fabric, VirtualNode

INTERVAL_S = 0.055  # DETS's timer, and the time unit of the paper's figures
PROTOCOLS = ("udp", "tcp")
BASELINES = ("none", "static")
CONTROLS = (*BASELINES, "fs", "sp", "fp", "fe", "max-min", "level")
LEAST_RATE_BPS = 100_000
LONGEST_S = 10_800.0


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which conditions a scenario runs: with a shaping queue at the receiver or without, grants late or not."""

    title: str
    shaped: bool = True
    late_intervals: int = 0


# The paper has no queue at the receiver, and "it takes two time units for the control algorithm to receive the
# measurements and make the decision and apply the limits" (section IV). The two between show which of the two decides.
CONDITIONS = {
    "product": Conditions("the product's: the receiver's queue shapes, grants work at once"),
    "unshaped": Conditions("without the receiver's shaping queue", shaped=False),
    "late": Conditions("grants work two intervals late", late_intervals=2),
    "paper": Conditions("the paper's: neither queue nor prompt grants", shaped=False, late_intervals=2),
}

Span = tuple[float, float]
VnPair = tuple[int, int, int]
"""(VLAN, sending PN, receiving PN)"""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a VN may send and receive."""

    send_bps: int
    receive_bps: int


@dataclass(frozen=True, slots=True)
class Source:
    """What one VN sends to another.

    ``rate_bps`` is what UDP offers, whatever becomes of it, or the most that the application behind TCP has to send
    (None: as much as the network lets it). It has something to send in each of ``spans``, or all the time. With
    ``most_burst_s`` it is the generator of section IV instead: bursts and pauses of random length, uniform between 0
    and that. With ``octets`` a TCP source begins to transfer so many bytes at the start of each span, and then stops.
    """

    vlan_vid: int
    sender: int
    receiver: int
    protocol: str
    rate_bps: int | None = None
    spans: tuple[Span, ...] = ()
    most_burst_s: float | None = None
    octets: int | None = None

    @property
    def pair(self) -> VnPair:
        """The VLAN and the two PNs: what has one entry, and one meter."""
        return self.vlan_vid, self.sender, self.receiver


@dataclass(frozen=True, slots=True)
class LimitChange:
    """At a time a VN gets another limit."""

    at_s: float
    vlan_vid: int
    pn: int
    send_bps: int | None = None
    receive_bps: int | None = None


@dataclass(frozen=True, slots=True)
class AlgorithmChange:
    """At a time a VLAN gets another algorithm. Baselines, which have none, do not notice."""

    at_s: float
    vlan_vid: int
    control: str


Event = LimitChange | AlgorithmChange


@dataclass(frozen=True, slots=True)
class Scenario:
    """An experiment, whatever fabric it runs on. ``limits`` are by VLAN, ``vn_limits`` by (VLAN, PN) where they differ.

    ``phases`` are spans that are measured by themselves. ``isolation`` names two of them, before and while the second
    VLAN of ``limits`` sends UDP to the receiver of the first's TCP: then what the first keeps is measured as well.
    ``controls`` says what it runs under: ``none``, ``static`` (equal limits set once), or an algorithm with parameters,
    such as ``fp d=4``. Fabrics in real time run ``emulated_controls`` alone, if given, for ``emulated_s``, with
    ``emulated_seeds``, which may be given by control. ``conditions`` are those of CONDITIONS, which are compared under
    ``paper_controls``, each of them a control of every fabric. Without ``queues`` a receiving port has one plain queue,
    and meters alone hold the limits. Raises InvalidValueError naming the field.
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
    seeds: int = 5
    emulated_seeds: int | Mapping[str, int] = 1
    queues: bool = True

    def __post_init__(self) -> None:
        _require(self.conditions in CONDITIONS, "conditions", self.conditions, f"is not one of {', '.join(CONDITIONS)}")
        late = CONDITIONS[self.conditions].late_intervals
        _require(not (late and self.events), "conditions", self.conditions, "delay grants: events cannot change them")
        _require(self.topology in fabrics, "topology", self.topology, f"is not one of {', '.join(fabrics)}")
        _require(2 <= self.pns <= 250, "pns", self.pns, "is outside 2 to 250")
        in_bounds = 1.0 <= self.duration_s <= LONGEST_S
        _require(in_bounds, "duration_s", self.duration_s, f"is outside 1 to {LONGEST_S:g} seconds")
        _require(len(self.sources) > 0, "sources", (), "are none: nobody sends")
        _require(len(self.limits) > 0, "limits", {}, "name no VLAN")
        for number, source in enumerate(self.sources):
            self._check_source(f"sources[{number}]", source)
        for name, span in self.phases.items():
            self._check_span(f"phases.{name}", span)
        for name in self.isolation or ():
            _require(name in self.phases, "isolation", name, f"is not one of the phases: {', '.join(self.phases)}")
        _require(self.isolation is None or len(self.limits) > 1, "isolation", self.isolation, "needs two VLANs")
        for number, event in enumerate(self.events):
            key = f"events[{number}]"
            _require(0 <= event.at_s <= self.duration_s, f"{key}.at_s", event.at_s, f"is after {self.duration_s:g} s")
            _require(event.vlan_vid in self.limits, f"{key}.vlan_vid", event.vlan_vid, "is not a VLAN of limits")
        for control in (*self.controls, *(self.emulated_controls or ()), *self.paper_controls):
            parse_control(control)

    def _check_source(self, key: str, source: Source) -> None:
        _require(source.protocol in PROTOCOLS, f"{key}.protocol", source.protocol, "is neither udp nor tcp")
        _require(source.vlan_vid in self.limits, f"{key}.vlan_vid", source.vlan_vid, "is not a VLAN of limits")
        for end in ("sender", "receiver"):
            number = getattr(source, end)
            _require(1 <= number <= self.pns, f"{key}.{end}", number, f"is outside 1 to {self.pns}")
        _require(source.sender != source.receiver, f"{key}.receiver", source.receiver, "is the sender too")
        if source.rate_bps is None:
            _require(source.protocol == "tcp", f"{key}.rate_bps", None, "is needed: UDP has no rate of its own")
        else:
            _require(source.rate_bps > 0, f"{key}.rate_bps", source.rate_bps, "is not above 0")
        for span in source.spans:
            self._check_span(f"{key}.spans", span)
        if source.most_burst_s is not None:
            _require(source.most_burst_s > 0, f"{key}.most_burst_s", source.most_burst_s, "is not above 0")
            _require(not source.spans, f"{key}.spans", source.spans, "and most_burst_s exclude each other")
        if source.octets is not None:
            _require(source.octets > 0, f"{key}.octets", source.octets, "is not above 0")
            _require(source.protocol == "tcp", f"{key}.octets", source.octets, "needs TCP, which knows what arrived")

    def _check_span(self, key: str, span: Span) -> None:
        begin_s, end_s = span
        _require(0 <= begin_s < end_s <= self.duration_s, key, span, f"is not within 0 to {self.duration_s:g} seconds")

    def controls_on(self, fabric: str) -> tuple[str, ...]:
        """Return what it runs under on a fabric."""
        return self.controls if fabric == "model" or self.emulated_controls is None else self.emulated_controls

    def seeds_on(self, fabric: str, control: str) -> int:
        """Return with how many seeds a control runs on a fabric."""
        if fabric == "model":
            return self.seeds
        return self.emulated_seeds if isinstance(self.emulated_seeds, int) else self.emulated_seeds.get(control, 1)

    @property
    def judged(self) -> Span:
        """The span that the run is about: while the second VLAN sends, or all of it."""
        return self.phases[self.isolation[1]] if self.isolation else (0.0, self.duration_s)

    def phase_at(self, time_s: float) -> str:
        """Return the phase that holds a time, or else the next one; "" after the last."""
        return next((name for name, (_, end_s) in self.phases.items() if time_s < end_s), "")

    def on(self, fabric: str, scale: float = 1.0) -> Scenario:
        """Return it as it runs on a fabric: scaled, and shortened in real time."""
        scenario = self if scale == 1.0 else self.scaled(scale)
        return scenario if fabric == "model" or self.emulated_s is None else scenario.lasting(self.emulated_s)

    def under(self, conditions: str) -> Scenario:
        """Return the same scenario under other conditions; InvalidValueError where there are none of that name."""
        return dataclasses.replace(self, conditions=conditions)

    @property
    def pairs(self) -> tuple[VnPair, ...]:
        """Who sends to whom, in the order of the sources."""
        return tuple(dict.fromkeys(source.pair for source in self.sources))

    def fabric(self) -> Fabric:
        """Return the fabric's description."""
        return fabrics[self.topology](pns=self.pns, link_rate_bps=self.link_rate_bps, vlans=tuple(self.limits))

    def limits_of(self, vn: VirtualNode) -> Limits:
        """Return what a VN may send and receive at the beginning."""
        return self.vn_limits.get((vn.vlan_vid, vn.pn.number), self.limits[vn.vlan_vid])

    def scaled(self, factor: float) -> Scenario:
        """Return the same scenario with every rate, and the size of transfers, times ``factor``; times stay."""
        return dataclasses.replace(
            self,
            link_rate_bps=_times(self.link_rate_bps, factor),
            limits={vid: _scaled_limits(limits, factor) for vid, limits in self.limits.items()},
            vn_limits={key: _scaled_limits(limits, factor) for key, limits in self.vn_limits.items()},
            sources=tuple(_scaled_fields(source, ("rate_bps", "octets"), factor) for source in self.sources),
            events=tuple(_scaled_fields(event, ("send_bps", "receive_bps"), factor) for event in self.events),
        )

    def lasting(self, duration_s: float) -> Scenario:
        """Return the same scenario cut off after ``duration_s``: what begins later goes, what is on then ends."""

        def kept(span: Span) -> Span:
            return span[0], min(span[1], duration_s)

        return dataclasses.replace(
            self,
            duration_s=duration_s,
            phases={name: kept(span) for name, span in self.phases.items() if span[0] < duration_s},
            sources=tuple(
                dataclasses.replace(source, spans=tuple(kept(span) for span in source.spans if span[0] < duration_s))
                for source in self.sources
                if not source.spans or source.spans[0][0] < duration_s
            ),
            events=tuple(event for event in self.events if event.at_s <= duration_s),
        )

    def timeline(self, seed: int) -> tuple[tuple[Span, ...], ...]:
        """Return when each source has something to send: the same for a seed on every fabric, under every control."""
        return tuple(self._spans(number, source, seed) for number, source in enumerate(self.sources))

    def _spans(self, number: int, source: Source, seed: int) -> tuple[Span, ...]:
        if source.most_burst_s is None:
            return source.spans or ((0.0, self.duration_s),)
        rng, spans, now_s = Random(f"{seed}/{number}"), [], 0.0
        while now_s < self.duration_s:
            end_s = now_s + rng.uniform(0.0, source.most_burst_s)
            spans.append((now_s, min(end_s, self.duration_s)))
            now_s = end_s + rng.uniform(0.0, source.most_burst_s)
        return tuple(spans)


def parse_control(control: str) -> tuple[str, dict[str, float]]:
    """Return algorithm (or baseline) and parameters of a control such as ``fp d=4``.

    Raises InvalidValueError. Whether the algorithm takes the parameters is checked where it is made.
    """
    name, *words = control.split() or [""]
    if name not in CONTROLS:
        from controller.policy.registry import policies  # slower to import than all scenarios

        known = (*BASELINES, *policies)
        _require(name in known, "control", control, f"does not begin with one of {', '.join(known)}")
    parameters = {}
    for word in words:
        key, _, value = word.partition("=")
        try:
            parameters[key] = float(value)
        except ValueError:
            raise InvalidValueError("control", control, f"{word!r} is not KEY=NUMBER") from None
    _require(not (parameters and name in BASELINES), "control", control, f"{name} has no parameters")
    return name, parameters


def _times(rate_bps: int, factor: float) -> int:
    return max(round(rate_bps * factor), LEAST_RATE_BPS)


def _scaled_limits(limits: Limits, factor: float) -> Limits:
    return Limits(_times(limits.send_bps, factor), _times(limits.receive_bps, factor))


def _scaled_fields(item: Any, names: tuple[str, ...], factor: float) -> Any:
    found = {name: getattr(item, name) for name in names if getattr(item, name, None) is not None}
    return dataclasses.replace(item, **{name: _times(value, factor) for name, value in found.items()})


def _require(condition: bool, key: str, value: object, reason: str) -> None:
    if not condition:
        raise InvalidValueError(key, value, reason)
