"""A table of many runs of ``dets experiment dets-fig5``: what TCP loses while UDP of another VLAN sends."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from controller.errors import InvalidValueError
from experiments.measure.series import MeasurementError

BELOW, LONGEST = "victim_intervals_below_95_percent_total", "victim_intervals_below_95_percent"
BELOW_BEFORE = "victim_intervals_below_95_percent_before_total"


def victim_rows(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Return a row for each algorithm with its parameters, or baseline, and fabric, in the order of the folders.

    Intervals are those of the blast in which TCP's goodput was below 95 % of what its limit allows: the sum over all
    seeds, the most in one seed, the longest stretch, and how many seeds had more than one. What share of the intervals
    they are stands next to the same before the blast, when TCP was alone. Other shares are means, the idle
    share of the processors is the least and the stolen share the most of a seed; None where the fabric has none. Raises
    MeasurementError for a folder that holds no such run.
    """
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for folder in folders:
        summary = _read(folder)
        found.setdefault((summary["fabric"], _control(summary)), []).append(summary)
    return [_row(fabric, control, runs) for (fabric, control), runs in found.items()]


def _read(folder: Path) -> Mapping[str, Any]:
    path = folder / "summary.json"
    try:
        summary: Mapping[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise MeasurementError(f"{path} is not there: the run is not done") from None
    except ValueError as error:
        raise MeasurementError(f"{path} is not JSON: {error}") from None
    if not isinstance(summary, dict) or BELOW not in summary:
        raise MeasurementError(f"{path} is not of a run of dets-fig2 or dets-fig5: it has no {BELOW}")
    return summary


def _control(summary: Mapping[str, Any]) -> str:
    if summary["control"] != "dets":
        return str(summary["control"])
    return " ".join([summary["algorithm"], *(f"{key}={value}" for key, value in summary["parameters"].items())])


def _row(fabric: str, control: str, runs: list[Mapping[str, Any]]) -> dict[str, Any]:
    seeds = [run["seed"] for run in runs]
    if len(set(seeds)) < len(seeds):
        twice = next(seed for seed in seeds if seeds.count(seed) > 1)
        raise InvalidValueError("FOLDER", twice, f"is the seed of two runs of {control} on {fabric}")
    below = [run[BELOW] for run in runs]
    alone = sum(run.get("intervals_before_blast", 0) for run in runs)
    kept = [run["victim_goodput_bps_during"] / run["victim_goodput_limit_bps"] for run in runs]
    idle, stolen = (
        [run[key] for run in runs if key in run] for key in ("cpu_idle_share_during", "cpu_stolen_share_during")
    )
    return {
        "control": control,
        "fabric": fabric,
        "seeds": len(runs),
        "intervals_below": sum(below),
        "most_in_one_seed": max(below),
        "longest_stretch": max(run[LONGEST] for run in runs),
        "seeds_above_one": sum(one > 1 for one in below),
        "below_share": sum(below) / max(sum(run["intervals_during_blast"] for run in runs), 1),
        "below_share_alone": sum(run.get(BELOW_BEFORE, 0) for run in runs) / alone if alone else None,
        "goodput_share": sum(kept) / len(kept),
        "least_goodput_share": min(kept),
        "cpu_idle_share": min(idle, default=None),
        "cpu_stolen_share": max(stolen, default=None),
    }
