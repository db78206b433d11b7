"""The report of ``dets bench enforcement``: a table with the modes side by side, and a panel per schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.bench.enforcement.cases import ENFORCEMENT_MODES
from experiments.bench.harness import Row, markdown

RATIO = "{:.3f}"
SIDE_BY_SIDE = {
    "after a step down": ("step_ratio", RATIO),
    "MeterMods/s": ("meter_mods_per_s", "{:.1f}"),
    "drops/MB": ("dropped_frames_per_mb", "{:.0f}"),
    "retransmits/MB": ("retransmits_per_mb", "{:.0f}"),
    "ping p99, ms": ("ping_p99_ms", "{:.1f}"),
    "vswitchd CPU": ("vswitchd_cpu", "{:.0%}"),
}


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table: a row per case, the modes side by side."""
    by_case: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_case.setdefault(row["case"], {})[row["way"]] = row

    def ratio_of(mode: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda ways: _cell(ways.get(mode), "ratio", RATIO)

    def together(key: str, form: str) -> Callable[[Mapping[str, Any]], str]:
        def cell(ways: Mapping[str, Any]) -> str:
            shown = [_cell(ways.get(way), key, form) for way in ENFORCEMENT_MODES]
            return " / ".join(text or "-" for text in shown) if any(shown) else ""

        return cell

    def first(ways: Mapping[str, Any]) -> Row:
        row: Row = next(iter(ways.values()))
        return row

    columns = {
        "case": lambda ways: first(ways)["case"],
        "granted, Mb/s": lambda ways: f"{first(ways)['granted_bps'] / 1e6:.2f}",
        **{f"{way}: delivered / granted": ratio_of(way) for way in ENFORCEMENT_MODES},
        **{title: together(*titles) for title, titles in SIDE_BY_SIDE.items()},
    }
    return markdown(list(by_case.values()), columns)


def _cell(row: Row | None, key: str, form: str) -> str:
    value = None if row is None else row.get(key)
    return "" if value is None else form.format(value)
