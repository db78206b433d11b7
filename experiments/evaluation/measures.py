"""What a run is judged by. Pure functions on the columns of a ``ScenarioRun``.

The yardstick is an *oracle*: an allocator that knows in every interval what each source has to send, and shares the
receivers' and senders' limits max-min fairly among those. It has no delay and wastes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.allocation.max_min import FlowPaths, max_min
from experiments.evaluation.run import FloatArray, ScenarioRun
from experiments.measure.frames import TCP_HEADERS_BYTES, VLAN_TAG_BYTES
from experiments.measure.series import ENOUGH, Rates, Window, isolation_figures, longest_run
from experiments.scenarios.scenario import LimitChange, Scenario, Span

JAIN_WINDOW = 18  # intervals, one second: rates of shorter time are those of TCP's sawtooth
ABOVE_LIMIT = 1.05  # of the limit: more than rounding and a frame that came late
SETTLED_WITHIN = 0.05
SETTLED_FOR = 5  # intervals in a row

BoolArray = NDArray[np.bool_]
Figures = dict[str, Any]
"""Measures by name; None where a run does not have what is measured."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """What the oracle would deliver, and what there was to send: (intervals, pairs), rates in bit/s."""

    rate_bps: FloatArray
    demand_bps: FloatArray
    on: BoolArray
    """whether a pair had something to send during the whole interval"""


def limits_by_time(scenario: Scenario, time_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what each VN may send and receive in each interval, (intervals, VNs of ``fabric().vns()``) each."""
    vns = {(vn.vlan_vid, vn.pn.number): n for n, vn in enumerate(scenario.fabric().vns())}
    limits = [scenario.limits_of(vn) for vn in scenario.fabric().vns()]
    send = np.tile(np.array([limit.send_bps for limit in limits], dtype=np.float64), (len(time_s) - 1, 1))
    receive = np.tile(np.array([limit.receive_bps for limit in limits], dtype=np.float64), (len(time_s) - 1, 1))
    for event in scenario.events:
        if isinstance(event, LimitChange):
            column, later = vns[event.vlan_vid, event.pn], time_s[:-1] >= event.at_s
            for table, limit_bps in ((send, event.send_bps), (receive, event.receive_bps)):
                if limit_bps is not None:
                    table[later, column] = limit_bps
    return send, receive


def oracle_of(run: ScenarioRun) -> Oracle:
    """Return what one who knows all demands would have delivered in each interval of a run."""
    scenario, time_s = run.scenario, run.time_s
    vns = [(vn.vlan_vid, vn.pn.number) for vn in scenario.fabric().vns()]
    send_bps, receive_bps = limits_by_time(scenario, time_s)
    pairs, passed_s = scenario.pairs, np.diff(time_s)
    ends = np.array([[vns.index((vid, s)), len(vns) + vns.index((vid, r))] for vid, s, r in pairs], dtype=np.int64)
    paths = FlowPaths(np.arange(0, 2 * len(pairs) + 1, 2), ends.ravel(), 2 * len(vns))
    parts = np.stack([_part_on(spans, time_s) for spans in scenario.timeline(run.seed)], axis=1)
    most_bps = np.minimum(send_bps[:, ends[:, 0]], receive_bps[:, ends[:, 1] - len(vns)])
    column = [pairs.index(source.pair) for source in scenario.sources]
    left_bits = np.array([_file_bits(source.octets) for source in scenario.sources])
    demand_bps, rate_bps = np.zeros((len(passed_s), len(pairs))), np.zeros((len(passed_s), len(pairs)))
    on = np.zeros(demand_bps.shape, dtype=np.bool_)
    for row in range(len(passed_s)):
        for number, source in enumerate(scenario.sources):
            pair = column[number]
            wanted_bps = most_bps[row, pair] if source.rate_bps is None else float(source.rate_bps)
            wanted_bps = min(wanted_bps * parts[row, number], left_bits[number] / passed_s[row])
            demand_bps[row, pair] += wanted_bps
            on[row, pair] |= parts[row, number] > 0.999 and left_bits[number] > 0
        capacity_bps = np.concatenate([send_bps[row], receive_bps[row]])
        rate_bps[row] = max_min(paths, capacity_bps, demand_bps[row], np.ones(len(pairs))).rate_bps
        for number, source in enumerate(scenario.sources):
            if source.octets is not None:
                left_bits[number] -= min(rate_bps[row, column[number]] * passed_s[row], left_bits[number])
    return Oracle(rate_bps, demand_bps, on)


