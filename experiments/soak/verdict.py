"""From what a soak has measured to its figures and targets. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.soak.judging import (
    FLOOR,
    MOST_BUSY_SHARE,
    WINDOW_FLOOR,
    Judgement,
    Transient,
    busy_windows,
    floor_share,
    judge_ceiling,
    judge_floor,
    touched,
    windows_of,
)
from experiments.soak.record import Look, Record
from experiments.soak.resources import growth_per_minute
from experiments.soak.schedule import ActionKind

MIB = 1 << 20
# Memory may grow while caches fill; a leak goes on. The slope is judged over the second half of the longest life, where
# that half is long enough to tell them apart.
SETTLED_S = 180.0
MOST_MIB_PER_MINUTE = 0.5
MOST_MIB_MORE = 48.0
MOST_HANDLES_MORE = 4
LINES_SHOWN = 20
FLOOR_SHARE = "floor over all windows, of what the limits allow"
ENOUGH_TIME = "windows in which the machine had time"


def judgements(record: Record) -> list[Judgement]:
    """Return the judgement of every guarantee of every VN; the floor of the judged VN is the first."""
    starts = windows_of(record.begin_s, record.end_s)
    diary = record.diary
    busy = _busy(record, starts)
    own = _concerning(diary.transients, record.judged.name)
    start = Transient(_first_seconds(record), "start")
    judged = [
        judge_floor(
            record.judged.name,
            record.rates[record.judged.name],
            diary.limits[record.judged.name],
            starts,
            [*own, start],
            busy,
        )
    ]
    for name, rates in record.rates.items():
        judged.append(judge_ceiling(name, rates, diary.limits[name], starts, _concerning(diary.transients, name)))
    return judged


def _first_seconds(record: Record) -> Any:
    from experiments.measure.series import Window

    return Window(record.begin_s, record.begin_s + 3.0)


def _short_of_floor(floor: Judgement) -> int:
    short = floor.received_bps < floor.wanted_bps * FLOOR / WINDOW_FLOOR
    return int((~floor.excused & short).sum())


def _concerning(transients: Sequence[Transient], vn: str) -> list[Transient]:
    """Return the transients of everybody and those of this VN alone: "limit v1_2"."""
    return [t for t in transients if " " not in t.kind or t.kind.split()[1] == vn]


def verdict(record: Record) -> dict[str, Any]:
    """Return figures, targets and what was found wrong."""
    judged = judgements(record)
    floor, ceilings = judged[0], judged[1:]
    start, quiet = record.quiet
    assert start is not None
    assert quiet is not None
    diary = record.diary
    busy = _busy(record, floor.start_s)
    figures = {
        "actions": dict(Counter(str(action.kind) for _, action in diary.done)),
        "left out": len(diary.left_out),
        "events": dict(sorted(record.events.items())),
        "windows judged (floor)": floor.judged,
        f"windows below {FLOOR:.0%} (floor)": _short_of_floor(floor),
        "windows judged (ceilings)": sum(j.judged for j in ceilings),
        "windows in transients (floor)": int(touched(_concerning(diary.transients, floor.vn), floor.start_s).sum()),
        "share of windows in which the machine was busy": round(float(busy.mean()), 3),
        "idle share, mean": round(float(np.mean([look.idle_share for look in record.looks])), 3),
        "flows without a report": diary.flows_without_report,
        "controller, MiB": _mib(record.looks, "controller"),
        "ovs-vswitchd, MiB": _mib(record.looks, "vswitchd"),
    }
    targets = [
        _at_least(ENOUGH_TIME, 1 - float(busy.mean()), 1 - MOST_BUSY_SHARE, "share"),
        _at_least("kinds of churn that took place", len({a.kind for _, a in diary.done}), len(ActionKind), ""),
        *([_at_least(FLOOR_SHARE, round(floor_share(floor), 4), FLOOR, "share")] if floor.judged else []),
        _at_most("floor missed", int(floor.missed.sum()), 0, "windows of 2 s"),
        _at_most("ceilings missed", int(sum(j.missed.sum() for j in ceilings)), 0, "windows of 2 s"),
        _at_most("judged flows broken off", record.broken_flows, 0, ""),
        _at_most("ailments reported outside transients", len(record.ailments), 0, "looks"),
        _at_most("events of trouble without explanation", len(record.troubles), 0, "events"),
        *_held_targets(start, quiet),
        _at_most("rows in OVSDB after the fabric's end", _more(record.rows_after, record.rows_before), 0, ""),
        *_process_targets(record, start, quiet),
        _at_most("lines of log without explanation", len(record.log_lines), 0, "lines"),
    ]
    return {
        "figures": figures,
        "targets": targets,
        "misses": [_miss(record, j, row) for j in judged for row in np.flatnonzero(j.missed).tolist()],
        "ailments": [f"{at_s - record.begin_s:.1f} {text}" for at_s, text in record.ailments[:LINES_SHOWN]],
        "troubles": [f"{at_s - record.begin_s:.1f} {text}" for at_s, text in record.troubles[:LINES_SHOWN]],
        "unexplained": record.log_lines[:LINES_SHOWN],
    }


def _held_targets(start: Look, quiet: Look) -> list[dict[str, Any]]:
    held, first = quiet.held, start.held
    assert held is not None
    assert first is not None
    return [
        _at_most("meters left over", held.meters - first.meters, 0, ""),
        _at_most("flow entries left over", held.flows - first.flows, 0, ""),
        _at_most("rows in OVSDB left over", _more(held.rows, first.rows), 0, ""),
    ]


def _process_targets(record: Record, start: Look, quiet: Look) -> list[dict[str, Any]]:
    targets = []
    for name, shown in (("controller", "controller"), ("vswitchd", "ovs-vswitchd")):
        first, last = getattr(start, name), getattr(quiet, name)
        targets += [
            _at_most(f"file handles of {shown} left open", last.handles - first.handles, MOST_HANDLES_MORE, ""),
            _at_most(
                f"memory of {shown}, end less begin", (last.rss_bytes - first.rss_bytes) / MIB, MOST_MIB_MORE, "MiB"
            ),
        ]
        slope = _settled_slope(record, name)
        if slope is not None:
            targets.append(_at_most(f"memory of {shown}, once settled", slope, MOST_MIB_PER_MINUTE, "MiB/minute"))
    return targets


def _settled_slope(record: Record, name: str) -> float | None:
    """Return by how much a process grows, MiB/minute, in the second half of its longest life; None if that is short."""
    begins = [at_s for at_s, _ in record.diary.lives] if name == "controller" else [record.begin_s]
    lives = list(pairwise([*begins, record.end_s]))
    begin_s, end_s = max(lives, key=lambda life: life[1] - life[0])
    half_s = (begin_s + end_s) / 2
    if end_s - half_s < SETTLED_S:
        return None
    looks = [look for look in record.looks if half_s <= look.at_s <= end_s and getattr(look, name) is not None]
    return growth_per_minute((k.at_s for k in looks), (getattr(k, name).rss_bytes / MIB for k in looks))


def _mib(looks: Sequence[Look], name: str) -> dict[str, float]:
    sizes = [use.rss_bytes / MIB for look in looks if (use := getattr(look, name)) is not None]
    return {"first": round(sizes[0], 1), "most": round(max(sizes), 1), "last": round(sizes[-1], 1)}


def _more(after: dict[str, int], before: dict[str, int]) -> int:
    return sum(max(0, count - before.get(table, 0)) for table, count in after.items())


def _busy(record: Record, starts: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the windows in which the machine was busy."""
    looks = np.array([(look.at_s, look.idle_share) for look in record.looks])
    return busy_windows(looks[:, 0], looks[:, 1], starts)


def _miss(record: Record, judgement: Judgement, row: int) -> dict[str, Any]:
    at_s = float(judgement.start_s[row])
    before = [(done_s, action) for done_s, action in record.diary.done if done_s <= at_s + 2]
    return {
        "at_s": round(at_s - record.begin_s, 1),
        "vn": judgement.vn,
        "guarantee": judgement.guarantee,
        "wanted_bps": round(float(judgement.wanted_bps[row])),
        "received_bps": round(float(judgement.received_bps[row])),
        "last_actions": [
            f"{done_s - record.begin_s:.1f} {action.kind} {action.what or action.rate_bps} "
            f"v{action.vlan_vid}_{action.sender}-{action.receiver}"
            for done_s, action in before[-3:]
        ],
    }


def _at_most(name: str, value: float, target: float, unit: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "target": f"<= {target:g}", "met": bool(value <= target)}


def _at_least(name: str, value: float, target: float, unit: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "target": f">= {target:g}", "met": bool(value >= target)}
