"""What benchmarks share: the bounds of options, targets, and what a run leaves behind.

A benchmark is a function ``run``. Its parameters are the options of ``dets bench NAME``, each annotated with its help
(``experiments.benches``), the first line of its docstring says what it measures, and it returns what ``finished`` does.
"""

from __future__ import annotations

import csv
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from controller.errors import InvalidValueError
from experiments.machine.cpu_usage import machine

Row = Mapping[str, Any]


class Target(NamedTuple):
    """What was aimed at: at most ``target``, or with ``least`` at least that."""

    name: str
    value: float
    unit: str
    target: float
    least: bool = False

    @property
    def met(self) -> bool:
        """Whether it is reached."""
        return bool(self.value >= self.target if self.least else self.value <= self.target)

    def row(self) -> dict[str, Any]:
        """Return it as results have it."""
        return {"name": self.name, "value": self.value, "unit": self.unit, "target": self.target, "met": self.met}


def check_bounds(**bounds: tuple[float | None, float, float]) -> None:
    """Raise InvalidValueError for an option, ``name=(value, least, most)``, outside of them; None is left out."""
    for name, (value, least, most) in bounds.items():
        if value is not None and not least <= value <= most:
            raise InvalidValueError(name, value, f"is outside {least:g} to {most:g}")


def check_known(name: str, values: Sequence[str], known: Sequence[str]) -> None:
    """Raise InvalidValueError for a value of an option that is none of those that are known."""
    for value in values:
        if value not in known:
            raise InvalidValueError(name, value, f"is not one of {', '.join(map(repr, known))}")


def check_left_out(run: Callable[..., Any], given: Row, reason: str) -> None:
    """Raise InvalidValueError for an option of ``run`` that is not what it is where it is left out."""
    for name, value in given.items():
        if value != inspect.signature(run).parameters[name].default:
            raise InvalidValueError(name, value, reason)


def finished(
    name: str,
    figures: Row,
    targets: Sequence[Target],
    settings: Row,
    output: Path | None = None,
    table: str = "",
    rows: Sequence[Row] = (),
) -> dict[str, Any]:
    """Return a run's result, and with ``output`` leave it there: NAME.json, and the table and rows there are.

    Where it ran and by which command is added to ``settings``.
    """
    made = {**settings, **machine(), "command": "dets " + " ".join(sys.argv[1:])}
    result = {"settings": made, "figures": figures, "targets": [one.row() for one in targets]}
    if output is None:
        return result
    output.mkdir(parents=True, exist_ok=True)
    (output / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    if table:
        (output / f"{name}.md").write_text(table)
    if rows:
        with (output / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)), restval="")
            writer.writeheader()
            writer.writerows(rows)
    return result


def markdown(rows: Sequence[Row], columns: Mapping[str, Callable[[Row], object]]) -> str:
    """Return rows as a Markdown table; a column is its heading, and what makes a cell of a row."""
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(str(cell(row)) for cell in columns.values()) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def spread(values: Any) -> dict[str, float]:
    """Return median, 99th percentile and most of an array."""
    p50, p99 = np.percentile(values, (50, 99))
    return {"p50": float(p50), "p99": float(p99), "max": float(np.max(values))}


def missed_intervals(before: Row, after: Row) -> int:
    """Return in how many intervals no round began, between two answers of ``/v1/loop``.

    There should have been so many rounds between the beginnings of the last round before and the last one after, on
    the controller's clock, less those there were.
    """
    intervals: float = (after["last"]["started_s"] - before["last"]["started_s"]) * 1e3 / after["interval_ms"]
    return max(round(intervals) - int(after["rounds"] - before["rounds"]), 0)


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmRSS:")).split()[1]) * 1024