def measures(run: ScenarioRun, oracle: Oracle | None = None) -> Figures:
    """Return all measures of a run."""
    oracle = oracle or oracle_of(run)
    figures = _measures(run, oracle)
    sent = run.sent_packets.sum()
    figures["lost_share"] = float(run.lost_packets.sum() / sent) if sent else 0.0
    if len(run.transfers):
        took_s = run.transfers[:, 2] - run.transfers[:, 1]
        done = ~np.isnan(took_s)
        figures["transfers"], figures["transfers_done"] = len(took_s), int(done.sum())
        figures["completion_mean_s"] = float(took_s[done].mean()) if done.any() else None
        figures["completion_worst_s"] = float(took_s.max()) if done.all() else None
    return figures


def phase_measures(run: ScenarioRun, oracle: Oracle | None = None) -> dict[str, Figures]:
    """Return the measures of each phase of the scenario by its name."""
    oracle = oracle or oracle_of(run)
    return {name: _measures(*within(run, oracle, span)) for name, span in run.scenario.phases.items()}


def isolation_measures(run: ScenarioRun) -> Figures:
    """Return what the first VLAN's TCP keeps while the second sends UDP; nothing for a scenario without ``isolation``.

    Raises MeasurementError where the UDP never arrived.
    """
    scenario = run.scenario
    if scenario.isolation is None:
        return {}
    vids = list(scenario.limits)[:2]
    receivers = [next(receiver for receiver in run.receivers if receiver[0] == vid) for vid in vids]
    windows = [Window(*scenario.phases[name]) for name in scenario.isolation]
    limits_bps = [scenario.limits[vid].receive_bps for vid in vids]
    return dict(isolation_figures(*(rates_at(run, receiver) for receiver in receivers), *windows, *limits_bps))


def rates_at(run: ScenarioRun, receiver: tuple[int, int]) -> Rates:
    """Return what a receiver, (VLAN, PN), got in each interval; as goodput if all of it was TCP."""
    column, passed_s = run.receivers.index(receiver), np.diff(run.time_s)
    bits, packets = run.received_bits[:, column], run.received_packets[:, column]
    payload_bits = np.maximum(bits - 8 * (TCP_HEADERS_BYTES + VLAN_TAG_BYTES) * packets, 0.0)
    return Rates(run.time_s[:-1], run.time_s[1:], bits / passed_s, payload_bits / passed_s)


def within(run: ScenarioRun, oracle: Oracle, span: Span) -> tuple[ScenarioRun, Oracle]:
    """Return the part of a run whose intervals lie in a span."""
    rows = np.flatnonzero((run.time_s[:-1] >= span[0] - 1e-3) & (run.time_s[1:] <= span[1] + 1e-3))
    return run.between(rows[0], rows[-1]), Oracle(oracle.rate_bps[rows], oracle.demand_bps[rows], oracle.on[rows])


