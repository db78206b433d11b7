"""The runs that the figures consist of, one by one: which there are, and how each is made or found done.

A *cell* is one experiment under one control with one seed on one fabric. Its folder gets ``summary.json`` last of all:
a cell that has one, of the same settings, is done and is not run again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.evaluation.measures import measures, oracle_of, phase_measures
from experiments.evaluation.run import ScenarioRun
from experiments.isolation import IsolationRun, run_isolation, traffic_duration_s
from experiments.measure.manifest import manifest
from experiments.options import ExperimentOptions
from experiments.scenarios import scenarios
from experiments.scenarios.scenario import BASELINES, CONTROLS, Scenario, parse_control

# Userspace Open vSwitch on two cores carries a twentieth of the paper's rates with room to spare; software switches in
# real time are given the same, so that the two can be compared.
SCALE = {"model": 1.0, "ovs": 0.05, "wire": 0.05}
START_AND_STOP_S = {"model": 0.0, "ovs": 9.0, "wire": 4.0}
MODEL_SPEED = 5.0  # seconds of traffic in one of computing, about
BLAST_S = 9  # TCP that starves backs off in time-outs that double; what it has is told after some of these
EMULATED_SEEDS = 10  # for figure 5, whose recovery is a matter of luck as well

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run. ``isolation`` is for figures 2 and 5, ``scenario`` for all others."""

    experiment: str
    control: str
    seed: int
    fabric: str
    scenario: Scenario | None = None
    isolation: ExperimentOptions | None = None

    @property
    def folder(self) -> Path:
        """Where it stands below the fabric's folder."""
        return Path(self.experiment) / self.control.replace(" ", "-") / f"seed-{self.seed}"

    @property
    def traffic_s(self) -> float:
        """How long its traffic lasts."""
        if self.scenario is not None:
            return self.scenario.duration_s
        assert self.isolation is not None
        return traffic_duration_s(self.isolation)

    @property
    def expected_s(self) -> float:
        """How long it takes, about."""
        return self.traffic_s / (MODEL_SPEED if self.fabric == "model" else 1.0) + START_AND_STOP_S[self.fabric]

    @property
    def digest(self) -> str:
        """What its settings come to: another digest is another run."""
        settings = replace(self.isolation, output=Path()) if self.isolation is not None else self.scenario
        text = repr((self.experiment, self.control, self.seed, self.fabric, settings))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def summary(self, results: Path) -> dict[str, Any] | None:
        """Return what an earlier run of the same settings gave; None if there is none."""
        try:
            found: dict[str, Any] = json.loads((results / self.folder / "summary.json").read_text())
        except (OSError, ValueError):
            return None
        return found if found.get("digest") == self.digest else None


def cells(fabric: str, seeds: int | None = None) -> list[Cell]:
    """Return every cell of a fabric, the experiments in the order of their names.

    ``seeds`` is how many of each; None: what the experiment says.
    """
    found = _isolation_cells(fabric, seeds)
    for name, scenario in scenarios().items():
        found += scenario_cells(name, scenario, fabric, seeds)
    return sorted(found, key=lambda cell: cell.experiment)


def scenario_cells(
    name: str, scenario: Scenario, fabric: str, seeds: int | None = None, controls: tuple[str, ...] | None = None
) -> list[Cell]:
    """Return the cells of one scenario on a fabric."""
    own_seeds = scenario.seeds if fabric == "model" else scenario.emulated_seeds
    placed = scenario.on(fabric, SCALE[fabric])
    return [
        Cell(name, control, seed, fabric, scenario=placed)
        for control in controls or scenario.controls_on(fabric)
        for seed in range(1, (seeds or own_seeds) + 1)
    ]


