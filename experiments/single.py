"""``dets experiment NAME``: one scenario with one seed on one fabric, under the controls asked for.

Figures 2 and 5 are scenarios whose senders, rates and durations can be set; their output is that of ``report``.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from controller.errors import InvalidValueError
from experiments.evaluation.cells import SCALE, Cell, run_cell, run_scenario
from experiments.evaluation.claims import Measured
from experiments.figures.digests import table_of
from experiments.options import ExperimentOptions
from experiments.report import TITLES, label_of, report
from experiments.runs.run import RunSettings, ScenarioRun
from experiments.scenarios import scenarios
from experiments.scenarios.dets_fig5 import joined_by_udp
from experiments.scenarios.scenario import BASELINES, Scenario

SET_BY_OPTIONS = ("dets-fig2", "dets-fig5")
RATES = ("link_rate", "victim_limit", "aggressor_limit", "udp_rate")
OF_THESE = ("senders", *RATES, "duration", "warmup", "cooldown", "topology", "static")
UNUSED_ON = {"ovs": ("slot",), "wire": ("datapath", "shaping"), "model": ("datapath",)}
UNUSED_BY = {"dets-fig2": ("algorithm", "parameter", "interval_ms", "baseline", "static")}


def run(
    name: str, options: ExperimentOptions, given: Collection[str] = (), kill_at_s: float | None = None
) -> dict[str, Any]:
    """Run it, write the output folder, show a table unless ``options.quiet``, and return the summary.

    With ``kill_at_s`` three controllers share the switches out, and the one that owns the receiver's is killed so long
    after the traffic began.
    ``given`` names the options that the user gave, as the command line has them: InvalidValueError for one that means
    nothing here, and for a name that there is none of.
    """
    known = scenarios()
    if name not in known:
        raise InvalidValueError("NAME", name, f"is not an experiment: write one of {', '.join(known)}")
    options = options.checked()
    _refuse(given, options, UNUSED_BY.get(name, ()), f"means nothing to {name}, which runs without control")
    _refuse(given, options, UNUSED_ON[options.fabric], f"means nothing on the {options.fabric} fabric")
    if name not in SET_BY_OPTIONS:
        says = f"means nothing to {name}, whose file in experiments/scenarios says it"
        _refuse(given, options, (*OF_THESE, *(("parameter",) if "algorithm" not in given else ())), says)
    if known[name].shaping != "meter":
        _refuse(given, options, ("shaping",), f"means nothing to {name}, whose file in experiments/scenarios says it")
    announce = None if options.quiet else _announce
    grain = options.slot_s, options.congestion_control, options.datapath, options.shaping, options.interval_ms
    settings = RunSettings(*grain, kill_at_s=kill_at_s, announce=announce)
    folder = options.output or Path("results") / name
    folder.mkdir(parents=True, exist_ok=True)
    if name in SET_BY_OPTIONS:
        runs = _run_set(name, known[name].title, options, settings, folder)
        return report(name, options, folder, runs)
    cells = _cells(known[name], options, settings, "algorithm" in given)
    return _run_cells(name, cells, options, folder)


def _announce(rest_url: str) -> None:
    print(f"The live page of this run: {rest_url}/ui", file=sys.stderr, flush=True)


def _refuse(given: Collection[str], options: ExperimentOptions, unused: tuple[str, ...], reason: str) -> None:
    for key in unused:
        if key in given:
            raise InvalidValueError(key, options.value_of(key), reason)


def _run_set(
    name: str, title: str, options: ExperimentOptions, settings: RunSettings, folder: Path
) -> list[ScenarioRun]:
    """Run figure 2 or 5 as the options have it, and keep what the runs leave in a folder for each control."""
    scenario = joined_by_udp(
        name,
        title,
        topology=options.topology,
        senders=options.senders,
        link_rate_bps=options.link_rate_bps,
        victim_limit_bps=options.victim_limit_bps,
        aggressor_limit_bps=options.aggressor_limit_bps,
        udp_rate_bps=options.udp_rate_bps,
        warmup_s=options.warmup_s,
        blast_s=options.blast_s,
        cooldown_s=options.cooldown_s,
        queues=options.has_queues,
    )
    controls = ["none"]
    if name != "dets-fig2":
        wanted = (("none", options.baseline), ("static", options.static))
        controls = [*(control for control, is_wanted in wanted if is_wanted), options.control]
    cells = [Cell(name, control, options.seed, options.fabric, scenario, settings) for control in controls]
    with _Progress(options.quiet, [(TITLES[label_of(one.control)], one.scenario) for one in cells]) as progress:
        return [_run_one(cell, folder / label_of(cell.control), progress.of(n)) for n, cell in enumerate(cells)]


def _run_one(cell: Cell, folder: Path, progress: Any) -> ScenarioRun:
    folder.mkdir(exist_ok=True)
    ran = run_scenario(cell, folder, progress)
    ran.save(folder)
    return ran


def _cells(scenario: Scenario, options: ExperimentOptions, settings: RunSettings, chosen: bool) -> list[Cell]:
    controls = (*BASELINES, options.control) if chosen else scenario.controls_on(options.fabric)
    if not options.baseline:
        controls = tuple(control for control in controls if control not in BASELINES)
    asked = dataclasses.replace(scenario, queues=scenario.queues and options.has_queues)
    placed = asked.on(options.fabric, SCALE[options.fabric])
    return [Cell(scenario.name, control, options.seed, options.fabric, placed, settings) for control in controls]


def _run_cells(name: str, cells: list[Cell], options: ExperimentOptions, folder: Path) -> dict[str, Any]:
    """Run the cells, write summary.json and a picture; return the summaries by control."""
    with _Progress(options.quiet, [(cell.control, cell.scenario) for cell in cells]) as progress:
        done = {cell.control: run_cell(cell, folder, progress.of(number)) for number, cell in enumerate(cells)}
    (folder / "summary.json").write_text(json.dumps(done, indent=1, default=str) + "\n")
    picture = _draw(cells, folder, name)
    if not options.quiet:
        _show(name, list(done.values()), picture, folder)
    return done


class _Progress:
    """A bar on stderr for each run, with its phase and the time left; a context manager."""

    def __init__(self, quiet: bool, runs: list[tuple[str, Scenario]]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self._bar, self._runs = Progress(*columns, console=Console(stderr=True), disable=quiet), runs
        self._tasks = [self._bar.add_task(title, total=scenario.duration_s) for title, scenario in runs]

    def __enter__(self) -> _Progress:
        self._bar.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._bar.__exit__(*exception)

    def of(self, number: int) -> Any:
        """Return what is called with the seconds of traffic that have passed since the last call."""
        title, scenario = self._runs[number]
        task, at_s = self._tasks[number], 0.0

        def passed(passed_s: float) -> None:
            nonlocal at_s
            at_s += passed_s
            phase = scenario.phase_at(at_s)
            self._bar.update(task, advance=passed_s, description=f"{title}: {phase}" if phase else title)

        return passed


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
