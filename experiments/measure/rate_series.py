"""From counter samples to the rates and figures of an experiment. Pure functions on arrays.

Two rates are distinguished. *Wire* rate: tagged Ethernet frames as the edge switch's port, meters and queues count them
(without preamble and FCS). *Goodput*: what TCP delivers to its user.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.measure.frame_sizes import TCP_HEADERS_BYTES, TCP_PAYLOAD_BYTES, TCP_WIRE_BYTES, VLAN_TAG_BYTES

FloatArray = NDArray[np.float64]

RECOVERED_SHARE = 0.95  # of what the limit allows: from here on DETS's guarantee counts as kept
START_SHARE = 0.05  # of its limit: from here on an aggressor counts as sending


class MeasurementError(RuntimeError):
    """A run had too little to measure: too few samples, or traffic that never arrived."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Counters of one interface, (n,) each, of untagged frames; ``time_s`` is on the monotonic clock."""

    time_s: FloatArray
    sent_bytes: FloatArray
    packets: FloatArray


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates between samples, (n-1,) each; row i is the time from ``start_s[i]`` to ``end_s[i]``."""

    start_s: FloatArray
    end_s: FloatArray
    wire_bps: FloatArray
    tcp_goodput_bps: FloatArray

    def within(self, window: Window) -> NDArray[np.bool_]:
        """Return which rows lie wholly in a window."""
        return (self.start_s >= window.start_s) & (self.end_s <= window.end_s)


@dataclass(frozen=True, slots=True)
class Window:
    """A span of monotonic time."""

    start_s: float
    end_s: float


def read_samples(path: Path, interface: str) -> Samples:
    """Read one interface of a sampler's file; MeasurementError if it is missing or has no two samples."""
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    if len(rows) < 3 or f"{interface}_bytes" not in rows[0]:
        raise MeasurementError(f"{path}: no two samples of {interface}")
    column = rows[0].index(f"{interface}_bytes")
    table = np.array([[int(row[0]), int(row[column]), int(row[column + 1])] for row in rows[1:]], dtype=np.int64)
    return Samples(table[:, 0] / 1e9, table[:, 1].astype(np.float64), table[:, 2].astype(np.float64))


def rates_of(samples: Samples) -> Rates:
    """Return the rates between consecutive samples, each over the time that really passed."""
    time_s = samples.time_s
    passed_s = np.diff(time_s)
    sent, packets = np.diff(samples.sent_bytes), np.diff(samples.packets)
    wire_bps = (sent + VLAN_TAG_BYTES * packets) * 8 / passed_s
    goodput_bps = np.maximum(sent - TCP_HEADERS_BYTES * packets, 0.0) * 8 / passed_s
    return Rates(time_s[:-1], time_s[1:], wire_bps, goodput_bps)


def goodput_limit_bps(limit_bps: float) -> float:
    """Return what a limit on the wire rate of tagged frames leaves for TCP's payload: 1448 of 1518 bytes."""
    return limit_bps * TCP_PAYLOAD_BYTES / TCP_WIRE_BYTES


def mean_over(rates: Rates, values: FloatArray, window: Window) -> float:
    """Return the time-weighted mean of a column of ``rates`` over a window; MeasurementError if no row lies in it."""
    rows = rates.within(window)
    if not rows.any():
        raise MeasurementError(f"no samples between {window.start_s:.3f} and {window.end_s:.3f} s")
    weight = (rates.end_s - rates.start_s)[rows]
    return float(np.average(values[rows], weights=weight))


def longest_run(flags: Iterable[bool]) -> int:
    """Return the length of the longest run of true values."""
    longest = run = 0
    for flag in flags:
        run = run + 1 if flag else 0
        longest = max(longest, run)
    return longest


def recovery_intervals(below: NDArray[np.bool_]) -> int | None:
    """Return how many intervals pass before the first two in a row that are not below.

    One good interval between bad ones is no recovery. None for a column that never recovers.
    """
    twice = ~(below[:-1] | below[1:])
    return int(np.argmax(twice)) if twice.any() else None


def first_above(rates: Rates, values: FloatArray, threshold: float, window: Window) -> float:
    """Return when a column first exceeds a threshold in a window; MeasurementError if it never does."""
    rows = np.flatnonzero(rates.within(window) & (values > threshold))
    if rows.size == 0:
        raise MeasurementError(f"nothing above {threshold:g} between {window.start_s:.3f} and {window.end_s:.3f} s")
    return float(rates.start_s[rows[0]])


def isolation_figures(
    victim: Rates, aggressor: Rates, before: Window, blast: Window, victim_limit_bps: int, aggressor_limit_bps: int
) -> dict[str, float | int | None]:
    """Return the figures of a victim (TCP) and an aggressor (UDP) that share a receiving port.

    ``before`` is without the aggressor. ``blast`` begins when the aggressor's sources are started: intervals of the
    victim are counted from there. Means "during" begin with the first interval in which the aggressor is received, so
    that the start of its processes does not dilute them; the victim's transient is in them.
    """
    allowed_bps = goodput_limit_bps(victim_limit_bps)
    goodput_bps = victim.tcp_goodput_bps
    start_s = first_above(aggressor, aggressor.wire_bps, START_SHARE * aggressor_limit_bps, blast)
    during = Window(start_s, blast.end_s)
    below = goodput_bps < RECOVERED_SHARE * allowed_bps
    return {
        "victim_limit_bps": victim_limit_bps,
        "victim_goodput_limit_bps": allowed_bps,
        "victim_goodput_bps_before": mean_over(victim, goodput_bps, before),
        "victim_goodput_bps_during": mean_over(victim, goodput_bps, during),
        "victim_intervals_below_95_percent": longest_run(below[victim.within(blast)]),
        "victim_intervals_below_95_percent_total": int(below[victim.within(blast)].sum()),
        "victim_recovery_intervals": recovery_intervals(below[victim.within(during)]),
        "victim_intervals_below_95_percent_before": longest_run(below[victim.within(before)]),
        "victim_intervals_below_95_percent_before_total": int(below[victim.within(before)].sum()),
        "intervals_before_blast": int(victim.within(before).sum()),
        "intervals_during_blast": int(victim.within(blast).sum()),
        "longest_interval_s": float((victim.end_s - victim.start_s).max()),
        "aggressor_limit_bps": aggressor_limit_bps,
        "aggressor_received_bps_during": mean_over(aggressor, aggressor.wire_bps, during),
    }
