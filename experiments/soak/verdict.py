"""From a soak's record to its figures and targets: which guarantee was violated, and when. Pure functions.

Two guarantees are judged, in windows of WINDOW_S:

- *ceiling*: no VN receives more than its receive limit, controller or not;
- *floor*: the judged VN, whose demand exceeds its limit all the time, gets its limit: WINDOW_FLOOR of it in each window
  and FLOOR of it over all of them.

A window that touches a stated transient (docs/experiments.md) is not judged, nor is one in which the machine was busy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.bench.harness import Target
from experiments.machine.cpu_usage import BUSY_IDLE_SHARE
from experiments.measure.rate_series import Rates, goodput_limit_bps
from experiments.soak.ledger import Ledger, Sample, Transient
from experiments.soak.schedule import ActionKind

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

WINDOW_S = 2.0
START_S = 3.0
FLOOR = 0.95  # of the goodput that the limits allow, over all judged windows
# ... and in each window: TCP flows that all wait for one retransmission time-out (250 ms) leave 0.87 of a window's.
WINDOW_FLOOR = 0.80
CEILING = 1.05  # of the limit
MAX_BUSY_SHARE = 0.25  # of the windows: with more of them busy a run proves nothing
MIB = 1 << 20
# Memory may grow while caches fill; a leak continues. The slope is judged over the second half of the longest run of
# the controller, if that half is long enough to distinguish the two.
SETTLED_S = 180.0
MAX_MIB_PER_MINUTE = 0.5
MAX_MIB_MORE = 48.0
MAX_HANDLES_MORE = 4
LINES_SHOWN = 20
FLOOR_SHARE = "floor over all windows, of what the limits allow"
ENOUGH_TIME = "windows in which the machine had time"
PROCESSES = {"controller": "controller", "vswitchd": "ovs-vswitchd"}


@dataclass(frozen=True, slots=True)
class GuaranteeVerdict:
    """One guarantee of one VN, (n,) each: the start of each window, the allowed and the received rate, the verdicts."""

    vn: str
    guarantee: str
    start_s: FloatArray
    bound_bps: FloatArray
    received_bps: FloatArray
    excused: BoolArray
    missed: BoolArray

    @property
    def judged(self) -> int:
        """The number of judged windows."""
        return int((~self.excused).sum())


def windows_of(start_s: float, end_s: float) -> FloatArray:
    """Return the starts of the whole windows between two times."""
    return start_s + WINDOW_S * np.arange(max(0, int((end_s - start_s) / WINDOW_S)), dtype=np.float64)


def means_by_window(rates: Rates, values: FloatArray, starts: FloatArray) -> FloatArray:
    """Return the time-weighted mean of a column of ``rates`` in each window, (windows,).

    NaN for a window without rows.

    A row belongs to the window in which its middle lies.
    """
    edges = np.append(starts, starts[-1:] + WINDOW_S)
    window = np.searchsorted(edges, (rates.start_s + rates.end_s) / 2, side="right") - 1
    inside = (window >= 0) & (window < len(starts))
    durations_s = rates.end_s - rates.start_s
    # In each window: the seconds that rows cover, and the sum of their values times seconds.
    weight = np.bincount(window[inside], durations_s[inside], minlength=len(starts))
    total = np.bincount(window[inside], (values * durations_s)[inside], minlength=len(starts))
    mean = np.full(len(starts), np.nan)
    np.divide(total, weight, out=mean, where=weight > 0)
    return mean


def limits_by_window(changes: Sequence[tuple[float, float]], starts: FloatArray) -> FloatArray:
    """Return the largest effective limit during each window, (windows,); ``changes`` are (from in seconds, limit)."""
    at_s, limit_bps = np.array(changes, dtype=np.float64).T
    first = np.maximum(np.searchsorted(at_s, starts, side="right") - 1, 0)
    last = np.searchsorted(at_s, starts + WINDOW_S, side="left") - 1
    row_ranges = zip(first.tolist(), last.tolist(), strict=True)
    return np.array(
        [limit_bps[first_row : max(first_row, last_row) + 1].max() for first_row, last_row in row_ranges]
    )  # the last row is before the first one if the window ends before the first change


def touched(transients: Sequence[Transient], starts: FloatArray) -> BoolArray:
    """Return which windows a transient overlaps, (windows,)."""
    touched_mask = np.zeros(len(starts), dtype=bool)
    for transient in transients:
        touched_mask |= (starts < transient.end_s) & (starts + WINDOW_S > transient.start_s)
    return touched_mask


def busy_windows(samples: Sequence[Sample], starts: FloatArray) -> BoolArray:
    """Return the windows in which the machine was busy; a sample's idle share is that since the previous sample."""
    earlier = [samples[0], *samples]  # before each sample: the previous one, and before the first one itself
    spans = [
        Transient(previous.at_s, sample.at_s)
        for previous, sample in zip(earlier, samples, strict=False)
        if sample.idle_share < BUSY_IDLE_SHARE
    ]
    return touched(spans, starts)


