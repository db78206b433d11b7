"""The experiments by name, and where their code stands; nothing of it is imported before its turn.

An experiment is a function ``run(options: ExperimentOptions) -> dict`` that writes its output folder, shows its result
and returns its summary. To add one: write it, and add a line here. Benchmarks stand in ``apps/cli/commands/bench.py``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from controller.errors import InvalidValueError


@dataclass(frozen=True, slots=True)
class Entry:
    """``target`` is ``module:function``; ``unused`` names the options that mean nothing to an experiment."""

    target: str
    summary: str
    unused: tuple[str, ...] = ()

    def load(self) -> Callable[..., dict[str, Any]]:
        """Import the module and return the function."""
        module, _, function = self.target.partition(":")
        loaded: Callable[..., dict[str, Any]] = getattr(importlib.import_module(module), function)
        return loaded


experiments: Mapping[str, Entry] = {
    "dets-fig2": Entry(
        "experiments.fig2:run",
        "no control: a TCP tenant starves once another tenant sends UDP",
        unused=("algorithm", "parameter", "baseline", "static"),
    ),
    "dets-fig5": Entry("experiments.fig5:run", "control: the same TCP tenant keeps its rate"),
}


def find(kind: str, entries: Mapping[str, Entry], name: str) -> Entry:
    """Return the entry of that name; raise InvalidValueError naming those there are."""
    if name not in entries:
        raise InvalidValueError("NAME", name, f"is not {kind}: write one of {', '.join(entries)}")
    return entries[name]
