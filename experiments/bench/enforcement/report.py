"""What ``dets bench enforcement`` leaves: enforcement.json, a table, a CSV and a plot."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.bench.enforcement.cases import TCP_DELIVERED_WITHIN, WAYS
from experiments.bench.enforcement.grant_schedules import PATTERNS

COLOURS = {"dets": "tab:blue", "naive-200ms": "tab:red", "naive-20ms": "tab:orange"}
CSV_COLUMNS = (
    "case",
    "grant_bps",
    "traffic",
    "pattern",
    "way",
    "granted_bps",
    "delivered_bps",
    "ratio",
    "step_ratio",
    "step_first_interval_bits",
    "meter_mods_per_s",
    "dropped_frames_per_mb",
    "retransmits_per_mb",
    "ping_p50_ms",
    "ping_p99_ms",
    "ping_lost",
    "vswitchd_cpu",
    "cpu_idle_share",
)


def write_results(folder: Path, result: Mapping[str, Any]) -> None:
    """Write everything into ``folder``; without matplotlib, no plot."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = result["figures"]["rows"]
    (folder / "enforcement.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "enforcement.md").write_text(table(rows))
    with (folder / "enforcement.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, CSV_COLUMNS, extrasaction="ignore", restval="")
        writer.writeheader()
        writer.writerows(rows)
    if plot(rows, folder / "enforcement.png"):
        print(f"wrote {folder}/enforcement.png")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table: a row per case, the ways side by side."""
    by_case: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        by_case.setdefault(row["case"], {})[row["way"]] = row
    heads = ["case", "granted, Mb/s", *(f"{way}: delivered / granted" for way in WAYS), "after a step down"]
    heads += ["MeterMods/s", "drops/MB", "retransmits/MB", "ping p99, ms", "vswitchd CPU"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for case, ways in by_case.items():
        cells = [case, f"{next(iter(ways.values()))['granted_bps'] / 1e6:.2f}"]
        cells += [_cell(ways.get(way), "ratio", "{:.3f}") for way in WAYS]
        for key, form in (
            ("step_ratio", "{:.3f}"),
            ("meter_mods_per_s", "{:.1f}"),
            ("dropped_frames_per_mb", "{:.0f}"),
            ("retransmits_per_mb", "{:.0f}"),
            ("ping_p99_ms", "{:.1f}"),
            ("vswitchd_cpu", "{:.0%}"),
        ):
            shown = [_cell(ways.get(way), key, form) for way in WAYS]
            cells.append("" if not any(shown) else " / ".join(text or "-" for text in shown))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(row: Mapping[str, Any] | None, key: str, form: str) -> str:
    value = None if row is None else row.get(key)
    return "" if value is None else form.format(value)


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """Draw delivered over granted by case, a panel per pattern; return whether matplotlib is there to do it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return False
    patterns = [pattern for pattern in PATTERNS if any(row["pattern"] == pattern for row in rows)]
    longest = max(len({row["case"] for row in rows if row["pattern"] == pattern}) for pattern in patterns)
    figure = Figure(figsize=(max(8.0, 0.5 * longest), 3.2 * len(patterns)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, pattern in zip(figure.subplots(len(patterns), 1, squeeze=False)[:, 0], patterns, strict=True):
        names = list(dict.fromkeys(_short(row) for row in rows if row["pattern"] == pattern))
        axes.axhspan(1 - TCP_DELIVERED_WITHIN, 1 + TCP_DELIVERED_WITHIN, color="tab:green", alpha=0.2, lw=0)
        for way in WAYS:
            mine = [row for row in rows if row["pattern"] == pattern and row["way"] == way]
            places = [names.index(_short(row)) for row in mine]
            axes.plot(places, [row["ratio"] for row in mine], "o", ms=4, color=COLOURS[way], label=way)
        axes.set_yscale("log", base=2)
        axes.set_yticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
        axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize="x-small")
        axes.set(title=f"grant {PATTERNS[pattern]}", ylabel="delivered / granted")
        axes.grid(axis="y", lw=0.3)
        axes.legend(loc="upper right", fontsize="x-small", ncols=3)
    figure.savefig(path, dpi=130)
    return True


def _short(row: Mapping[str, Any]) -> str:
    return f"{row['grant_bps'] / 1e6:g}M {row['traffic']}"
