"""The oracle: an allocator that knows the demand of each source in every interval, without delay or waste.

What it shares, and among whom, is what the scenario's policies promise (``Scenario.promise``):
- ``limits``: senders' and receivers' limits, max-min fairly among pairs;
- ``ceilings``: limits first; then the rest, by the sending VN's weight, up to ceilings and link capacities;
- ``entities``: links, by weight among the sending VNs on each, within the ceilings.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.allocation.max_min import FlowPaths, max_min
from controller.allocation.network_max_min import Constraints, allocate_network
from experiments.evaluation.entity_oracle import entity_rates
from experiments.measure.frame_sizes import TCP_PAYLOAD_BYTES, TCP_WIRE_BYTES
from experiments.runs.scenario_run import FloatArray, ScenarioRun
from experiments.scenarios.limits import RATES, LimitChange
from experiments.scenarios.scenario import Scenario
from experiments.scenarios.traffic import Session, Source, Span
from topologies.fabric import Fabric

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Oracle:
    """The oracle's rates, and the demands: (intervals, pairs), rates in bit/s."""

    rate_bps: FloatArray
    demand_bps: FloatArray
    on: BoolArray
    """whether a pair had traffic to send during the whole interval"""


@dataclass(frozen=True, slots=True)
class Promised:
    """The guarantees of each VN in each interval, (intervals, VNs of ``fabric().vns()``) each.

    A ceiling that is not set is the limit; if VNs are promised parts of links, it is the rate of their port.
    """

    send_bps: FloatArray
    receive_bps: FloatArray
    send_ceiling_bps: FloatArray
    receive_ceiling_bps: FloatArray
    weight: FloatArray

    @property
    def most_send_bps(self) -> FloatArray:
        """The most that a VN may send."""
        return np.maximum(self.send_ceiling_bps, self.send_bps)

    @property
    def most_receive_bps(self) -> FloatArray:
        """The most that a VN may receive."""
        return np.maximum(self.receive_ceiling_bps, self.receive_bps)


def guarantees_over_time(scenario: Scenario, time_s: FloatArray) -> Promised:
    """Return the guarantees of each VN in each interval, with the changes of the scenario."""
    vns = scenario.fabric().vns()
    row = {(vn.vlan_vid, vn.pn.number): n for n, vn in enumerate(vns)}
    limits = [scenario.limits_of(vn) for vn in vns]
    tables = {name: _standing([getattr(one, name) for one in limits], len(time_s) - 1) for name in (*RATES, "weight")}
    for event in scenario.events:
        if isinstance(event, LimitChange):
            for name, table in tables.items():
                if (value := getattr(event, name)) is not None:
                    table[time_s[:-1] >= event.at_s, row[event.vlan_vid, event.pn]] = value
    port_bps = np.array([float(vn.pn.link_rate_bps) for vn in vns])
    for way in ("send", "receive"):
        if scenario.promise == "limits":  # no borrowing
            tables[f"{way}_ceiling_bps"] = tables[f"{way}_bps"]
            continue
        otherwise = port_bps if scenario.promise == "entities" else tables[f"{way}_bps"]
        ceiling = tables[f"{way}_ceiling_bps"]
        tables[f"{way}_ceiling_bps"] = np.where(np.isnan(ceiling), otherwise, ceiling)
    tables["weight"] = np.where(np.isnan(tables["weight"]), 1.0, tables["weight"])
    return Promised(**tables)


