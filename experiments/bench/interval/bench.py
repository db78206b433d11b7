"""``dets bench interval``: what tenants gain from shorter control intervals, and what the machine pays for them.

Figures 5 and 6 of the DETS paper, bursts in step with the interval behind a port whose queues nobody can set, and
blasts (blast.py), each with the control intervals asked for. What comes of them is measured over 55 ms at every
interval, so that rows can be compared. On the model, and as root on Open vSwitch, where the costs are read too.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from controller.errors import InvalidValueError
from controller.units import check_interval_ms
from experiments.bench.enforcement import bursts
from experiments.bench.interval import blast
from experiments.evaluation.cells import SCALE, Cell, run_scenario
from experiments.evaluation.measures import isolation_measures, measures
from experiments.machine.processors import machine
from experiments.runs.run import RunSettings, ScenarioRun
from experiments.scenarios import scenarios
from experiments.scenarios.scenario import Scenario

INTERVALS_MS = (10, 20, 55)
FABRICS = ("model", "ovs")
ALGORITHM = "fp"
MOST_SEEDS = 100
BURST = bursts.TELLING[1]

Figures = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario, and what of its run stands in the table, by heading."""

    scenario: Scenario
    figures: Callable[[ScenarioRun], Figures]


def _isolation(ran: ScenarioRun) -> Figures:
    found = isolation_measures(ran)
    return {
        "TCP below 95 %, windows": found["victim_intervals_below_95_percent_total"],
        "longest": found["victim_intervals_below_95_percent"],
        "TCP's share": found["victim_goodput_bps_during"] / found["victim_goodput_limit_bps"],
    }


def _use(ran: ScenarioRun) -> Figures:
    found = measures(ran)
    return {
        "use of the limit": found["use_of_oracle"],
        "distance from max-min": found["oracle_distance"],
        "windows above the limit": found["above_limit_share"],
    }


def _bursts(ran: ScenarioRun) -> Figures:
    found = bursts.figures(ran)
    return {"gain of bursts": found["gain"], "TCP next to them below 95 % on end, windows": found["below_on_end"]}


def cases(fabric: str) -> dict[str, Case]:
    """Return what is run on a fabric, by name."""
    known = scenarios()
    return {
        "dets-fig5": Case(known["dets-fig5"].on(fabric, SCALE[fabric]), _isolation),
        "dets-fig6": Case(known["dets-fig6"].on(fabric, SCALE[fabric]), _use),
        "bursts without queues": Case(bursts.scenario(BURST, queues=False), _bursts),
    }


