"""The oracle: an allocator that knows the demand of each source in every interval, without delay or waste.

``Scenario.promise``, the guarantee of the scenario's policies, decides what is shared, and among whom:
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
    """The oracle's rates, and the demands, in bit/s; each field is (intervals, pairs)."""

    rate_bps: FloatArray
    demand_bps: FloatArray
    on: BoolArray
    """whether a pair had traffic to send during the whole interval"""


@dataclass(frozen=True, slots=True)
class Promised:
    """The guarantees of each VN in each interval, (intervals, VNs of ``fabric().vns()``) each.

    A ceiling that is not set is the limit; with the promise ``entities`` it is the rate of the VN's port.
    """

    send_bps: FloatArray
    receive_bps: FloatArray
    send_ceiling_bps: FloatArray
    receive_ceiling_bps: FloatArray
    weight: FloatArray

    @property
    def most_send_bps(self) -> FloatArray:
        """The maximum rate at which a VN may send: limit or ceiling, whichever is larger."""
        return np.maximum(self.send_ceiling_bps, self.send_bps)

    @property
    def most_receive_bps(self) -> FloatArray:
        """The maximum rate at which a VN may receive: limit or ceiling, whichever is larger."""
        return np.maximum(self.receive_ceiling_bps, self.receive_bps)


def guarantees_over_time(scenario: Scenario, time_s: FloatArray) -> Promised:
    """Return the guarantees of each VN in each interval, including the limit changes of the scenario."""
    vns = scenario.fabric().vns()
    row_of = {(vn.vlan_vid, vn.pn.number): number for number, vn in enumerate(vns)}
    limits = [scenario.limits_of(vn) for vn in vns]
    names, intervals = (*RATES, "weight"), len(time_s) - 1
    tables = {name: _repeated([getattr(vn_limits, name) for vn_limits in limits], intervals) for name in names}
    for event in scenario.events:
        if isinstance(event, LimitChange):
            for name, table in tables.items():
                if (value := getattr(event, name)) is not None:
                    table[time_s[:-1] >= event.at_s, row_of[event.vlan_vid, event.pn]] = value
    port_bps = np.array([float(vn.pn.link_rate_bps) for vn in vns])
    for direction in ("send", "receive"):
        if scenario.promise == "limits":  # no borrowing
            tables[f"{direction}_ceiling_bps"] = tables[f"{direction}_bps"]
            continue
        default_bps = port_bps if scenario.promise == "entities" else tables[f"{direction}_bps"]
        ceiling_bps = tables[f"{direction}_ceiling_bps"]
        tables[f"{direction}_ceiling_bps"] = np.where(np.isnan(ceiling_bps), default_bps, ceiling_bps)
    tables["weight"] = np.where(np.isnan(tables["weight"]), 1.0, tables["weight"])
    return Promised(**tables)


def oracle_of(run: ScenarioRun) -> Oracle:
    """Return the rates that an allocator with known demands would have delivered in each interval of a run.

    Interval by interval, because bits that the oracle does not deliver remain in the demand of the next interval.
    """
    scenario, time_s = run.scenario, run.time_s
    promised, capacities = guarantees_over_time(scenario, time_s), _Capacities(scenario)
    pairs, duration_s = scenario.pairs, np.diff(time_s)
    sender, receiver = capacities.sender, capacities.receiver
    most_bps = np.minimum(promised.most_send_bps[:, sender], promised.most_receive_bps[:, receiver])
    pair_of_source = [pairs.index(source.pair) for source in scenario.sources]
    sessions = scenario.sessions(run.seed)
    sources = zip(scenario.sources, scenario.timeline(run.seed), sessions, strict=True)
    demands = [_SourceDemand(source, spans, requests, time_s) for source, spans, requests in sources]
    demand_bps, rate_bps = np.zeros((len(duration_s), len(pairs))), np.zeros((len(duration_s), len(pairs)))
    on = np.zeros(demand_bps.shape, dtype=np.bool_)
    for row in range(len(duration_s)):
        for pair, demand in zip(pair_of_source, demands, strict=True):
            source_bps, throughout = demand.in_interval(row, duration_s[row], most_bps[row, pair])
            demand_bps[row, pair] += source_bps
            on[row, pair] |= throughout
        rate_bps[row] = capacities.rates_bps(promised, row, demand_bps[row])
        for pair, demand in zip(pair_of_source, demands, strict=True):
            demand.consume(rate_bps[row, pair] * duration_s[row])
    return Oracle(rate_bps, demand_bps, on)