def _measures(run: ScenarioRun, oracle: Oracle) -> Figures:
    passed_s = np.diff(run.time_s)[:, None]
    by_receiver = _sums_by_receiver(run)
    limit_bps = _receive_limits(run)
    oracle_bits = by_receiver(oracle.rate_bps * passed_s)
    useful_bits = np.minimum(run.received_bits, limit_bps * passed_s)
    delivered_bps = pair_rates(run)
    wanted = oracle_bits > 0
    missed = wanted & (useful_bits < ENOUGH * oracle_bits)
    backlogged = oracle.on & (oracle.demand_bps > oracle.rate_bps * (1 + 1e-9))
    unused_bps, unmet_bps, idle_bps = _probing(run, oracle, delivered_bps, by_receiver, limit_bps)
    active = oracle.demand_bps > 0
    means_bps, spreads_bps = grant_statistics(run, active)
    full = by_receiver(oracle.rate_bps)[:, 0] > ENOUGH * limit_bps[:, 0]
    received_bps = (run.received_bits / passed_s)[:, 0]
    return {
        "use_of_oracle": float(useful_bits.sum() / oracle_bits.sum()) if oracle_bits.sum() else None,
        "received_bps": float(run.received_bits.sum() / passed_s.sum()),
        "received_bps_by_receiver": (run.received_bits.sum(axis=0) / passed_s.sum()).tolist(),
        "above_limit_share": float(np.mean(run.received_bits > ABOVE_LIMIT * limit_bps * passed_s)),
        "oracle_distance": float((np.abs(run.received_bits - oracle_bits) / passed_s / limit_bps)[wanted].mean())
        if wanted.any()
        else None,
        "jain_backlogged": _jain(delivered_bps, backlogged, run),
        "missed_intervals": int(missed.sum()),
        "missed_share": float(missed.sum() / wanted.sum()) if wanted.any() else None,
        "missed_longest": max(longest_run(column) for column in missed.T),
        "probing_cost": float(np.minimum(np.minimum(unused_bps, unmet_bps), idle_bps).sum() / limit_bps.sum()),
        "grant_mean_bps": _mean(means_bps),
        "grant_spread": _mean(spreads_bps / means_bps),
        "received_swing": float(np.std(received_bps[full]) / limit_bps[full, 0].mean()) if full.any() else None,
        "grant_unrest": _unrest(run.granted_bps, active),
        "settled_after": settled_after(run, oracle),
    }


def pair_rates(run: ScenarioRun) -> FloatArray:
    """Return what each pair delivered, (intervals, pairs) in bit/s."""
    pairs = run.scenario.pairs
    rates = np.zeros((len(run.delivered_bits), len(pairs)))
    for number, source in enumerate(run.scenario.sources):
        rates[:, pairs.index(source.pair)] += run.delivered_bits[:, number]
    return rates / np.diff(run.time_s)[:, None]


