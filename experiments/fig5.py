"""Figure 5 of the DETS paper: with control, TCP keeps its rate while UDP of another VLAN joins."""

from __future__ import annotations

from typing import Any

from experiments.options import ExperimentOptions
from experiments.runner import run_and_report

NAME = "dets-fig5"


def run(options: ExperimentOptions) -> dict[str, Any]:
    """Run it, first without control if ``options.baseline``, under static limits if ``options.static``, then with DETS.

    Return the summary.
    """
    before = (("none", options.baseline), ("static", options.static))
    return run_and_report(NAME, options, (*(control for control, wanted in before if wanted), "dets"))
