"""``dets bench model``: CPU per second of a scenario on the model fabric, and the controller's part of it.

Each experiment runs for the same time under its controls. The baseline runs first, in the same process, so that the
ratio to it depends less on the machine. Some experiments run packet by packet.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from experiments.bench.harness import Target, check_bounds, check_known, finished
from experiments.evaluation.run_matrix import SCALE, RunSpec, run_scenario
from experiments.model import warn_if_not_compiled
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
MAX_CPU_S = 1.0  # per second of traffic


def run(
    experiment: Annotated[list[str] | None, "Only this one, such as 'dets-fig5 fp'; repeatable."] = None,
    baseline: Annotated[str, "The experiment that others are compared with."] = BASELINE,
    seconds: Annotated[float, "Seconds of traffic, unless the experiment is shorter."] = 5.0,
) -> dict[str, Any]:
    """CPU of a second of each experiment on the model, absolute and relative to a baseline."""
    check_bounds(seconds=(seconds, 1, 60))
    warn_if_not_compiled()
    specs = {name: _spec_of(name, seconds) for name in (baseline, *(experiment or EXPERIMENTS))}
    rows: dict[str, dict[str, float]] = {}
    for name, spec in specs.items():
        began_s = time.process_time()
        with TemporaryDirectory(prefix="dets-model-") as folder:
            notes = run_scenario(spec, Path(folder)).notes
        cpu_s = (time.process_time() - began_s) / spec.scenario.duration_s
        rows[name] = {"cpu_s_per_s": cpu_s, "of_baseline": cpu_s / rows.get(baseline, {}).get("cpu_s_per_s", cpu_s)}
        if "controller_cpu_s" in notes:
            rows[name]["controller_cpu_s_per_s"] = notes["controller_cpu_s"] / spec.scenario.duration_s
    targets = [Target(name, row["cpu_s_per_s"], "CPU s per second of traffic", MAX_CPU_S) for name, row in rows.items()]
    return finished("model", rows, targets, {"baseline": baseline, "seconds": seconds})


def _spec_of(name: str, seconds: float) -> RunSpec:
    """Return the run of an experiment and control given as "EXPERIMENT CONTROL", at most ``seconds`` of traffic."""
    experiment, _, control = name.partition(" ")
    known_scenarios = scenarios()
    check_known("experiment", [experiment], list(known_scenarios))
    scenario = replace(known_scenarios[experiment], isolation=None, phases={})
    scenario = scenario.lasting(min(seconds, scenario.duration_s)).on("model", SCALE["model"])
    return RunSpec(experiment, control or scenario.controls[0], 1, "model", scenario)
