"""Figure 2 of the DETS paper: without control, TCP starves as soon as UDP of another VLAN joins."""

from __future__ import annotations

from typing import Any

from experiments.options import ExperimentOptions
from experiments.runner import run_and_report

NAME = "dets-fig2"


def run(options: ExperimentOptions) -> dict[str, Any]:
    """Run it on the fabric asked for and return the summary, which is written to ``options.output`` too."""
    return run_and_report(NAME, options, ("none",))
