"""What an isolation experiment leaves and shows: summary.json, series.csv, a picture, a table."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.isolation import INTERVAL_S, IsolationRun

TITLES = {"none": "without control", "static": "static limits", "dets": "with DETS"}
VICTIM_COLOUR, AGGRESSOR_COLOUR = "tab:blue", "tab:red"


def write_results(
    folder: Path, summary: Mapping[str, Any], manifest: Mapping[str, Any], runs: Sequence[IsolationRun]
) -> Path | None:
    """Write everything into ``folder``; return the picture's path, None where matplotlib is not installed."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "summary.json", summary)
    _write_json(folder / "manifest.json", manifest)
    _write_series(folder / "series.csv", runs)
    return _draw(folder / f"{summary['experiment']}.png", runs)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=False, default=str) + "\n")


def _write_series(path: Path, runs: Sequence[IsolationRun]) -> None:
    """One row per run and interval; time 0 is the start of the UDP sources."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                "control",
                "interval",
                "time_s",
                "duration_s",
                "victim_goodput_bps",
                "victim_wire_bps",
                "aggressor_wire_bps",
            ]
        )
        for run in runs:
            victim, aggressor = run.victim, run.aggressor
            for row in range(len(victim.start_s)):
                times = (victim.start_s[row] - run.blast.start_s, victim.end_s[row] - victim.start_s[row])
                rates = (victim.tcp_goodput_bps[row], victim.wire_bps[row], aggressor.wire_bps[row])
                writer.writerow([run.control, row, *(f"{t:.6f}" for t in times), *(f"{r:.0f}" for r in rates)])


def _draw(path: Path, runs: Sequence[IsolationRun]) -> Path | None:
    """Draw the rates at the receiving PN over time units of 55 ms, a panel per run, as the paper's figures 2 and 5."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return None
    figure = Figure(figsize=(9, 3.6 * len(runs)), layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = figure.subplots(len(runs), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, run in zip(all_axes, runs, strict=True):
        unit = (run.victim.end_s - run.victim.start_s[0]) / INTERVAL_S
        axes.plot(unit, run.victim.tcp_goodput_bps / 1e6, color=VICTIM_COLOUR, lw=1, label="VLAN 1, TCP (goodput)")
        axes.plot(unit, run.aggressor.wire_bps / 1e6, color=AGGRESSOR_COLOUR, lw=1, label="VLAN 2, UDP (wire)")
        limits = (("victim_goodput_limit_bps", VICTIM_COLOUR), ("aggressor_limit_bps", AGGRESSOR_COLOUR))
        for key, colour in limits:
            axes.axhline(run.figures[key] / 1e6, color=colour, ls="--", lw=0.8)
        axes.set(title=TITLES[run.control], ylabel="received rate [Mb/s]", ylim=(0, None))
        axes.legend(loc="upper right", fontsize="small")
    all_axes[-1].set_xlabel("time unit (55 ms); dashed: the VLAN's receive limit, for TCP what it allows as goodput")
    figure.savefig(path, dpi=130)
    return path


def show_table(runs: Sequence[IsolationRun], picture: Path | None, folder: Path) -> None:
    """Print what a newcomer wants to know of the runs, and where the picture is."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="What the receiving node got (Mb/s)", title_justify="left")
    table.add_column("")
    for run in runs:
        table.add_column(TITLES[run.control], justify="right")
    for label, cells in _table_rows(runs):
        table.add_row(label, *cells)
    console = Console()
    console.print(table)
    limit, allowed = (runs[-1].figures[key] / 1e6 for key in ("victim_limit_bps", "victim_goodput_limit_bps"))
    meaning = f"Goodput is what TCP delivers: at most {allowed:.1f} Mb/s under a limit of {limit:g} Mb/s on the wire."
    console.print(meaning, soft_wrap=True)
    for warning in dict.fromkeys(warning for run in runs for warning in run.warnings):
        console.print(f"Note: {warning}", soft_wrap=True)
    if picture is None:
        console.print("No picture: matplotlib is not installed (pip install matplotlib)", soft_wrap=True)
    else:
        console.print(f"Picture: {picture}", soft_wrap=True)
    console.print(f"All results: {folder}", soft_wrap=True)


def _table_rows(runs: Sequence[IsolationRun]) -> list[tuple[str, list[str]]]:
    def mbps(key: str) -> list[str]:
        return [f"{run.figures[key] / 1e6:.1f}" for run in runs]

    def share(run: IsolationRun) -> str:
        return f"{run.figures['victim_goodput_bps_during'] / run.figures['victim_goodput_limit_bps']:.0%}"

    def intervals(run: IsolationRun, key: str) -> str:
        count = run.figures[key]
        return "never" if count is None else f"{count} ({count * INTERVAL_S:.2f} s)"

    return [
        ("VLAN 1 (TCP), goodput before the UDP blast", mbps("victim_goodput_bps_before")),
        ("VLAN 1 (TCP), goodput during the UDP blast", mbps("victim_goodput_bps_during")),
        ("  as a share of what its limit allows", [share(run) for run in runs]),
        ("  back at 95 % after, in 55 ms intervals", [intervals(run, "victim_recovery_intervals") for run in runs]),
        ("  longest time below 95 %", [intervals(run, "victim_intervals_below_95_percent") for run in runs]),
        ("VLAN 2 (UDP), received during the blast", mbps("aggressor_received_bps_during")),
        ("  its receive limit", mbps("aggressor_limit_bps")),
    ]