def judge_floor(
    vn: str,
    rates: Rates,
    changes: Sequence[tuple[float, float]],
    starts: FloatArray,
    transients: Sequence[Transient],
    busy: BoolArray,
) -> GuaranteeVerdict:
    """Judge that a VN with demand gets WINDOW_FLOOR of the goodput its limit allows."""
    bound_bps = WINDOW_FLOOR * np.array([goodput_limit_bps(limit) for limit in limits_by_window(changes, starts)])
    received_bps = means_by_window(rates, rates.tcp_goodput_bps, starts)
    excused = (
        touched([transient for transient in transients if transient.floor], starts) | busy | np.isnan(received_bps)
    )
    missed = ~excused & (received_bps < bound_bps)
    return GuaranteeVerdict(vn, "floor", starts, bound_bps, received_bps, excused, missed)


def floor_share(floor: GuaranteeVerdict) -> float:
    """Return the received bits in all judged windows, relative to what the limits allow."""
    judged = ~floor.excused
    allowed_bps = float(floor.bound_bps[judged].sum()) / WINDOW_FLOOR
    return float(floor.received_bps[judged].sum()) / allowed_bps


def judge_ceiling(
    vn: str,
    rates: Rates,
    changes: Sequence[tuple[float, float]],
    starts: FloatArray,
    transients: Sequence[Transient],
) -> GuaranteeVerdict:
    """Judge that a VN receives no more than its limit; a busy machine is no excuse for that."""
    bound_bps = CEILING * limits_by_window(changes, starts)
    received_bps = means_by_window(rates, rates.wire_bps, starts)
    excused = touched([transient for transient in transients if transient.ceiling], starts) | np.isnan(received_bps)
    missed = ~excused & (received_bps > bound_bps)
    return GuaranteeVerdict(vn, "ceiling", starts, bound_bps, received_bps, excused, missed)


