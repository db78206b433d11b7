"""The measures of a run: pure functions on the columns of a ``ScenarioRun``. oracle.py has the ideal rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.evaluation.oracle import BoolArray, IntArray, Oracle, guarantees_over_time, oracle_of
from experiments.measure.frame_sizes import TCP_HEADERS_BYTES, VLAN_TAG_BYTES
from experiments.measure.rate_series import (
    RECOVERED_SHARE,
    Rates,
    Window,
    goodput_limit_bps,
    isolation_figures,
    longest_run,
)
from experiments.runs.scenario_run import FloatArray, ScenarioRun, owner_changes
from experiments.scenarios.traffic import Span

JAIN_WINDOW = 18  # intervals, one second: over less time rates follow TCP's sawtooth
FAR_BELOW = 0.80  # of the oracle's rate: a receiver with less counts as idle
AROUND_INTERVALS = 60  # before and after the kill of a controller, 3.3 s each
ABOVE_LIMIT = 1.05  # of the limit: more than rounding and a late frame
SETTLED_WITHIN = 0.05  # of the final value
SETTLED_FOR = 5  # intervals in a row
PERCENTILES = (50, 90, 99)

Figures = dict[str, Any]
"""Measures by name, as docs/experiments.md lists them; None if a run does not have the measured quantity."""


def measures(run: ScenarioRun, oracle: Oracle | None = None) -> Figures:
    """Return all measures of a run, except those of ``isolation_measures``; ``oracle`` None: it is computed."""
    oracle = oracle or oracle_of(run)
    figures = _measures(run, oracle)
    sent = run.sent_packets.sum()
    figures["lost_share"] = float(run.lost_packets.sum() / sent) if sent else 0.0
    tcp = [number for number, source in enumerate(run.scenario.sources) if source.protocol == "tcp"]
    figures["tcp_retransmitted"] = float(run.lost_packets[tcp].sum())
    figures["tcp_retransmitted_share"] = float(run.lost_packets[tcp].sum() / max(run.sent_packets[tcp].sum(), 1.0))
    if "notifications" in run.notes:  # on the model, under a controller
        figures["notifications"] = sum(run.notes["notifications"].values())
        figures["notified_receivers"] = len(run.notes["notifications"])
        drops = (f"queue_drops_{kind}_bps" for kind in ("worst", "settled", "mean"))
        figures |= {name: run.notes.get(name) for name in drops}
        pairs = len(run.scenario.pairs)
        figures["meter_mods_per_s_and_pair"] = run.notes["meter_mods"] / run.scenario.duration_s / pairs
    return {**figures, **_completions(run), **_latencies(run, (0.0, run.scenario.duration_s))}


def phase_measures(run: ScenarioRun, oracle: Oracle | None = None) -> dict[str, Figures]:
    """Return the measures of each phase of the scenario by its name."""
    oracle = oracle or oracle_of(run)
    return {
        name: {**_measures(*within(run, oracle, span)), **_latencies(run, span)}
        for name, span in run.scenario.phases.items()
    }


def isolation_measures(run: ScenarioRun) -> Figures:
    """Return how the first VLAN's TCP fares while the second VLAN sends UDP; {} for a scenario without ``isolation``.

    If a controller was killed, TCP's goodput around the kill and the new owners of its switches are included. Raises
    MeasurementError if the UDP never arrived.
    """
    scenario = run.scenario
    if scenario.isolation is None:
        return {}
    vids = list(scenario.limits)[:2]
    receivers = [next(receiver for receiver in run.receivers if receiver[0] == vid) for vid in vids]
    limits_bps = [scenario.limits[vid].receive_bps for vid in vids]
    victim, aggressor = (rates_at(run, receiver) for receiver in receivers)
    before, blast = (Window(*scenario.phases[name]) for name in scenario.isolation)
    return {**isolation_figures(victim, aggressor, before, blast, *limits_bps), **_kill_measures(run)}


def _kill_measures(run: ScenarioRun) -> Figures:
    """Return TCP's goodput around a controller's kill, if there was one, and the new owners of its switches."""
    killed_at_s = run.notes.get("killed_at_s")
    if killed_at_s is None:
        return {}
    victim, (_, limits) = rates_at(run, run.receivers[0]), next(iter(run.scenario.limits.items()))
    min_goodput_bps = RECOVERED_SHARE * goodput_limit_bps(limits.receive_bps)
    kill = int(np.searchsorted(victim.end_s, killed_at_s, side="right"))
    around = {"before": slice(max(kill - AROUND_INTERVALS, 0), kill), "after": slice(kill, kill + AROUND_INTERVALS)}
    figures: Figures = {"killed": run.notes["killed"], "out_of_control_s": run.notes["out_of_control_s"]}
    figures["new_owners"] = [f"{switch} by {owner}" for switch, _, owner in owner_changes(run)]
    for when, rows in around.items():
        goodput_bps = victim.tcp_goodput_bps[rows]
        figures[f"least_goodput_bps_{when}_kill"] = float(goodput_bps.min())
        figures[f"most_goodput_bps_{when}_kill"] = float(goodput_bps.max())
        figures[f"intervals_below_{when}_kill"] = int((goodput_bps < min_goodput_bps).sum())
    return figures


def rates_at(run: ScenarioRun, receiver: tuple[int, int]) -> Rates:
    """Return a receiver's rates in each interval; ``receiver`` is (VLAN, PN).

    The goodput is right if all traffic was TCP.
    """
    column, duration_s = run.receivers.index(receiver), np.diff(run.time_s)
    bits, packets = run.received_bits[:, column], run.received_packets[:, column]
    payload_bits = np.maximum(bits - 8 * (TCP_HEADERS_BYTES + VLAN_TAG_BYTES) * packets, 0.0)
    return Rates(run.time_s[:-1], run.time_s[1:], bits / duration_s, payload_bits / duration_s)


def within(run: ScenarioRun, oracle: Oracle, span: Span) -> tuple[ScenarioRun, Oracle]:
    """Return the part of a run and its oracle whose intervals lie in ``span``, (begin, end) seconds of the traffic."""
    rows = np.flatnonzero((run.time_s[:-1] >= span[0] - 1e-3) & (run.time_s[1:] <= span[1] + 1e-3))
    return run.between(rows[0], rows[-1]), Oracle(oracle.rate_bps[rows], oracle.demand_bps[rows], oracle.on[rows])


def _measures(run: ScenarioRun, oracle: Oracle) -> Figures:
    """Return the measures of one span of a run by name; None for a measure that does not apply.

    Rates and bits are (intervals, receivers), those of pairs (intervals, pairs); ``duration_s`` (intervals, 1).
    Received bits above the limit do not count as useful. ``full`` (intervals,) marks intervals in which the oracle
    fills the first receiver's limit.
    """
    duration_s = np.diff(run.time_s)[:, None]
    sums_by_receiver = _sums_by_receiver(run)
    limit_bps = _max_receive_bps(run)
    oracle_bits = sums_by_receiver(oracle.rate_bps * duration_s)
    useful_bits = np.minimum(run.received_bits, limit_bps * duration_s)
    delivered_bps = pair_rates(run)
    demanded = oracle_bits > 0
    missed = demanded & (useful_bits < RECOVERED_SHARE * oracle_bits)
    backlogged = oracle.on & (oracle.demand_bps > oracle.rate_bps * (1 + 1e-9))
    far_below = demanded & (useful_bits < FAR_BELOW * oracle_bits)
    unused_bps, unmet_bps, idle_bps = _probing(run, oracle, delivered_bps, sums_by_receiver, limit_bps)
    active = oracle.demand_bps > 0
    grant_means_bps, grant_spreads_bps = grant_statistics(run, active)
    full = sums_by_receiver(oracle.rate_bps)[:, 0] > RECOVERED_SHARE * limit_bps[:, 0]
    first_received_bps = (run.received_bits / duration_s)[:, 0]
    return {
        "use_of_oracle": float(useful_bits.sum() / oracle_bits.sum()) if oracle_bits.sum() else None,
        "received_bps": float(run.received_bits.sum() / duration_s.sum()),
        "received_bps_by_receiver": (run.received_bits.sum(axis=0) / duration_s.sum()).tolist(),
        **_by_sender(run, delivered_bps, oracle),
        "above_limit_share": float(np.mean(run.received_bits > ABOVE_LIMIT * limit_bps * duration_s)),
        "oracle_distance": float((np.abs(run.received_bits - oracle_bits) / duration_s / limit_bps)[demanded].mean())
        if demanded.any()
        else None,
        "jain_backlogged": _jain(delivered_bps, oracle, backlogged, run),
        "missed_intervals": int(missed.sum()),
        "missed_share": float(missed.sum() / demanded.sum()) if demanded.any() else None,
        "missed_longest": max(longest_run(column) for column in missed.T),
        "idle_longest": max(longest_run(column) for column in far_below.T),
        "probing_cost": float(np.minimum(np.minimum(unused_bps, unmet_bps), idle_bps).sum() / limit_bps.sum()),
        "grant_mean_bps": _mean(grant_means_bps),
        "grant_spread": _mean(grant_spreads_bps / grant_means_bps),
        "received_swing": float(np.std(first_received_bps[full]) / limit_bps[full, 0].mean()) if full.any() else None,
        "grant_unrest": _unrest(run.granted_bps, active),
        "settled_after": settled_after(run, oracle),
    }


def pair_rates(run: ScenarioRun) -> FloatArray:
    """Return the delivered rate of each pair, (intervals, pairs) in bit/s."""
    pairs = run.scenario.pairs
    pair_bits = np.zeros((len(run.delivered_bits), len(pairs)))
    for number, source in enumerate(run.scenario.sources):
        pair_bits[:, pairs.index(source.pair)] += run.delivered_bits[:, number]
    return pair_bits / np.diff(run.time_s)[:, None]


def grant_statistics(run: ScenarioRun, active: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation over the grants of the active pairs, in bit/s, (intervals,) each.

    ``active`` (intervals, pairs). NaN for an interval without an active pair that has a grant.
    """
    granted_bps = np.where(active & np.isfinite(run.granted_bps), run.granted_bps, np.nan)
    count = np.isfinite(granted_bps).sum(axis=1)
    sums_bps = np.nansum(granted_bps, axis=1)
    means_bps = np.divide(sums_bps, count, out=np.full(len(count), np.nan), where=count > 0)
    squares = np.nansum((granted_bps - means_bps[:, None]) ** 2, axis=1)
    spreads_bps = np.sqrt(np.divide(squares, count, out=np.full(len(count), np.nan), where=count > 0))
    return means_bps, spreads_bps


