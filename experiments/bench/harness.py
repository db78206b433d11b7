"""Shared code of benchmarks: the bounds of options, targets, and the files of a run.

A benchmark is a function ``run``. Its parameters are the options of ``dets bench NAME``, each annotated with its help
(``experiments.benches``), the first line of its docstring names what it measures, and it returns the value of
``finished``.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from controller.errors import InvalidValueError
from experiments.machine.cpu_usage import machine

Row = Mapping[str, Any]


class Target(NamedTuple):
    """A target: the value is to be at most ``target``, or with ``least`` at least ``target``."""

    name: str
    value: float
    unit: str
    target: float
    least: bool = False

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return bool(self.value >= self.target if self.least else self.value <= self.target)

    def row(self) -> dict[str, Any]:
        """Return the target as a row of the results."""
        return {"name": self.name, "value": self.value, "unit": self.unit, "target": self.target, "met": self.met}


def check_bounds(**bounds: tuple[float | None, float, float]) -> None:
    """Raise InvalidValueError for an option outside its bounds, ``name=(value, minimum, maximum)``; None is allowed."""
    for name, (value, minimum, maximum) in bounds.items():
        if value is not None and not minimum <= value <= maximum:
            raise InvalidValueError(name, value, f"is outside {minimum:g} to {maximum:g}")


def check_known(name: str, values: Sequence[str], known: Sequence[str]) -> None:
    """Raise InvalidValueError for a value of an option that is not among ``known``."""
    for value in values:
        if value not in known:
            raise InvalidValueError(name, value, f"is not one of {', '.join(map(repr, known))}")


def check_left_out(run: Callable[..., Any], options: Row, reason: str) -> None:
    """Raise InvalidValueError for an option of ``run`` that differs from its default."""
    for name, value in options.items():
        if value != inspect.signature(run).parameters[name].default:
            raise InvalidValueError(name, value, reason)


def finished(
    name: str,
    figures: Row,
    targets: Sequence[Target],
    settings: Row,
    output: Path | None = None,
    columns: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a run's result; with ``output`` also write it there, as NAME.json.

    With ``columns`` (``markdown``) the figures' "rows" are also printed as a table and written, as NAME.md. The machine
    and the command are added to ``settings``.
    """
    all_settings = {**settings, **machine(), "command": "dets " + " ".join(sys.argv[1:])}
    result = {"settings": all_settings, "figures": figures, "targets": [target.row() for target in targets]}
    if output is None:
        return result
    output.mkdir(parents=True, exist_ok=True)
    (output / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    if columns is not None:
        table = markdown(figures["rows"], columns)
        print(table)
        (output / f"{name}.md").write_text(table)
    return result


def markdown(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """Return rows as a Markdown table; ``columns`` are format strings of a row's figures, by heading.

    A cell whose figure a row does not have, or has as None, is empty.
    """

    def cell(row: Row, form: str) -> str:
        try:
            return form.format_map(row)
        except (KeyError, TypeError):
            return ""

    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(cell(row, form) for form in columns.values()) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def best_s(call: Callable[[], object], budget_s: float, max_calls: int = 200) -> float:
    """Return the shortest duration of a call in seconds; it is called within the budget, but three times at least."""
    durations_s: list[float] = []
    while len(durations_s) < 3 or (sum(durations_s) < budget_s and len(durations_s) < max_calls):
        start_s = time.perf_counter()
        call()
        durations_s.append(time.perf_counter() - start_s)
    return min(durations_s)


def spread(values: Any) -> dict[str, float]:
    """Return median, 99th percentile and maximum of an array."""
    p50, p99 = np.percentile(values, (50, 99))
    return {"p50": float(p50), "p99": float(p99), "max": float(np.max(values))}


def missed_intervals(before: Row, after: Row) -> int:
    """Return in how many intervals no round began, between two responses of ``/v1/loop``.

    The expected rounds are those between the beginnings of the last round before and of the last round after, on the
    controller's clock; the actual rounds are subtracted.
    """
    intervals: float = (after["last"]["started_s"] - before["last"]["started_s"]) * 1e3 / after["interval_ms"]
    return max(round(intervals) - int(after["rounds"] - before["rounds"]), 0)


def resident_bytes(pid: int, field: str = "VmRSS") -> int:
    """Return the resident memory of a process; with the field "VmHWM" the most so far (proc(5), status)."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith(f"{field}:")).split()[1]) * 1024