def growth_per_minute(time_s: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of a least-squares line, per minute; 0 for fewer than two different times."""
    x, y = np.array(time_s), np.array(values, dtype=np.float64)
    if len(x) < 2 or np.ptp(x) == 0:
        return 0.0
    return float(np.polyfit(x - x[0], y, 1)[0] * 60)


def verdict(ledger: Ledger) -> dict[str, Any]:
    """Return figures, targets and violations; the first sample and the last one are those without traffic."""
    starts = windows_of(ledger.begin_s, ledger.end_s)
    busy = busy_windows(ledger.samples, starts)
    judged_vn = ledger.judged.name
    floor_transients = [*_transients_of(ledger, judged_vn), Transient(ledger.begin_s, ledger.begin_s + START_S)]
    floor = judge_floor(judged_vn, ledger.rates[judged_vn], ledger.limits[judged_vn], starts, floor_transients, busy)
    ceilings = [
        judge_ceiling(vn, rates, ledger.limits[vn], starts, _transients_of(ledger, vn))
        for vn, rates in ledger.rates.items()
    ]
    misses = [
        _violation(ledger, bound, row) for bound in (floor, *ceilings) for row in np.flatnonzero(bound.missed).tolist()
    ]
    figures = {
        "actions": dict(Counter(str(action.kind) for _, action in ledger.done)),
        "events": dict(sorted(ledger.events.items())),
        "windows judged (floor)": floor.judged,
        "windows judged (ceilings)": sum(ceiling.judged for ceiling in ceilings),
        "share of windows in which the machine was busy": round(float(busy.mean()), 3),
        "idle share, mean": round(float(np.mean([sample.idle_share for sample in ledger.samples])), 3),
        **{f"{shown}, MiB": _memory_mib(ledger.samples, process) for process, shown in PROCESSES.items()},
    }
    targets = [
        Target(ENOUGH_TIME, 1 - float(busy.mean()), "share", 1 - MAX_BUSY_SHARE, least=True),
        Target(
            "kinds of churn that took place", len({a.kind for _, a in ledger.done}), "", len(ActionKind), least=True
        ),
        *([Target(FLOOR_SHARE, round(floor_share(floor), 4), "share", FLOOR, least=True)] if floor.judged else []),
        Target("floor violated", int(floor.missed.sum()), "windows of 2 s", 0),
        Target("ceilings violated", int(sum(ceiling.missed.sum() for ceiling in ceilings)), "windows of 2 s", 0),
        Target("judged flows broken off", ledger.broken_flows, "", 0),
        Target("faults in the health outside transients", len(ledger.health_faults), "samples", 0),
        Target("fault events without explanation", len(ledger.faults), "events", 0),
        *_left_over(ledger),
        *_grown(ledger),
        Target("log lines without explanation", len(ledger.log_lines), "lines", 0),
    ]
    return {
        "figures": figures,
        "targets": [target.row() for target in targets],
        "misses": misses,
        "health_faults": [f"{at_s - ledger.begin_s:.1f} {text}" for at_s, text in ledger.health_faults[:LINES_SHOWN]],
        "faults": [f"{at_s - ledger.begin_s:.1f} {text}" for at_s, text in ledger.faults[:LINES_SHOWN]],
        "unexplained": ledger.log_lines[:LINES_SHOWN],
    }


def _transients_of(ledger: Ledger, vn: str) -> list[Transient]:
    """Return the transients that concern a VN, or all VNs."""
    return [transient for transient in ledger.transients if transient.vn in (None, vn)]


def _left_over(ledger: Ledger) -> list[Target]:
    """Return the targets on meters, flow entries and database rows that remain after the traffic."""
    first, last = ledger.samples[0].held, ledger.samples[-1].held
    assert first is not None
    assert last is not None
    return [
        Target("meters left over", last.meters - first.meters, "", 0),
        Target("flow entries left over", last.flows - first.flows, "", 0),
        Target("rows in OVSDB left over", (last.rows - first.rows).total(), "", 0),
        Target("rows in OVSDB after the fabric's end", (ledger.rows_after - ledger.rows_before).total(), "", 0),
    ]


def _grown(ledger: Ledger) -> list[Target]:
    """Return the targets on file handles left open, and on the growth of the processes' memory."""
    targets = []
    for name, shown in PROCESSES.items():
        first, last = getattr(ledger.samples[0], name), getattr(ledger.samples[-1], name)
        growth_mib = (last.rss_bytes - first.rss_bytes) / MIB
        targets += [
            Target(f"file handles of {shown} left open", last.handles - first.handles, "", MAX_HANDLES_MORE),
            Target(f"memory of {shown}, end less begin", growth_mib, "MiB", MAX_MIB_MORE),
        ]
        starts = ledger.starts_s if name == "controller" else [ledger.begin_s]
        begin_s, end_s = max(pairwise([*starts, ledger.end_s]), key=lambda span: span[1] - span[0])
        if end_s - begin_s >= 2 * SETTLED_S:
            samples = [sample for sample in ledger.samples if (begin_s + end_s) / 2 <= sample.at_s <= end_s]
            sizes = [
                (sample.at_s, use.rss_bytes / MIB) for sample in samples if (use := getattr(sample, name)) is not None
            ]
            slope = growth_per_minute(*zip(*sizes, strict=True))
            targets.append(Target(f"memory of {shown}, once settled", slope, "MiB/minute", MAX_MIB_PER_MINUTE))
    return targets


def _memory_mib(samples: Sequence[Sample], name: str) -> dict[str, float]:
    """Return the first, largest and last memory of a process in MiB."""
    sizes = [use.rss_bytes / MIB for sample in samples if (use := getattr(sample, name)) is not None]
    return {"first": round(sizes[0], 1), "most": round(max(sizes), 1), "last": round(sizes[-1], 1)}


def _violation(ledger: Ledger, judgement: GuaranteeVerdict, row: int) -> dict[str, Any]:
    """Return a violated window for the report, with the three actions before its end."""
    at_s = float(judgement.start_s[row])
    actions_before = [(done_s, action) for done_s, action in ledger.done if done_s <= at_s + WINDOW_S]
    return {
        "at_s": round(at_s - ledger.begin_s, 1),
        "vn": judgement.vn,
        "guarantee": judgement.guarantee,
        "bound_bps": round(float(judgement.bound_bps[row])),
        "received_bps": round(float(judgement.received_bps[row])),
        "last_actions": [f"{done_s - ledger.begin_s:.1f} {action}" for done_s, action in actions_before[-3:]],
    }
