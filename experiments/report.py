"""What ``dets experiment dets-fig2`` and ``dets-fig5`` leave and show: summary.json, series.csv, a picture, a table."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.evaluation.measures import Figures, isolation_measures, rates_at
from experiments.measure.manifest import manifest
from experiments.measure.series import ENOUGH, goodput_limit_bps
from experiments.options import ExperimentOptions
from experiments.runs.run import ScenarioRun, owner_changes
from experiments.scenarios.scenario import BASELINES, INTERVAL_S

AROUND_INTERVALS = 60  # before and after the kill of a controller, 3.3 s each
TITLES = {"none": "without control", "static": "static limits", "dets": "with DETS"}


@dataclass(frozen=True, slots=True)
class Judged:
    """A run, what users call its control (none, static or dets), and what came of it."""

    label: str
    run: ScenarioRun
    figures: Figures

    @property
    def title(self) -> str:
        """The control's name for people."""
        return TITLES[self.label]


def label_of(control: str) -> str:
    """Return what the control is called in summary.json and series.csv, and as a folder."""
    return control if control in BASELINES else "dets"


def judged(run: ScenarioRun) -> Judged:
    """Return a run with its figures; MeasurementError where the UDP never arrived."""
    shares = {f"{key}_during": run.notes[key] for key in ("cpu_idle_share", "cpu_stolen_share") if key in run.notes}
    return Judged(label_of(run.control), run, {**isolation_measures(run), **shares, **kill_measures(run)})


def kill_measures(run: ScenarioRun) -> Figures:
    """Return TCP's goodput around a controller's kill, if there was one, and where the switches that it had went."""
    killed_at_s = run.notes.get("killed_at_s")
    if killed_at_s is None:
        return {}
    victim, (_, limits) = rates_at(run, run.receivers[0]), next(iter(run.scenario.limits.items()))
    enough_bps = ENOUGH * goodput_limit_bps(limits.receive_bps)
    kill = int(np.searchsorted(victim.end_s, killed_at_s, side="right"))
    around = {"before": slice(max(kill - AROUND_INTERVALS, 0), kill), "after": slice(kill, kill + AROUND_INTERVALS)}
    figures: Figures = {"killed": run.notes["killed"], "out_of_control_s": run.notes["out_of_control_s"]}
    figures["new_owners"] = [f"{switch} by {owner}" for switch, _, owner in owner_changes(run)]
    for when, rows in around.items():
        goodput_bps = victim.tcp_goodput_bps[rows]
        figures[f"least_goodput_bps_{when}_kill"] = float(goodput_bps.min())
        figures[f"most_goodput_bps_{when}_kill"] = float(goodput_bps.max())
        figures[f"intervals_below_{when}_kill"] = int((goodput_bps < enough_bps).sum())
    return figures


def report(name: str, options: ExperimentOptions, folder: Path, runs: Sequence[ScenarioRun]) -> dict[str, Any]:
    """Write everything into ``folder``, show the table unless ``options.quiet``, and return the summary.

    The last run's figures stand at the top of the summary; those without control, if another is last, under "baseline".
    """
    done = [judged(run) for run in runs]
    summary = _summary(name, options, done)
    held = {one.label: {**one.run.seen, "warnings": one.run.notes["warnings"]} for one in done}
    _write_json(folder / "summary.json", summary)
    _write_json(folder / "manifest.json", manifest(options, experiment=name, runs=held))
    _write_series(folder / "series.csv", done)
    picture = _draw(folder / f"{name}.png", done)
    if not options.quiet:
        _show(done, picture, folder)
    return summary


def _summary(name: str, options: ExperimentOptions, done: Sequence[Judged]) -> dict[str, Any]:
    by_label, last = {one.label: one for one in done}, done[-1]
    summary: dict[str, Any] = {
        "experiment": name,
        "control": last.label,
        "fabric": options.fabric,
        "topology": options.topology,
    }
    if last.label == "dets":
        summary |= {"algorithm": options.algorithm, "parameters": dict(options.parameters)}
    summary |= {"senders": options.senders, "seed": options.seed, **last.figures}
    if last.label != "none" and "none" in by_label:
        summary["baseline"] = dict(by_label["none"].figures)
    return summary


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, default=str) + "\n")


def _write_series(path: Path, done: Sequence[Judged]) -> None:
    """One row per run and interval; time 0 is the start of the UDP sources."""
    heads = ("control", "interval", "time_s", "duration_s")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*heads, "victim_goodput_bps", "victim_wire_bps", "aggressor_wire_bps"])
        for one in done:
            victim, aggressor = (rates_at(one.run, receiver) for receiver in one.run.receivers)
            times = (victim.start_s - one.run.scenario.judged[0], victim.end_s - victim.start_s)
            rates = (victim.tcp_goodput_bps, victim.wire_bps, aggressor.wire_bps)
            for row in range(len(victim.start_s)):
                shown = [*(f"{time[row]:.6f}" for time in times), *(f"{rate[row]:.0f}" for rate in rates)]
                writer.writerow([one.label, row, *shown])


def _draw(path: Path, done: Sequence[Judged]) -> Path | None:
    """Draw the picture; return its path, None where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        return None
    from experiments.evaluation.pictures import draw_isolation

    draw_isolation([(one.title, one.run) for one in done], path)
    return path


def _show(done: Sequence[Judged], picture: Path | None, folder: Path) -> None:
    """Print what a newcomer wants to know of the runs, and where the picture is."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="What the receiving node got (Mb/s)", title_justify="left")
    table.add_column("")
    for one in done:
        table.add_column(one.title, justify="right")
    for label, cells in _table_rows(done):
        table.add_row(label, *cells)
    console = Console()
    console.print(table)
    limit, allowed = (done[-1].figures[key] / 1e6 for key in ("victim_limit_bps", "victim_goodput_limit_bps"))
    meaning = f"Goodput is what TCP delivers: at most {allowed:.1f} Mb/s under a limit of {limit:g} Mb/s on the wire."
    console.print(meaning, soft_wrap=True)
    for warning in dict.fromkeys(text for one in done for text in one.run.notes["warnings"]):
        console.print(f"Note: {warning}", soft_wrap=True)
    if picture is None:
        console.print("No picture: matplotlib is not installed (pip install matplotlib)", soft_wrap=True)
    else:
        console.print(f"Picture: {picture}", soft_wrap=True)
    console.print(f"All results: {folder}", soft_wrap=True)


def _table_rows(done: Sequence[Judged]) -> list[tuple[str, list[str]]]:
    def mbps(key: str) -> list[str]:
        return [f"{one.figures[key] / 1e6:.1f}" for one in done]

    def share(figures: Figures) -> str:
        return f"{figures['victim_goodput_bps_during'] / figures['victim_goodput_limit_bps']:.0%}"

    def intervals(key: str) -> list[str]:
        counts = [one.figures[key] for one in done]
        return ["never" if count is None else f"{count} ({count * INTERVAL_S:.2f} s)" for count in counts]

    return [
        ("VLAN 1 (TCP), goodput before the UDP blast", mbps("victim_goodput_bps_before")),
        ("VLAN 1 (TCP), goodput during the UDP blast", mbps("victim_goodput_bps_during")),
        ("  as a share of what its limit allows", [share(one.figures) for one in done]),
        ("  back at 95 % after, in 55 ms intervals", intervals("victim_recovery_intervals")),
        ("  longest time below 95 %", intervals("victim_intervals_below_95_percent")),
        ("VLAN 2 (UDP), received during the blast", mbps("aggressor_received_bps_during")),
        ("  its receive limit", mbps("aggressor_limit_bps")),
    ]