def run(
    intervals_ms: Sequence[int] = INTERVALS_MS,
    fabrics: Sequence[str] | None = None,
    seeds: int = 1,
    output: Path = Path("results/bench-interval"),
) -> dict[str, Any]:
    """Run every case with every interval and seed; write JSON, CSV, table and plot.

    Raises InvalidValueError for options out of bounds, and for Open vSwitch without root.
    """
    fabrics = fabrics or (FABRICS if os.geteuid() == 0 else FABRICS[:1])
    _check(intervals_ms, fabrics, seeds)
    rows = [*_rows(intervals_ms, fabrics, seeds), *_blasts(intervals_ms, fabrics)]
    result = {
        "settings": {
            "algorithm": ALGORITHM,
            "seeds": seeds,
            **machine(),
            "command": "dets " + " ".join(sys.argv[1:]),
            "warnings": list(dict.fromkeys(text for row in rows for text in row["warnings"])),
        },
        "figures": {"rows": rows},
        "targets": targets(rows),
    }
    output.mkdir(parents=True, exist_ok=True)
    (output / "interval.json").write_text(json.dumps(result, indent=1) + "\n")
    (output / "interval.md").write_text(table(rows))
    with (output / "interval.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ("fabric", "case", "figure", "interval_ms", "seeds", "mean", "worst"))
        writer.writeheader()
        writer.writerows(_flat(rows))
    if plot(rows, output / "interval.png"):
        print(f"wrote {output}/interval.png")
    print(table(rows))
    return result


def _check(intervals_ms: Sequence[int], fabrics: Sequence[str], seeds: int) -> None:
    for interval_ms in intervals_ms:
        check_interval_ms(interval_ms)
    for fabric in fabrics:
        if fabric not in FABRICS:
            raise InvalidValueError("fabric", fabric, f"is not one of {', '.join(FABRICS)}")
    if "ovs" in fabrics and os.geteuid() != 0:
        raise InvalidValueError("fabric", "ovs", "needs root")
    if not 1 <= seeds <= MOST_SEEDS:
        raise InvalidValueError("seeds", seeds, f"is outside 1 to {MOST_SEEDS}")


def _rows(intervals_ms: Sequence[int], fabrics: Sequence[str], seeds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for every run, as it is done."""
    from rich.console import Console
    from rich.progress import Progress

    todo = [
        (fabric, name, case, interval_ms, seed)
        for fabric in fabrics
        for name, case in cases(fabric).items()
        for interval_ms in dict.fromkeys(intervals_ms)
        for seed in range(1, seeds + 1)
    ]
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=sum(case.scenario.duration_s for _, _, case, _, _ in todo))
        for fabric, name, case, interval_ms, seed in todo:
            bar.update(task, description=f"{fabric}: {name}, {interval_ms} ms")
            ran = _run(fabric, case.scenario, interval_ms, seed, lambda passed_s: bar.advance(task, passed_s))
            figures = {**case.figures(ran), **costs(ran)}
            warnings = ran.notes["warnings"]
            row = {"fabric": fabric, "case": name, "interval_ms": interval_ms, "seed": seed}
            yield {**row, "figures": figures, "warnings": warnings}


def _blasts(intervals_ms: Sequence[int], fabrics: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield how soon meters meet a blast, in each fabric, at each interval."""
    for fabric in fabrics:
        times_of = blast.on_model if fabric == "model" else blast.on_ovs
        for interval_ms in dict.fromkeys(intervals_ms):
            print(f"{fabric}: blast, {interval_ms} ms", file=sys.stderr)
            row = {"fabric": fabric, "case": "blast", "interval_ms": interval_ms, "seed": 1}
            yield {**row, "figures": blast.figures(times_of(interval_ms, ALGORITHM)), "warnings": []}


def _run(
    fabric: str, scenario: Scenario, interval_ms: int, seed: int, progress: Callable[[float], None]
) -> ScenarioRun:
    cell = Cell(scenario.name, ALGORITHM, seed, fabric, scenario, RunSettings(interval_ms=interval_ms))
    with tempfile.TemporaryDirectory(prefix="dets-interval-") as folder:
        return run_scenario(cell, Path(folder), progress)


def costs(ran: ScenarioRun) -> Figures:
    """Return what a run's control cost, as far as its fabric tells; shares are of one processor."""
    notes = ran.notes
    if "meter_mods" in notes:
        return {"meters set a second": notes["meter_mods"] / ran.scenario.duration_s}
    return {
        "meters set a second": notes["set_meters_per_s"],
        "controller, share of a processor": notes["controller_cpu_share"],
        "switch, share of a processor": notes["vswitchd_cpu_share"],
        "rounds skipped": notes["skipped_intervals"],
    }


def _flat(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and worst (the largest) over seeds of every figure: fabric, case, figure, interval."""
    found: dict[tuple[str, str, str, int], list[float]] = {}
    for row in rows:
        for figure, value in row["figures"].items():
            if value is not None:
                found.setdefault((row["fabric"], row["case"], figure, row["interval_ms"]), []).append(float(value))
    keys = ("fabric", "case", "figure", "interval_ms")
    return [
        {
            **dict(zip(keys, key, strict=True)),
            "seeds": len(values),
            "mean": float(np.mean(values)),
            "worst": max(values),
        }
        for key, values in found.items()
    ]


def targets(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return how many rounds were skipped at each interval: none may be, or the interval is too short."""
    found = []
    for interval_ms in dict.fromkeys(row["interval_ms"] for row in rows):
        skipped = [
            row["figures"]["rounds skipped"]
            for row in rows
            if row["interval_ms"] == interval_ms and "rounds skipped" in row["figures"]
        ]
        if skipped:
            name, most = f"rounds skipped at {interval_ms} ms", max(skipped)
            found.append({"name": name, "value": most, "unit": "", "target": 0, "met": most == 0})
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table: a row per fabric, case and figure, the intervals side by side; means over seeds."""
    intervals_ms = sorted({row["interval_ms"] for row in rows})
    heads = ["fabric", "case", "figure", *(f"{interval_ms} ms" for interval_ms in intervals_ms)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    cells: dict[tuple[str, str, str], dict[int, str]] = {}
    for one in _flat(rows):
        place = cells.setdefault((one["fabric"], one["case"], one["figure"]), {})
        place[one["interval_ms"]] = f"{one['mean']:.4g}"
    for key, by_interval in cells.items():
        lines.append("| " + " | ".join([*key, *(by_interval.get(one, "-") for one in intervals_ms)]) + " |")
    return "\n".join(lines) + "\n"


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """Draw every figure over the interval, a panel each; return whether matplotlib is there to do it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return False
    flat = _flat(rows)
    panels = list(dict.fromkeys(one["figure"] for one in flat))
    across = 4
    down = -(-len(panels) // across)
    figure = Figure(figsize=(3.2 * across, 2.6 * down), layout="constrained")
    FigureCanvasAgg(figure)
    boxes = list(figure.subplots(down, across, squeeze=False).flat)
    for box, panel in zip(boxes, panels, strict=False):
        for fabric, case in dict.fromkeys((one["fabric"], one["case"]) for one in flat if one["figure"] == panel):
            mine = [one for one in flat if (one["fabric"], one["case"], one["figure"]) == (fabric, case, panel)]
            mine.sort(key=lambda one: one["interval_ms"])
            style = "o-" if fabric == "ovs" else "o:"
            box.plot(
                [one["interval_ms"] for one in mine],
                [one["mean"] for one in mine],
                style,
                ms=4,
                label=f"{fabric}: {case}",
            )
        box.set_title(panel, fontsize="small")
        box.set_xlabel("control interval, ms", fontsize="x-small")
        box.set_ylim(bottom=0)
        box.tick_params(labelsize="x-small")
        box.legend(fontsize="xx-small")
    for box in boxes[len(panels) :]:
        box.set_visible(False)
    figure.savefig(path, dpi=130)
    return True