def grant_statistics(run: ScenarioRun, active: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of the grants of the active pairs in each interval; NaN where none has one."""
    granted = np.where(active & np.isfinite(run.granted_bps), run.granted_bps, np.nan)
    count = np.isfinite(granted).sum(axis=1)
    sums = np.nansum(granted, axis=1)
    means = np.divide(sums, count, out=np.full(len(count), np.nan), where=count > 0)
    squares = np.nansum((granted - means[:, None]) ** 2, axis=1)
    spreads = np.sqrt(np.divide(squares, count, out=np.full(len(count), np.nan), where=count > 0))
    return means, spreads


def settled_after(run: ScenarioRun, oracle: Oracle) -> int | None:
    """Return after how many intervals every backlogged sender's grant is within 5 % of where it ends, for 5 in a row.

    It ends at its mean over the last quarter. By grants, so that TCP's sawtooth does not count; None where it does not
    happen, or nobody grants.
    """
    backlogged = oracle.on & (oracle.demand_bps > oracle.rate_bps * (1 + 1e-9))
    throughout = backlogged.mean(axis=0) > 1 - SETTLED_WITHIN
    granted_bps = run.granted_bps[:, throughout]
    if not granted_bps.size or not np.isfinite(granted_bps).all():
        return None
    ends_bps = granted_bps[-max(len(granted_bps) // 4, 1) :].mean(axis=0)
    good = (np.abs(granted_bps - ends_bps) <= SETTLED_WITHIN * ends_bps).all(axis=1)
    for row in range(len(good) - SETTLED_FOR + 1):
        if good[row : row + SETTLED_FOR].all():
            return row
    return None


def _sums_by_receiver(run: ScenarioRun) -> Callable[[FloatArray], FloatArray]:
    """Return a function that adds up the columns of pairs, (intervals, pairs), by receiver."""
    receivers = run.receivers
    column = np.array([receivers.index((vid, receiver)) for vid, _, receiver in run.scenario.pairs])

    def sums(values: FloatArray) -> FloatArray:
        out = np.zeros((len(values), len(receivers)))
        np.add.at(out, (slice(None), column), values)
        return out

    return sums


def _receive_limits(run: ScenarioRun) -> FloatArray:
    vns = [(vn.vlan_vid, vn.pn.number) for vn in run.scenario.fabric().vns()]
    _, receive_bps = limits_by_time(run.scenario, run.time_s)
    return receive_bps[:, [vns.index(receiver) for receiver in run.receivers]]


def _probing(
    run: ScenarioRun,
    oracle: Oracle,
    delivered_bps: FloatArray,
    by_receiver: Callable[[FloatArray], FloatArray],
    limit_bps: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return, by interval and receiver: rate granted and not used, rate wanted and not had, limit not used."""
    granted = np.where(np.isfinite(run.granted_bps), run.granted_bps, 0.0)
    unused = by_receiver(np.maximum(granted - delivered_bps, 0.0))
    unmet = by_receiver(np.where(oracle.on, np.maximum(oracle.demand_bps - delivered_bps, 0.0), 0.0))
    idle = np.maximum(limit_bps - run.received_bits / np.diff(run.time_s)[:, None], 0.0)
    return unused, unmet, idle


def _jain(delivered_bps: FloatArray, backlogged: BoolArray, run: ScenarioRun) -> float | None:
    """Return Jain's index of those who want more than they get, mean over windows and receivers with two or more."""
    found = []
    receivers = np.array([run.receivers.index((vid, receiver)) for vid, _, receiver in run.scenario.pairs])
    for start in range(0, len(delivered_bps) - JAIN_WINDOW + 1, JAIN_WINDOW):
        rows = slice(start, start + JAIN_WINDOW)
        throughout = backlogged[rows].all(axis=0)
        for receiver in range(len(run.receivers)):
            rates = delivered_bps[rows].mean(axis=0)[throughout & (receivers == receiver)]
            if len(rates) >= 2 and rates.any():
                found.append(rates.sum() ** 2 / (len(rates) * (rates**2).sum()))
    return float(np.mean(found)) if found else None


def _unrest(granted_bps: FloatArray, active: BoolArray) -> float | None:
    """Return by how much a grant changes from interval to interval, as a part of it, on average."""
    known_bps = np.where(active & np.isfinite(granted_bps) & (granted_bps > 0), granted_bps, np.nan)
    changes = np.abs(np.diff(known_bps, axis=0)) / known_bps[:-1]
    return _mean(changes)


def _mean(values: FloatArray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _part_on(spans: tuple[Span, ...], time_s: FloatArray) -> FloatArray:
    """Return the part of each interval that lies in one of the spans."""
    begin, end = time_s[:-1], time_s[1:]
    part = np.zeros(len(begin))
    for begin_s, end_s in spans:
        part += np.maximum(np.minimum(end, end_s) - np.maximum(begin, begin_s), 0.0)
    return part / (end - begin)


def _file_bits(octets: int | None) -> float:
    return np.inf if octets is None else octets * 8.0 * 1518 / 1448


def confidence(values: list[float]) -> tuple[float, float]:
    """Return mean and half the width of its 95 % confidence interval (Student's t); NaN for fewer than two values."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, float("nan")
    quantile = _T95[min(len(values) - 1, len(_T95)) - 1]
    return mean, quantile * float(np.std(values, ddof=1)) / len(values) ** 0.5


# Student's t, two-sided 95 %, for 1, 2, ... degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
