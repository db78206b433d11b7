"""Judges a soak's measurements: which guarantee was missed, and when. Pure functions on arrays.

Two guarantees are judged, in windows of WINDOW_S:

- *ceiling*: no VN receives more than its receive limit, controller or not;
- *floor*: the judged VN, which has more demand than its limit all the time, gets its limit, WINDOW_FLOOR of it in each
  window and FLOOR of it over all of them.

A window that touches a stated transient (docs/soak.md) is not judged, nor is one in which the machine had no time left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.machine.processors import BUSY_IDLE_SHARE
from experiments.measure.series import Rates, Window, goodput_limit_bps

WINDOW_S = 2.0
FLOOR = 0.95  # of the goodput that the limits allow, over all windows that are judged
# ... and in each: TCP flows that wait out one retransmission time-out at once (250 ms) leave 0.87 of a window's.
WINDOW_FLOOR = 0.80
CEILING = 1.05  # of the limit
MOST_BUSY_SHARE = 0.25  # of the windows: with more of them not judged a run proves nothing


@dataclass(frozen=True, slots=True)
class Transient:
    """A stated time in which a guarantee may be missed: after a change of kind ``kind``."""

    window: Window
    kind: str
    floor: bool = True
    ceiling: bool = False


@dataclass(frozen=True, slots=True)
class JudgedLimitChange:
    """From ``at_s`` on the limit is ``limit_bps``."""

    at_s: float
    limit_bps: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """One guarantee of one VN, (n,) each: the start of each window, what was allowed and received, the verdicts."""

    vn: str
    guarantee: str
    start_s: NDArray[np.float64]
    wanted_bps: NDArray[np.float64]
    received_bps: NDArray[np.float64]
    excused: NDArray[np.bool_]
    missed: NDArray[np.bool_]

    @property
    def judged(self) -> int:
        """How many windows were judged."""
        return int((~self.excused).sum())


def windows_of(start_s: float, end_s: float) -> NDArray[np.float64]:
    """Return the starts of the whole windows between two times."""
    return start_s + WINDOW_S * np.arange(max(0, int((end_s - start_s) / WINDOW_S)), dtype=np.float64)


def means_by_window(rates: Rates, values: NDArray[np.float64], starts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the time-weighted mean of a column in each window, by the rows whose middle is in it; nan without any."""
    edges = np.append(starts, starts[-1:] + WINDOW_S)
    row = np.searchsorted(edges, (rates.start_s + rates.end_s) / 2, side="right") - 1
    inside = (row >= 0) & (row < len(starts))
    passed_s = rates.end_s - rates.start_s
    weight = np.bincount(row[inside], passed_s[inside], minlength=len(starts))
    total = np.bincount(row[inside], (values * passed_s)[inside], minlength=len(starts))
    mean = np.full(len(starts), np.nan)
    np.divide(total, weight, out=mean, where=weight > 0)
    return mean


def limits_by_window(changes: Sequence[JudgedLimitChange], starts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest limit that was in force at any time of each window."""
    at_s = np.array([change.at_s for change in changes])
    limit_bps = np.array([change.limit_bps for change in changes], dtype=np.float64)
    first = np.maximum(np.searchsorted(at_s, starts, side="right") - 1, 0)
    last = np.searchsorted(at_s, starts + WINDOW_S, side="left") - 1
    rows = zip(first.tolist(), last.tolist(), strict=True)
    return np.array([limit_bps[a : max(a, b) + 1].max() for a, b in rows])


def touched(transients: Sequence[Transient], starts: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which windows a transient touches."""
    found = np.zeros(len(starts), dtype=bool)
    for transient in transients:
        found |= (starts < transient.window.end_s) & (starts + WINDOW_S > transient.window.start_s)
    return found


def busy_windows(
    time_s: NDArray[np.float64], idle_share: NDArray[np.float64], starts: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return the windows in which the machine was busy; ``idle_share`` is that of the time up to each ``time_s``."""
    busy = np.flatnonzero(idle_share < BUSY_IDLE_SHARE)
    spans = [Window(float(time_s[max(i - 1, 0)]), float(time_s[i])) for i in busy.tolist()]
    return touched([Transient(span, "busy") for span in spans], starts)


def judge_floor(
    vn: str,
    rates: Rates,
    changes: Sequence[JudgedLimitChange],
    starts: NDArray[np.float64],
    transients: Sequence[Transient],
    busy: NDArray[np.bool_],
) -> Judgement:
    """Judge that a VN with demand gets WINDOW_FLOOR of the goodput its limit allows."""
    wanted_bps = WINDOW_FLOOR * np.array([goodput_limit_bps(limit) for limit in limits_by_window(changes, starts)])
    received_bps = means_by_window(rates, rates.tcp_goodput_bps, starts)
    excused = touched([t for t in transients if t.floor], starts) | busy | np.isnan(received_bps)
    missed = ~excused & (received_bps < wanted_bps)
    return Judgement(vn, "floor", starts, wanted_bps, received_bps, excused, missed)


def floor_share(floor: Judgement) -> float:
    """Return what was received in all windows judged, of what the limits allow."""
    judged = ~floor.excused
    allowed_bps = float(floor.wanted_bps[judged].sum()) / WINDOW_FLOOR
    return float(floor.received_bps[judged].sum()) / allowed_bps


def judge_ceiling(
    vn: str,
    rates: Rates,
    changes: Sequence[JudgedLimitChange],
    starts: NDArray[np.float64],
    transients: Sequence[Transient],
) -> Judgement:
    """Judge that a VN receives no more than its limit; a busy machine is no excuse for that."""
    wanted_bps = CEILING * limits_by_window(changes, starts)
    received_bps = means_by_window(rates, rates.wire_bps, starts)
    excused = touched([t for t in transients if t.ceiling], starts) | np.isnan(received_bps)
    missed = ~excused & (received_bps > wanted_bps)
    return Judgement(vn, "ceiling", starts, wanted_bps, received_bps, excused, missed)
