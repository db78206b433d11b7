"""What the command line shows as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def print_bench(result: Mapping[str, Any], console: Console | None = None) -> None:
    """Print a benchmark's figures and how they compare with its targets."""
    console = console or Console()
    figures = Table(title=f"bench {result['name']}", title_justify="left")
    figures.add_column("figure")
    figures.add_column("value", justify="right")
    for name, value in _flat(result.get("figures", {})):
        figures.add_row(name, _shown(value))
    console.print(figures)
    targets = Table(title="targets", title_justify="left")
    for column in ("target", "value", "wanted", "unit", "met"):
        targets.add_column(column)
    for row in result.get("targets", []):
        verdict = "[green]yes[/green]" if row["met"] else "[red]no[/red]"
        targets.add_row(str(row["name"]), _shown(row["value"]), _shown(row["target"]), str(row["unit"]), verdict)
    console.print(targets)


def print_replay(result: Mapping[str, Any], console: Console | None = None) -> None:
    """Print whether a replay decided the same, and the differences to another algorithm."""
    console = console or Console()
    said = f"{result['intervals']} intervals, {result['seconds']:g} s: "
    said += "every decision is the recorded one, bit for bit"
    if not result["same"]:
        said = f"{result['intervals']} intervals: decided otherwise, first in interval {result['first_other']}"
    console.print(said)
    if result["algorithm"] is None:
        return
    table = Table(title=f"limits in force and as {result['algorithm']} would set them, Mb/s", title_justify="left")
    means = ("in force, mean", f"{result['algorithm']}, mean", "largest difference")
    for column in ("VLAN", "from", "to", "intervals", *means):
        table.add_column(column, justify="left" if column in ("from", "to") else "right")
    for row in result["differences"]:
        rates = (f"{row[name] / 1e6:.3f}" for name in ("mean_bps", "other_mean_bps", "largest_bps"))
        table.add_row(str(row["vlan"]), row["from"], row["to"], str(row["intervals"]), *rates)
    console.print(table)


def _flat(figures: Any, prefix: str = "") -> list[tuple[str, Any]]:
    pairs = figures.items() if isinstance(figures, Mapping) else enumerate(figures)
    rows: list[tuple[str, Any]] = []
    for key, value in pairs:
        name = f"{prefix}{key}"
        nested = isinstance(value, Mapping | list)
        rows += _flat(value, f"{name}.") if nested else [(name, value)]
    return rows


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
