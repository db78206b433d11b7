"""The output of ``dets experiment`` next to the folders of its runs: summary, series, a plot, a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.evaluation.claims import Measured
from experiments.evaluation.result import Result
from experiments.experiment_options import ExperimentOptions
from experiments.figures.result_digests import table_of
from experiments.measure.manifest import manifest
from experiments.scenarios.scenario import BASELINES, INTERVAL_S, Scenario

TITLES = {"none": "without control", "static": "static limits"}
Summaries = Mapping[str, dict[str, Any]]
"""The summaries of runs by their controls."""


def titles(controls: Sequence[str]) -> dict[str, str]:
    """Return the displayed names of controls; the only one besides the baselines is DETS."""
    algorithms = [control for control in controls if control not in BASELINES]
    return {
        **TITLES,
        **({algorithms[0]: "with DETS"} if len(algorithms) == 1 else {control: control for control in algorithms}),
    }


def report(name: str, options: ExperimentOptions, folder: Path, result: Result) -> None:
    """Write a result with one seed into ``folder``, and show it unless ``options.quiet``."""
    done = {summary["control"]: dict(summary) for summary in result.summaries}
    title_of = titles([*done])
    _write_json(folder / "summary.json", done)
    _write_json(folder / "manifest.json", manifest(options, experiment=name))
    picture = _draw(result, title_of, folder / f"{name}.png")
    if options.quiet:
        return
    console = Console()
    if result.scenario.isolation is None:
        console.print(_table(name, done))
    else:
        console.print(_isolation_table(result.scenario, title_of, done))
        figures = next(iter(done.values()))["figures"]
        limit, allowed = (figures[key] / 1e6 for key in ("victim_limit_bps", "victim_goodput_limit_bps"))
        meaning = (
            f"Goodput is what TCP delivers: at most {allowed:.1f} Mb/s under a limit of {limit:g} Mb/s on the wire."
        )
        console.print(meaning, soft_wrap=True)
    for warning in dict.fromkeys(text for run in done.values() for text in run["notes"].get("warnings", [])):
        console.print(f"Note: {warning}", soft_wrap=True)
    if picture is None:
        console.print("No picture: matplotlib is not installed (pip install matplotlib)", soft_wrap=True)
    else:
        console.print(f"Picture: {picture}", soft_wrap=True)
    console.print(f"All results: {folder}", soft_wrap=True)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON to a file."""
    path.write_text(json.dumps(content, indent=1, default=str) + "\n")


def _draw(result: Result, title_of: Mapping[str, str], path: Path) -> Path | None:
    """Draw the plot; return its path, or None if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        return None
    return result.draw(path, title_of)


def _table(name: str, done: Summaries) -> Table:
    """Return a table of the measures: a row for each measure, a column for each control."""
    heading, *rows = table_of(Measured([*done.values()]), name, [*done])
    table = Table(title=name, title_justify="left")
    table.add_column()
    for control in done:
        table.add_column(control, justify="right")
    # Transposed; the first two rows are then the names of the controls and their numbers of seeds.
    for measures in list(zip(heading, *rows, strict=True))[2:]:
        table.add_row(*measures)
    return table


def _isolation_table(scenario: Scenario, title_of: Mapping[str, str], done: Summaries) -> Table:
    """Return a table of an isolation scenario's runs, for readers who are new to DETS: a column for each run."""
    table = Table(title="What the receiving node got (Mb/s)", title_justify="left")
    table.add_column("")
    for control in done:
        table.add_column(title_of[control], justify="right")

    def mbps(key: str) -> list[str]:
        return [f"{run['figures'][key] / 1e6:.1f}" for run in done.values()]

    def intervals(key: str) -> list[str]:
        counts = [run["figures"][key] for run in done.values()]
        return ["never" if count is None else f"{count} ({count * INTERVAL_S:.2f} s)" for count in counts]

    parts = [(run["figures"]["victim_goodput_bps_during"], run["figures"]["victim_goodput_limit_bps"])
             for run in done.values()]  # fmt: skip
    tcp, udp = (f"VLAN {vid}" for vid in list(scenario.limits)[:2])
    for label, shown in (
        (f"{tcp} (TCP), goodput before the UDP blast", mbps("victim_goodput_bps_before")),
        (f"{tcp} (TCP), goodput during the UDP blast", mbps("victim_goodput_bps_during")),
        ("  as a share of what its limit allows", [f"{goodput / limit:.0%}" for goodput, limit in parts]),
        ("  back at 95 % after, in 55 ms intervals", intervals("victim_recovery_intervals")),
        ("  longest time below 95 %", intervals("victim_intervals_below_95_percent")),
        (f"{udp} (UDP), received during the blast", mbps("aggressor_received_bps_during")),
        ("  its receive limit", mbps("aggressor_limit_bps")),
    ):
        table.add_row(label, *shown)
    return table
