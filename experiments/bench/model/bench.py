"""``dets bench model``: what a second of a scenario costs on the model fabric, and what of it the controller takes.

Each experiment runs for the same time under its controls; the baseline runs first, in the same process, so that a
ratio to it depends less on the machine. Experiments that run packet by packet are among them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from experiments.bench.harness import Target, check_bounds, check_known, finished
from experiments.evaluation.run_matrix import SCALE, RunSpec, run_scenario
from experiments.scenarios import scenarios

BASELINE = "seawall-fig9-alone none"
EXPERIMENTS = (
    "dets-fig5 fp",
    "dets-fig6 fp",
    "gatekeeper-fig5-rx gatekeeper",
    "hygenicc-fig3-8-tcp hygenicc",
    "hygenicc-packets-2-tcp hygenicc",
    "seawall-fig9-b66 seawall",
    "seawall-fig11-flood seawall",
)
MAX_CPU_S = 1.0  # for a second of traffic


def run(
    experiment: Annotated[list[str] | None, "Only this, as 'dets-fig5 fp'; repeatable."] = None,
    baseline: Annotated[str, "What others are compared with, likewise."] = BASELINE,
    seconds: Annotated[float, "Seconds of traffic, of experiments that last as long."] = 5.0,
) -> dict[str, Any]:
    """What a second of each experiment takes on the model, as CPU and relative to a baseline."""
    check_bounds(seconds=(seconds, 1, 60))
    cells = {name: _cell(name, seconds) for name in (baseline, *(experiment or EXPERIMENTS))}
    rows: dict[str, dict[str, float]] = {}
    for name, cell in cells.items():
        began_s = time.process_time()
        with TemporaryDirectory(prefix="dets-model-") as folder:
            notes = run_scenario(cell, Path(folder)).notes
        cpu_s = (time.process_time() - began_s) / cell.scenario.duration_s
        rows[name] = {"cpu_s_per_s": cpu_s, "of_baseline": cpu_s / rows.get(baseline, {}).get("cpu_s_per_s", cpu_s)}
        if "controller_cpu_s" in notes:
            rows[name]["controller_cpu_s_per_s"] = notes["controller_cpu_s"] / cell.scenario.duration_s
    targets = [Target(name, row["cpu_s_per_s"], "CPU s a second of traffic", MAX_CPU_S) for name, row in rows.items()]
    return finished("model", rows, targets, {"baseline": baseline, "seconds": seconds})


def _cell(name: str, seconds: float) -> RunSpec:
    experiment, _, control = name.partition(" ")
    known = scenarios()
    check_known("experiment", [experiment], list(known))
    scenario = replace(known[experiment], isolation=None, phases={})
    scenario = scenario.lasting(min(seconds, scenario.duration_s)).on("model", SCALE["model"])
    return RunSpec(experiment, control or scenario.controls[0], 1, "model", scenario)