def oracle_of(run: ScenarioRun) -> Oracle:
    """Return the rates that an allocator with known demands would have delivered in each interval of a run."""
    scenario, time_s = run.scenario, run.time_s
    promised, share = guarantees_over_time(scenario, time_s), _Shared(scenario)
    pairs, passed_s = scenario.pairs, np.diff(time_s)
    most_bps = np.minimum(promised.most_send_bps[:, share.sender], promised.most_receive_bps[:, share.receiver])
    column = [pairs.index(source.pair) for source in scenario.sources]
    sessions = scenario.sessions(run.seed)
    wants = [_SourceDemand(s, spans, mine, time_s) for s, spans, mine in
             zip(scenario.sources, scenario.timeline(run.seed), sessions, strict=True)]  # fmt: skip
    demand_bps, rate_bps = np.zeros((len(passed_s), len(pairs))), np.zeros((len(passed_s), len(pairs)))
    on = np.zeros(demand_bps.shape, dtype=np.bool_)
    for row in range(len(passed_s)):
        for pair, one in zip(column, wants, strict=True):
            wanted_bps, whole = one.in_interval(row, passed_s[row], most_bps[row, pair])
            demand_bps[row, pair] += wanted_bps
            on[row, pair] |= whole
        rate_bps[row] = share.rates_bps(promised, row, demand_bps[row])
        for pair, one in zip(column, wants, strict=True):
            one.consume(rate_bps[row, pair] * passed_s[row])
    return Oracle(rate_bps, demand_bps, on)