class _SourceDemand:
    """The demand of one source, interval by interval, in bits of tagged frames.

    A source sends during ``spans``: as much as it may (greedy: it has no rate), or at its rate; until its file, if it
    has one, is sent. Or it answers the requests of ``sessions``. ``time_s`` (intervals + 1,) are the intervals' ends.
    """

    def __init__(
        self, source: Source, spans: tuple[Span, ...], sessions: tuple[Session, ...], time_s: FloatArray
    ) -> None:
        self._rate_bps, self._part, self._end_s = source.rate_bps, _part_on(spans, time_s), time_s[1:]
        octets = source.octets
        self._unsent_bits = np.inf if octets is None else octets * 8.0 * TCP_WIRE_BYTES / TCP_PAYLOAD_BYTES
        self._sessions = None if source.requests is None else deque(sessions)
        if self._sessions is not None:
            self._unsent_bits = 0.0
        self._finite = np.isfinite(self._unsent_bits)

    def in_interval(self, row: int, duration_s: float, most_bps: float) -> tuple[float, bool]:
        """Return the demanded rate in an interval in bit/s, and whether the source has data to send throughout it.

        ``row`` is the interval's number; ``most_bps`` is the limit of the pair, which a greedy source demands.
        """
        if self._sessions is not None:
            had_bits = self._unsent_bits > 0
            while self._sessions and self._sessions[0][0] < self._end_s[row]:
                # An answer takes whole packets: -(-a // b) rounds up.
                packets = sum(-(-octets // TCP_PAYLOAD_BYTES) for octets in self._sessions.popleft()[1])
                self._unsent_bits += packets * TCP_WIRE_BYTES * 8.0
            unsent_bps = self._unsent_bits / duration_s
            return min(most_bps, unsent_bps), had_bits and unsent_bps >= most_bps
        source_bps = (most_bps if self._rate_bps is None else float(self._rate_bps)) * self._part[row]
        return min(source_bps, self._unsent_bits / duration_s), bool(self._part[row] > 0.999 and self._unsent_bits > 0)

    def consume(self, bits: float) -> None:
        """Subtract the bits that the oracle delivered, of a source with a finite amount."""
        if self._finite:
            self._unsent_bits -= min(bits, self._unsent_bits)


class _Capacities:
    """The capacities that a scenario's pairs share: the VNs' limits, and with some promises links too.

    ``sender`` and ``receiver`` (pairs,) are indices into ``fabric().vns()``.
    """

    def __init__(self, scenario: Scenario) -> None:
        fabric = scenario.fabric()
        vns = [(vn.vlan_vid, vn.pn.number) for vn in fabric.vns()]
        self._vns, self._promise = len(vns), scenario.promise
        self.sender = np.array([vns.index((vid, sender)) for vid, sender, _ in scenario.pairs], dtype=np.int64)
        self.receiver = np.array([vns.index((vid, receiver)) for vid, _, receiver in scenario.pairs], dtype=np.int64)
        # The path of a pair has two limits: its sender's send limit, then, numbered after those, its receiver's.
        pair_ends = np.stack([self.sender, self.receiver + self._vns], axis=1)
        self._paths = FlowPaths(np.arange(0, pair_ends.size + 1, 2), pair_ends.ravel(), 2 * self._vns)
        self._link_bps, self._links = links_of(fabric, [(sender, receiver) for _, sender, receiver in scenario.pairs])
        self._last: tuple[bytes, FloatArray] | None = None

    def rates_bps(self, promised: Promised, row: int, demand_bps: FloatArray) -> FloatArray:
        """Return the rates of the pairs in an interval, (pairs,); an interval that is as the last is not solved again.

        ``row`` is the interval's number; ``demand_bps`` (pairs,).
        """
        columns = (
            promised.send_bps[row],
            promised.receive_bps[row],
            promised.send_ceiling_bps[row],
            promised.receive_ceiling_bps[row],
            promised.weight[row],
        )
        key = np.concatenate([*columns, demand_bps]).tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, self._solve(columns, demand_bps)
        return self._last[1]

    def _solve(self, columns: tuple[FloatArray, ...], demand_bps: FloatArray) -> FloatArray:
        """Return the ideal rates, (pairs,), for one set of limits and demands, by the scenario's promise.

        ``columns`` are those of ``rates_bps``; ``demand_bps`` (pairs,).
        """
        send_bps, receive_bps, send_ceiling_bps, receive_ceiling_bps, weight = columns  # (VNs,) each
        if self._promise == "limits":
            limits_bps = np.concatenate([send_bps, receive_bps])
            return max_min(self._paths, limits_bps, demand_bps, np.ones(len(demand_bps))).rate_bps
        if self._promise == "ceilings":
            constraints = Constraints.build(
                send_bps, receive_bps, self._link_bps, send_ceiling_bps, receive_ceiling_bps
            )
            # The links of pair p are offsets[p]:offsets[p + 1] of all paths, joined.
            offsets = np.concatenate([[0], np.cumsum([len(path) for path in self._links])]).astype(np.int64)
            paths = constraints.paths(self.sender, self.receiver, offsets, np.concatenate(self._links))
            return allocate_network(paths, constraints, demand_bps, weight[self.sender])[0]
        # "entities": ceilings count as links of their own, after the fabric's links.
        capacity_bps = np.concatenate([self._link_bps, send_ceiling_bps, receive_ceiling_bps])
        first_send, first_receive = len(self._link_bps), len(self._link_bps) + self._vns
        links = [
            np.array([*path, first_send + sender, first_receive + receiver])
            for path, sender, receiver in zip(self._links, self.sender, self.receiver, strict=True)
        ]
        return entity_rates(links, self.sender, weight, capacity_bps, demand_bps)


def links_of(fabric: Fabric, ends: list[tuple[int, int]]) -> tuple[FloatArray, list[IntArray]]:
    """Return the capacity of each link, (links,), and the link rows of the shortest path between each pair of PNs.

    Each direction is a link of its own: first the links from PNs, then the links to PNs, then the core links.
    """
    row_of = {pn.number: row for row, pn in enumerate(fabric.pns)}
    access_bps = [float(pn.link_rate_bps) for pn in fabric.pns]
    core: dict[tuple[str, str], int] = {}
    core_bps: list[float] = []
    for link in fabric.core_links:
        for direction in ((link.switch_a, link.switch_b), (link.switch_b, link.switch_a)):
            if direction not in core:
                core[direction] = 2 * len(row_of) + len(core_bps)
                core_bps.append(float(link.rate_bps))
    paths = []
    for sender, receiver in ends:
        hops = _shortest_path(core, fabric.pn(sender).switch, fabric.pn(receiver).switch)
        paths.append(np.array([row_of[sender], *(core[hop] for hop in hops), len(row_of) + row_of[receiver]]))
    return np.array([*access_bps, *access_bps, *core_bps]), paths


def _shortest_path(core: dict[tuple[str, str], int], start: str, end: str) -> list[tuple[str, str]]:
    """Return the core links, (from, to) switches in order, of the path with the fewest links.

    A breadth-first search.
    """
    previous: dict[str, str] = {start: start}
    to_visit = deque([start])
    while to_visit and end not in previous:
        switch = to_visit.popleft()
        for near, far in core:
            if near == switch and far not in previous:
                previous[far] = switch
                to_visit.append(far)
    path = []
    while end != start:
        path.append((previous[end], end))
        end = previous[end]
    return path[::-1]


def _repeated(values: list[float | None], intervals: int) -> FloatArray:
    """Return the values as a row for each interval, (intervals, VNs); NaN for None."""
    row = np.array([np.nan if value is None else float(value) for value in values])
    return np.tile(row, (intervals, 1))


def _part_on(spans: tuple[Span, ...], time_s: FloatArray) -> FloatArray:
    """Return the part of each interval, 0 to 1, (intervals,), that lies in one of the spans."""
    interval_start_s, interval_end_s = time_s[:-1], time_s[1:]
    part = np.zeros(len(interval_start_s))
    for span_start_s, span_end_s in spans:
        part += np.maximum(np.minimum(interval_end_s, span_end_s) - np.maximum(interval_start_s, span_start_s), 0.0)
    return part / (interval_end_s - interval_start_s)
