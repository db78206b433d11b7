"""``dets experiment NAME`` for a scenario: one seed on one fabric, under the controls asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.allocation.registry import make_any_algorithm
from controller.errors import InvalidValueError
from experiments.evaluation.cells import SCALE, Cell, run_cell
from experiments.evaluation.claims import Measured
from experiments.evaluation.page import table_of
from experiments.scenarios import scenarios
from experiments.scenarios.scenario import BASELINES, parse_control


@dataclass(frozen=True, slots=True)
class ScenarioOptions:
    """What to run: ``controls`` (none given: all of the scenario), with ``seed``, into ``output``."""

    fabric: str
    controls: tuple[str, ...]
    baseline: bool
    seed: int
    output: Path
    quiet: bool = False


def run(name: str, options: ScenarioOptions) -> dict[str, Any]:
    """Run a scenario, write summary.json and a picture, show a table; return the summaries by control."""
    scenario = scenarios()[name]
    if options.fabric not in SCALE:
        raise InvalidValueError("fabric", options.fabric, f"is not one of {', '.join(SCALE)}")
    for control in options.controls:
        algorithm, parameters = parse_control(control)
        if algorithm not in BASELINES:
            make_any_algorithm(algorithm, parameters)
    controls = (*BASELINES, *options.controls) if options.controls else scenario.controls_on(options.fabric)
    if not options.baseline:
        controls = tuple(control for control in controls if control not in BASELINES)
    placed = scenario.on(options.fabric, SCALE[options.fabric])
    cells = [Cell(name, control, options.seed, options.fabric, scenario=placed) for control in dict.fromkeys(controls)]
    done = _run_all(cells, options)
    (options.output / "summary.json").write_text(json.dumps(done, indent=1, default=str) + "\n")
    picture = _draw(cells, options.output, name)
    if not options.quiet:
        _show(name, list(done.values()), picture, options.output)
    return done


def _run_all(cells: list[Cell], options: ScenarioOptions) -> dict[str, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    done = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=options.quiet) as bar:
        tasks = [bar.add_task(cell.control, total=cell.traffic_s) for cell in cells]
        for cell, task in zip(cells, tasks, strict=True):
            done[cell.control] = run_cell(cell, options.output, lambda passed_s, t=task: bar.advance(t, passed_s))
    return done


def _draw(cells: list[Cell], folder: Path, name: str) -> Path | None:
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        return None
    from experiments.evaluation.pictures import draw_scenario

    draw_scenario(cells, folder, folder / f"{name}.png")
    return folder / f"{name}.png"


def _show(name: str, summaries: list[dict[str, Any]], picture: Path | None, folder: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    heading, *rows = table_of(Measured(summaries), name, [one["control"] for one in summaries])
    table = Table(title=name, title_justify="left")
    for label in ("", *heading[2:]):
        table.add_column(label)
    for summary, row in zip(summaries, rows, strict=True):
        table.add_row(summary["control"], *row[2:])
    console = Console()
    console.print(table)
    for summary in summaries:
        for warning in summary["notes"].get("warnings", []):
            console.print(f"{summary['control']}: {warning}", highlight=False)
    console.print(f"{picture or 'no picture: matplotlib is not installed'}; all else in {folder}", highlight=False)
