"""The report of ``dets bench enforcement``: a table of cases with the modes of enforcement side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.bench.enforcement.cases import ENFORCEMENT_MODES
from experiments.bench.harness import Row, markdown

RATIO = "{:.3f}"
SIDE_BY_SIDE = {  # (key, format) of a figure by its heading
    "after a step down": ("step_ratio", RATIO),
    "MeterMods/s": ("meter_mods_per_s", "{:.1f}"),
}


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table: a row per case, the modes side by side."""
    by_case: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_case.setdefault(row["case"], {})[row["way"]] = row

    # Each function below makes the cell of one column from a case's rows by mode.
    def ratio_of(mode: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda by_mode: _cell(by_mode.get(mode), "ratio", RATIO)

    def side_by_side(key: str, form: str) -> Callable[[Mapping[str, Any]], str]:
        def cell(by_mode: Mapping[str, Any]) -> str:
            shown = [_cell(by_mode.get(mode), key, form) for mode in ENFORCEMENT_MODES]
            return " / ".join(text or "-" for text in shown) if any(shown) else ""

        return cell

    def first(by_mode: Mapping[str, Any]) -> Row:
        row: Row = next(iter(by_mode.values()))
        return row

    columns = {
        "case": lambda by_mode: first(by_mode)["case"],
        "granted, Mb/s": lambda by_mode: f"{first(by_mode)['granted_bps'] / 1e6:.2f}",
        **{f"{mode}: delivered / granted": ratio_of(mode) for mode in ENFORCEMENT_MODES},
        **{heading: side_by_side(key, form) for heading, (key, form) in SIDE_BY_SIDE.items()},
    }
    return markdown(list(by_case.values()), columns)


def _cell(row: Row | None, key: str, form: str) -> str:
    """Return the figure ``key`` of a row as text; "" without the row or the figure."""
    value = None if row is None else row.get(key)
    return "" if value is None else form.format(value)
