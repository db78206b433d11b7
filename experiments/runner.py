"""Runs isolation experiments one after the other, with progress and time left, and writes what they gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.isolation import IsolationRun, run_isolation, traffic_duration_s
from experiments.measure.manifest import manifest
from experiments.options import ExperimentOptions
from experiments.report import TITLES, show_table, write_results


def run_and_report(name: str, options: ExperimentOptions, controls: Sequence[str]) -> dict[str, Any]:
    """Run the experiment under each control in turn and return its summary, as in summary.json.

    The last control's figures stand at the top of the summary; those of "none", if another is last, under "baseline".
    """
    runs = [_run(options, control) for control in controls] if options.quiet else _run_with_progress(options, controls)
    summary = _summary(name, options, runs)
    described = {run.control: {"switches": run.switches, "vns": run.vns, "warnings": run.warnings} for run in runs}
    picture = write_results(options.output, summary, manifest(options, experiment=name, runs=described), runs)
    if not options.quiet:
        show_table(runs, picture, options.output)
    return summary


def _run(options: ExperimentOptions, control: str) -> IsolationRun:
    return run_isolation(options, control, options.output / control, lambda _phase, _passed_s: None)


def _run_with_progress(options: ExperimentOptions, controls: Sequence[str]) -> list[IsolationRun]:
    runs = []
    columns = (TextColumn("{task.description}", table_column=None), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks = [bar.add_task(TITLES[control], total=traffic_duration_s(options)) for control in controls]
        for control, task in zip(controls, tasks, strict=True):

            def tell(phase: str, passed_s: float, control: str = control, task: Any = task) -> None:
                bar.update(task, description=f"{TITLES[control]}: {phase}", advance=passed_s)

            runs.append(run_isolation(options, control, options.output / control, tell))
            bar.update(task, description=f"{TITLES[control]}: done")
    return runs


def _summary(name: str, options: ExperimentOptions, runs: Sequence[IsolationRun]) -> dict[str, Any]:
    by_control = {run.control: run for run in runs}
    last = runs[-1]
    summary: dict[str, Any] = {"experiment": name, "control": last.control, "fabric": options.fabric}
    summary["topology"] = options.topology
    if last.control == "dets":
        summary |= {"algorithm": options.algorithm, "parameters": dict(options.parameters)}
    summary |= {"senders": options.senders, "seed": options.seed, **last.figures}
    if last.control != "none" and "none" in by_control:
        summary["baseline"] = dict(by_control["none"].figures)
    return summary