def _isolation_cells(fabric: str, seeds: int | None) -> list[Cell]:
    if fabric == "model":
        options = ExperimentOptions(
            fabric=fabric,
            link_rate_bps=1_000_000_000,
            victim_limit_bps=400_000_000,
            aggressor_limit_bps=500_000_000,
            udp_rate_bps=150_000_000,
            warmup_s=6,
            blast_s=BLAST_S,
            cooldown_s=4,
        )
        controls = {control: 5 for control in CONTROLS if control != "none"}
    else:
        options = ExperimentOptions(fabric=fabric, warmup_s=5, blast_s=4, cooldown_s=1)
        controls = {"static": 1, "fp": EMULATED_SEEDS, "level": 2}
    many = 5 if fabric == "model" else 1
    starved = replace(options, blast_s=BLAST_S)
    found = [_isolation_cell("dets-fig2", "none", seed, starved) for seed in range(1, (seeds or many) + 1)]
    for control, count in controls.items():
        found += [_isolation_cell("dets-fig5", control, seed, options) for seed in range(1, (seeds or count) + 1)]
    return found


def _isolation_cell(name: str, control: str, seed: int, options: ExperimentOptions) -> Cell:
    if control not in BASELINES:
        algorithm, parameters = parse_control(control)
        options = replace(options, algorithm=algorithm, parameters=parameters)
    return Cell(name, control, seed, options.fabric, isolation=replace(options, seed=seed))


def run_cell(cell: Cell, results: Path, progress: Progress = lambda _passed_s: None) -> dict[str, Any]:
    """Run a cell and write its folder; return its summary."""
    folder = results / cell.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").unlink(missing_ok=True)
    made_with = manifest(cell.isolation or cell.scenario, experiment=cell.experiment, control=cell.control)
    if cell.scenario is not None:
        run = run_scenario(cell, folder, progress)
        run.save(folder)
        oracle = oracle_of(run)
        summary = {"figures": measures(run, oracle), "phases": phase_measures(run, oracle), "notes": run.notes}
    else:
        isolation = _run_isolation(cell, folder, progress)
        _save_series(folder, isolation)
        summary = {"figures": isolation.figures, "phases": {}, "notes": {"warnings": isolation.warnings}}
    names = {"experiment": cell.experiment, "control": cell.control, "seed": cell.seed, "fabric": cell.fabric}
    summary = {"digest": cell.digest, **names, **summary, "manifest": made_with}
    (folder / "summary.json").write_text(json.dumps(summary, indent=1, default=str) + "\n")
    return summary


def run_scenario(cell: Cell, folder: Path, progress: Progress) -> ScenarioRun:
    """Run a scenario on the cell's fabric."""
    assert cell.scenario is not None
    if cell.fabric == "model":
        from experiments.evaluation.on_model import run_on_model

        return run_on_model(cell.scenario, cell.control, cell.seed, progress)
    if cell.fabric == "wire":
        from experiments.evaluation.on_wire import run_on_wire

        return run_on_wire(cell.scenario, cell.control, cell.seed, progress, folder)
    from experiments.evaluation.on_ovs import run_on_ovs

    return run_on_ovs(cell.scenario, cell.control, cell.seed, progress, folder)


def _run_isolation(cell: Cell, folder: Path, progress: Progress) -> IsolationRun:
    assert cell.isolation is not None
    control = cell.control if cell.control in BASELINES else "dets"
    return run_isolation(cell.isolation, control, folder, lambda _phase, passed_s: progress(passed_s))


def _save_series(folder: Path, run: IsolationRun) -> None:
    """Write what the picture is drawn from."""
    np.savez_compressed(
        folder / "series.npz",
        time_s=run.victim.end_s - run.victim.start_s[0],
        victim_bps=run.victim.tcp_goodput_bps,
        aggressor_bps=run.aggressor.wire_bps,
    )


def by_experiment(summaries: list[dict[str, Any]]) -> Mapping[str, list[dict[str, Any]]]:
    """Return the summaries by the name of their experiment."""
    found: dict[str, list[dict[str, Any]]] = {}
    for summary in summaries:
        found.setdefault(summary["experiment"], []).append(summary)
    return found