def settled_after(run: ScenarioRun, oracle: Oracle) -> int | None:
    """Return the number of intervals until the grants of all backlogged pairs are near their final values.

    They are near if they differ by at most SETTLED_WITHIN in SETTLED_FOR intervals in a row. The final value of a grant
    is its mean over the last quarter of the run. Grants are judged instead of rates, because rates follow TCP's
    sawtooth. None if the grants do not settle, or there are none.
    """
    backlogged = oracle.on & (oracle.demand_bps > oracle.rate_bps * (1 + 1e-9))
    always_backlogged = backlogged.mean(axis=0) > 1 - SETTLED_WITHIN  # here the tolerance is a part of the intervals
    granted_bps = run.granted_bps[:, always_backlogged]
    if not granted_bps.size or not np.isfinite(granted_bps).all():
        return None
    final_bps = granted_bps[-max(len(granted_bps) // 4, 1) :].mean(axis=0)
    near_final = (np.abs(granted_bps - final_bps) <= SETTLED_WITHIN * final_bps).all(axis=1)
    for interval in range(len(near_final) - SETTLED_FOR + 1):
        if near_final[interval : interval + SETTLED_FOR].all():
            return interval
    return None


def _sums_by(column: IntArray, columns: int) -> Callable[[FloatArray], FloatArray]:
    """Return a function that sums columns of pairs, (intervals, pairs), to (intervals, columns).

    ``column`` (pairs,) is the column to which each pair is added.
    """

    def sums(values: FloatArray) -> FloatArray:
        totals = np.zeros((len(values), columns))
        np.add.at(totals.T, column, values.T)  # unlike +=, it adds up all pairs of a column
        return totals

    return sums


def _sums_by_receiver(run: ScenarioRun) -> Callable[[FloatArray], FloatArray]:
    """Return a function that sums columns of pairs, (intervals, pairs), to (intervals, receivers)."""
    receivers = run.receivers
    column = np.array([receivers.index((vid, receiver)) for vid, _, receiver in run.scenario.pairs])
    return _sums_by(column, len(receivers))


def sums_by_sender(run: ScenarioRun) -> Callable[[FloatArray], FloatArray]:
    """Return a function that sums columns of pairs, (intervals, pairs), to (intervals, sending VNs)."""
    column = np.array([run.senders.index((vid, sender)) for vid, sender, _ in run.scenario.pairs])
    return _sums_by(column, len(run.senders))


def _by_sender(run: ScenarioRun, delivered_bps: FloatArray, oracle: Oracle) -> Figures:
    """Return the measures of each sending VN, in the order of ``run.senders``.

    They are its rate, its rate over the oracle's rate, and the standard deviation of its rate over intervals.
    ``delivered_bps`` (intervals, pairs).
    """
    sums, duration_s = sums_by_sender(run), np.diff(run.time_s)[:, None]
    delivered_bits, oracle_bits = ((sums(rates) * duration_s).sum(axis=0) for rates in (delivered_bps, oracle.rate_bps))
    by_sender = zip(delivered_bits.tolist(), oracle_bits.tolist(), strict=True)
    parts = [delivered / ideal if ideal else None for delivered, ideal in by_sender]
    return {
        "delivered_bps_by_sender": (delivered_bits / duration_s.sum()).tolist(),
        "part_of_oracle_by_sender": parts,
        "swing_bps_by_sender": sums(delivered_bps).std(axis=0).tolist(),
    }


def _max_receive_bps(run: ScenarioRun) -> FloatArray:
    """Return the maximum rate of each receiver, (intervals, receivers): its limit, or its ceiling if it has one."""
    vns = [(vn.vlan_vid, vn.pn.number) for vn in run.scenario.fabric().vns()]
    most_bps = guarantees_over_time(run.scenario, run.time_s).most_receive_bps
    return most_bps[:, [vns.index(receiver) for receiver in run.receivers]]


def _probing(
    run: ScenarioRun,
    oracle: Oracle,
    delivered_bps: FloatArray,
    sums_by_receiver: Callable[[FloatArray], FloatArray],
    limit_bps: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return three rates of each receiver: granted but unused, demanded but not delivered, and left of its limit.

    Each is (intervals, receivers) in bit/s. The smallest of the three is capacity that one pair was granted in vain
    while another pair needed it: the cost of probing. ``delivered_bps`` is (intervals, pairs), ``limit_bps``
    (intervals, receivers); a pair without a finite grant was granted nothing.
    """
    granted_bps = np.where(np.isfinite(run.granted_bps), run.granted_bps, 0.0)
    unused_bps = sums_by_receiver(np.maximum(granted_bps - delivered_bps, 0.0))
    unmet_bps = sums_by_receiver(np.where(oracle.on, np.maximum(oracle.demand_bps - delivered_bps, 0.0), 0.0))
    idle_bps = np.maximum(limit_bps - run.received_bits / np.diff(run.time_s)[:, None], 0.0)
    return unused_bps, unmet_bps, idle_bps


def _jain(delivered_bps: FloatArray, oracle: Oracle, backlogged: BoolArray, run: ScenarioRun) -> float | None:
    """Return Jain's index of the backlogged pairs or senders, as the mean over windows of a second.

    In a window only those count that are backlogged during all of it. ``delivered_bps`` and ``backlogged`` are
    (intervals, pairs).

    With the promise ``limits`` the index is over the pairs of each receiver, and rates are not divided (``fair_bps`` is
    1). With ceilings or entities it is over the sending VNs, each rate divided by the oracle's rate (as in Jain, Chiu
    and Hawe 1984, section 3), because VNs with other weights, and behind other bottlenecks, have other fair rates.
    """
    indices = []
    if run.scenario.promise == "limits":  # columns are pairs
        group_of_column = np.array([run.receivers.index((vid, receiver)) for vid, _, receiver in run.scenario.pairs])
        fair_bps = np.ones(delivered_bps.shape)
    else:  # columns are sending VNs
        by_sender = sums_by_sender(run)
        group_of_column = np.zeros(len(run.senders), dtype=np.int64)
        delivered_bps, fair_bps = by_sender(delivered_bps), by_sender(oracle.rate_bps)
        backlogged = by_sender(backlogged.astype(np.float64)) > 0
    for start in range(0, len(delivered_bps) - JAIN_WINDOW + 1, JAIN_WINDOW):
        rows = slice(start, start + JAIN_WINDOW)
        always_backlogged = backlogged[rows].all(axis=0) & (fair_bps[rows] > 0).all(axis=0)
        for group in range(int(group_of_column.max()) + 1):
            members = always_backlogged & (group_of_column == group)
            shares = delivered_bps[rows].mean(axis=0)[members] / fair_bps[rows].mean(axis=0)[members]
            if len(shares) >= 2 and shares.any():
                indices.append(shares.sum() ** 2 / (len(shares) * (shares**2).sum()))
    return float(np.mean(indices)) if indices else None


def _completions(run: ScenarioRun) -> Figures:
    """Return the durations of file transfers, the end of the last, and the received rates until then.

    {} without files. A transfer that did not end has a duration of NaN.
    """
    rows = _transfers(run, requests=False)
    if not len(rows):
        return {}
    durations_s = rows[:, 2] - rows[:, 1]
    done = ~np.isnan(durations_s)
    # A job ends with the computation of its last reduce task.
    last_s = float(rows[:, 2].max()) + (0.0 if run.scenario.job is None else run.scenario.job.reduce_s)
    last_row = min(int(np.searchsorted(run.time_s, last_s)), len(run.received_bits)) if done.all() else 0
    elapsed_s = float(run.time_s[last_row] - run.time_s[0])
    return {
        "transfers": len(durations_s),
        "transfers_done": int(done.sum()),
        "completion_mean_s": float(durations_s[done].mean()) if done.any() else None,
        "completion_worst_s": float(durations_s.max()) if done.all() else None,
        "transferred_after_s": last_s if done.all() else None,
        "received_bps_by_receiver_until_transferred": (run.received_bits[:last_row].sum(axis=0) / elapsed_s).tolist()
        if last_row
        else None,
        "completions_s": [None if np.isnan(seconds) else float(seconds) for seconds in durations_s],
    }


def _latencies(run: ScenarioRun, span: Span) -> Figures:
    """Return the latencies of the web requests made in a span; {} without requests.

    A missing answer counts as infinitely late: a percentile that falls among missing answers is None.
    """
    rows = _transfers(run, requests=True)
    rows = rows[(rows[:, 1] >= span[0]) & (rows[:, 1] < span[1])]
    if not len(rows):
        return {}
    latencies_s = np.sort(rows[:, 2] - rows[:, 1])  # NaN comes last
    answered = int((~np.isnan(latencies_s)).sum())
    count = len(latencies_s)
    by_percent = {percent: latencies_s[min(int(np.ceil(percent / 100 * count)), count) - 1] for percent in PERCENTILES}
    return {
        "requests": count,
        "requests_answered": answered,
        "answers_per_s": answered / (span[1] - span[0]),
        "latency_mean_s": float(latencies_s[:answered].mean()) if answered else None,
        **{f"latency_p{percent}_s": None if np.isnan(at_s) else float(at_s) for percent, at_s in by_percent.items()},
    }


def _transfers(run: ScenarioRun, *, requests: bool) -> FloatArray:
    """Return the rows of ``ScenarioRun.transfers`` (source, begun, ended) that are web answers, or those of files."""
    is_web_source = np.array([source.requests is not None for source in run.scenario.sources])
    rows: FloatArray = run.transfers[is_web_source[run.transfers[:, 0].astype(np.int64)] == requests]
    return rows


def _unrest(granted_bps: FloatArray, active: BoolArray) -> float | None:
    """Return the mean relative change of a grant from one interval to the next; None without active pairs."""
    positive_bps = np.where(active & np.isfinite(granted_bps) & (granted_bps > 0), granted_bps, np.nan)
    changes = np.abs(np.diff(positive_bps, axis=0)) / positive_bps[:-1]
    return _mean(changes)


def _mean(values: FloatArray) -> float | None:
    """Return the mean of the finite values; None without any."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def confidence(values: list[float]) -> tuple[float, float]:
    """Return mean and half the width of its 95 % confidence interval (Student's t); NaN for fewer than two values."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, float("nan")
    quantile = _T95[min(len(values) - 1, len(_T95)) - 1]
    return mean, quantile * float(np.std(values, ddof=1)) / len(values) ** 0.5


# Student's t, two-sided 95 %, for 1, 2, ... degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