class _SourceDemand:
    """The demand of one source, interval by interval. Bits are those of tagged frames."""

    def __init__(
        self, source: Source, spans: tuple[Span, ...], sessions: tuple[Session, ...], time_s: FloatArray
    ) -> None:
        self._rate_bps, self._part, self._end_s = source.rate_bps, _part_on(spans, time_s), time_s[1:]
        self._left_bits = np.inf if source.octets is None else source.octets * 8.0 * TCP_WIRE_BYTES / TCP_PAYLOAD_BYTES
        self._sessions = None if source.requests is None else deque(sessions)
        if self._sessions is not None:
            self._left_bits = 0.0
        self._finite = np.isfinite(self._left_bits)

    def in_interval(self, row: int, passed_s: float, most_bps: float) -> tuple[float, bool]:
        """Return the demanded rate in an interval, and whether the source has traffic to send during all of it."""
        if self._sessions is not None:
            before = self._left_bits > 0
            while self._sessions and self._sessions[0][0] < self._end_s[row]:
                packets = sum(-(-octets // TCP_PAYLOAD_BYTES) for octets in self._sessions.popleft()[1])
                self._left_bits += packets * TCP_WIRE_BYTES * 8.0
            return min(most_bps, self._left_bits / passed_s), before and self._left_bits / passed_s >= most_bps
        wanted_bps = most_bps if self._rate_bps is None else float(self._rate_bps)
        wanted_bps = min(wanted_bps * self._part[row], self._left_bits / passed_s)
        return wanted_bps, bool(self._part[row] > 0.999 and self._left_bits > 0)

    def consume(self, bits: float) -> None:
        """Subtract what its pair was given."""
        if self._finite:
            self._left_bits -= min(bits, self._left_bits)


class _Shared:
    """The shared capacities of a scenario's pairs. ``sender`` and ``receiver`` (pairs,) are rows of VNs."""

    def __init__(self, scenario: Scenario) -> None:
        fabric = scenario.fabric()
        vns = [(vn.vlan_vid, vn.pn.number) for vn in fabric.vns()]
        self._vns, self._promise = len(vns), scenario.promise
        self.sender = np.array([vns.index((vid, one)) for vid, one, _ in scenario.pairs], dtype=np.int64)
        self.receiver = np.array([vns.index((vid, one)) for vid, _, one in scenario.pairs], dtype=np.int64)
        ends = np.stack([self.sender, self.receiver + self._vns], axis=1)
        self._paths = FlowPaths(np.arange(0, ends.size + 1, 2), ends.ravel(), 2 * self._vns)
        self._link_bps, self._links = links_of(fabric, [(sender, receiver) for _, sender, receiver in scenario.pairs])
        self._last: tuple[bytes, FloatArray] | None = None

    def rates_bps(self, promised: Promised, row: int, demand_bps: FloatArray) -> FloatArray:
        """Return the rates of the pairs in an interval; equal successive problems are solved once."""
        columns = (
            promised.send_bps[row],
            promised.receive_bps[row],
            promised.send_ceiling_bps[row],
            promised.receive_ceiling_bps[row],
            promised.weight[row],
        )
        key = np.concatenate([*columns, demand_bps]).tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, self._solve(*columns, demand_bps)
        return self._last[1]

    def _solve(
        self,
        send_bps: FloatArray,
        receive_bps: FloatArray,
        send_ceiling_bps: FloatArray,
        receive_ceiling_bps: FloatArray,
        weight: FloatArray,
        demand_bps: FloatArray,
    ) -> FloatArray:
        """Return the (pairs,) ideal rates for one set of limits and demands, by the scenario's guarantee model."""
        if self._promise == "limits":
            limits_bps = np.concatenate([send_bps, receive_bps])
            return max_min(self._paths, limits_bps, demand_bps, np.ones(len(demand_bps))).rate_bps
        if self._promise == "ceilings":
            constraints = Constraints.build(
                send_bps, receive_bps, self._link_bps, send_ceiling_bps, receive_ceiling_bps
            )
            offsets = np.concatenate([[0], np.cumsum([len(one) for one in self._links])]).astype(np.int64)
            paths = constraints.paths(self.sender, self.receiver, offsets, np.concatenate(self._links))
            return allocate_network(paths, constraints, demand_bps, weight[self.sender])[0]
        capacity_bps = np.concatenate([self._link_bps, send_ceiling_bps, receive_ceiling_bps])
        first = len(self._link_bps)
        links = [
            np.array([*mine, first + sender, first + self._vns + receiver])
            for mine, sender, receiver in zip(self._links, self.sender, self.receiver, strict=True)
        ]
        return entity_rates(links, self.sender, weight, capacity_bps, demand_bps)


def links_of(fabric: Fabric, ends: list[tuple[int, int]]) -> tuple[FloatArray, list[IntArray]]:
    """Return the capacity of each link, (links,), and the links of the shortest path between each pair of PNs.

    Each direction is a link: first those from PNs, then those to PNs, then core links.
    """
    row_of = {pn.number: row for row, pn in enumerate(fabric.pns)}
    access_bps = [float(pn.link_rate_bps) for pn in fabric.pns]
    core: dict[tuple[str, str], int] = {}
    core_bps: list[float] = []
    for link in fabric.core_links:
        for way in ((link.switch_a, link.switch_b), (link.switch_b, link.switch_a)):
            if way not in core:
                core[way] = 2 * len(row_of) + len(core_bps)
                core_bps.append(float(link.rate_bps))
    found = []
    for sender, receiver in ends:
        hops = _way(core, fabric.pn(sender).switch, fabric.pn(receiver).switch)
        found.append(np.array([row_of[sender], *(core[hop] for hop in hops), len(row_of) + row_of[receiver]]))
    return np.array([*access_bps, *access_bps, *core_bps]), found


def _way(core: dict[tuple[str, str], int], start: str, end: str) -> list[tuple[str, str]]:
    """Return the core links of the path with the fewest links."""
    before: dict[str, str] = {start: start}
    waiting = deque([start])
    while waiting and end not in before:
        here = waiting.popleft()
        for one, other in core:
            if one == here and other not in before:
                before[other] = here
                waiting.append(other)
    way = []
    while end != start:
        way.append((before[end], end))
        end = before[end]
    return way[::-1]


def _standing(values: list[float | None], intervals: int) -> FloatArray:
    row = np.array([np.nan if value is None else float(value) for value in values])
    return np.tile(row, (intervals, 1))


def _part_on(spans: tuple[Span, ...], time_s: FloatArray) -> FloatArray:
    """Return the part of each interval that lies in one of the spans."""
    begin, end = time_s[:-1], time_s[1:]
    part = np.zeros(len(begin))
    for begin_s, end_s in spans:
        part += np.maximum(np.minimum(end, end_s) - np.maximum(begin, begin_s), 0.0)
    return part / (end - begin)
