"""The runs that figures need: their list, how each is executed, and whether an earlier one is complete.

A *run* is one experiment under one control with one seed on one fabric. Its folder gets ``summary.json`` last: a run
that has one, of the same settings, is complete and is not run again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from controller.policy.registry import make_policy
from experiments.evaluation.measures import isolation_measures, measures, phase_measures
from experiments.evaluation.oracle import oracle_of
from experiments.measure.manifest import manifest
from experiments.measure.source_digests import depends_on, scenario_digest
from experiments.runs.scenario_run import DEFAULT_SETTINGS, RunSettings, ScenarioRun, load_run
from experiments.scenarios import scenarios
from experiments.scenarios.scenario import BASELINES, CONDITIONS, Scenario, parse_control

# Userspace Open vSwitch on two cores easily carries a twentieth of the paper's rates; software switches in real time
# get the same rates, so that the two can be compared.
SCALE = {"model": 1.0, "ovs": 0.05, "wire": 0.05}
START_AND_STOP_S = {"model": 0.0, "ovs": 9.0, "wire": 4.0}
"""Expected duration of a run's start and stop, for the progress bar."""
MODEL_SPEED = 15.0  # seconds of traffic per second of CPU, about (dets bench model)

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run; ``scenario`` has the rates and the duration that it has on the fabric (``Scenario.on``)."""

    experiment: str
    control: str
    seed: int
    fabric: str
    scenario: Scenario
    settings: RunSettings = DEFAULT_SETTINGS

    @property
    def folder(self) -> Path:
        """The path of the run's folder, relative to the fabric's folder."""
        conditions = "" if self.conditions == "product" else f"@{self.conditions}"
        return Path(self.experiment) / f"{self.control.replace(' ', '-')}{conditions}" / f"seed-{self.seed}"

    @property
    def run_settings(self) -> RunSettings:
        """The effective settings: the scenario's shaping and control interval, unless ``settings`` sets them."""
        shaping, interval_ms = self.settings.shaping, self.settings.interval_ms
        return replace(
            self.settings,
            shaping=self.scenario.shaping if shaping == DEFAULT_SETTINGS.shaping else shaping,
            interval_ms=self.scenario.interval_ms if interval_ms == DEFAULT_SETTINGS.interval_ms else interval_ms,
        )

    @property
    def conditions(self) -> str:
        """The conditions of the run, one of scenario.CONDITIONS."""
        return self.scenario.conditions

    @property
    def traffic_s(self) -> float:
        """Duration of the traffic in seconds."""
        return self.scenario.duration_s

    @property
    def expected_s(self) -> float:
        """Expected duration of the run in seconds."""
        return self.traffic_s / (MODEL_SPEED if self.fabric == "model" else 1.0) + START_AND_STOP_S[self.fabric]

    @property
    def depends(self) -> dict[str, str]:
        """The digest of each part of the project that the run depends on; that of its scenario as ``scenario NAME``."""
        code = depends_on(self.fabric, self.control, self.run_settings.shaping)
        return {**code, f"scenario {self.experiment}": _digest_of(self.scenario)}

    @property
    def digest(self) -> str:
        """The digest of the settings: another digest is another run."""
        text = repr((self.experiment, self.control, self.seed, self.fabric, self.scenario, self.settings))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def summary(self, results: Path) -> dict[str, Any] | None:
        """Return the summary of an earlier run with the same settings in the fabric's folder ``results``, or None."""
        try:
            found: dict[str, Any] = json.loads((results / self.folder / "summary.json").read_text())
        except (OSError, ValueError):
            return None
        return found if found.get("digest") == self.digest else None

    def load(self, results: Path) -> ScenarioRun:
        """Return the columns of a complete run."""
        return load_run(results / self.folder, self.scenario, self.control, self.fabric, self.seed)


def _digest_of(scenario: Scenario) -> str:
    """Return a scenario's digest without its number of seeds, which a run does not depend on."""
    plain = replace(scenario.with_conditions("product"), seeds=1, emulated_seeds=1)
    return scenario_digest(plain, scenario.shaping, scenario.interval_ms)


def scenario_digest_on(fabric: str, name: str) -> str:
    """Return the digest of a scenario as it runs on a fabric; "" for an unknown name."""
    scenario = scenarios().get(name)
    return "" if scenario is None else _digest_of(scenario.on(fabric, SCALE[fabric]))


def completed_runs(fabric: str, results: Path) -> list[tuple[RunSpec, dict[str, Any]]]:
    """Return every complete run in the fabric's folder ``results``, with its summary.

    They are sorted by experiment, then by control in the scenario's order; controls that it does not name are last.
    """
    known_scenarios = scenarios()
    found = []
    for path in results.glob("*/*/seed-*/summary.json"):
        stored = json.loads(path.read_text())
        if (name := stored.get("experiment")) in known_scenarios:
            scenario = known_scenarios[name].with_conditions(stored.get("conditions", "product"))
            spec = RunSpec(name, stored["control"], stored["seed"], fabric, scenario.on(fabric, SCALE[fabric]))
            if (summary := spec.summary(results)) is not None:
                found.append((spec, summary))

    def sort_key(run: tuple[RunSpec, dict[str, Any]]) -> tuple[str, int, str, int, int]:
        """Return experiment, position of the control, control, position of the conditions, and seed of a run."""
        spec, _ = run
        controls = (*known_scenarios[spec.experiment].controls_on(fabric), spec.control)
        conditions = list(CONDITIONS).index(spec.conditions)
        return spec.experiment, controls.index(spec.control), spec.control, conditions, spec.seed

    return sorted(found, key=sort_key)


def compared_runs(fabric: str, experiments: Collection[str], seeds: int | None = None) -> list[RunSpec]:
    """Return the runs of compared experiments under every condition, from the product's to the paper's.

    ``seeds`` is the number of seeds of each control; None: the experiment's own number.
    """
    return [
        spec
        for name, scenario in scenarios().items()
        if scenario.paper_controls and name in experiments
        for condition in conditions_on(fabric)
        for spec in scenario_runs(
            name,
            scenario.with_conditions(condition),
            fabric,
            seeds,
            [control for control in scenario.paper_controls if control in scenario.controls_on(fabric)],
        )
    ]


def conditions_on(fabric: str) -> tuple[str, ...]:
    """Return the conditions that are compared on a fabric: only the model delays grants.

    Those of runs packet by packet are left out: these are experiments of their own.
    """
    without_packets = tuple(name for name, condition in CONDITIONS.items() if not condition.packets)
    return without_packets if fabric == "model" else ("product", "unshaped")


def scenario_runs(
    name: str, scenario: Scenario, fabric: str, seeds: int | None = None, controls: Sequence[str] | None = None
) -> list[RunSpec]:
    """Return the runs of one scenario on a fabric; [] if the fabric cannot run it.

    ``seeds`` is the number of seeds of each control, and None the scenario's; ``controls`` None are the scenario's.
    """
    if fabric != "model" and (scenario.job is not None or CONDITIONS[scenario.conditions].packets):
        return []
    scaled = scenario.on(fabric, SCALE[fabric])
    if fabric == "wire" and scenario.shaping != "meter":
        return []  # its hosts have no agents
    return [
        RunSpec(name, control, seed, fabric, scaled)
        for control in (scenario.controls_on(fabric) if controls is None else controls)
        for seed in range(1, (seeds or scenario.seeds_on(fabric, control)) + 1)
    ]


def execute_run(spec: RunSpec, results: Path, progress: Progress = lambda _passed_s: None) -> dict[str, Any]:
    """Execute a run and write its folder below ``results``; return its summary.

    ``progress`` is called during the run with the seconds of traffic that have passed since its last call.
    """
    folder = results / spec.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").unlink(missing_ok=True)
    run_manifest = manifest(spec.scenario, experiment=spec.experiment, control=spec.control, depends=spec.depends)
    began_s = time.process_time()
    run = run_scenario(spec, folder, progress)
    cpu_s = time.process_time() - began_s
    run.save(folder)
    oracle = oracle_of(run)
    figures = {**measures(run, oracle), **isolation_measures(run)}
    judged = {"figures": figures, "phases": phase_measures(run, oracle), "notes": run.notes}
    identity = {"experiment": spec.experiment, "control": spec.control, "seed": spec.seed, "fabric": spec.fabric}
    summary = {"digest": spec.digest, **identity, "conditions": spec.conditions, **judged, "manifest": run_manifest}
    if spec.fabric == "model":
        summary["cpu_s"] = cpu_s
    (folder / "summary.json").write_text(json.dumps(summary, indent=1, default=str) + "\n")
    return summary


def run_scenario(spec: RunSpec, folder: Path, progress: Progress = lambda _passed_s: None) -> ScenarioRun:
    """Run a scenario on the run's fabric; the files go to ``folder``, which exists."""
    arguments = (spec.scenario, spec.control, spec.seed, progress)
    if CONDITIONS[spec.conditions].packets:
        from experiments.runs.packet_run import run_packets

        return run_packets(*arguments)
    if spec.fabric == "model":
        from experiments.runs.model_run import run_on_model

        return run_on_model(*arguments, spec.run_settings, folder)
    if spec.fabric == "wire":
        from experiments.runs.wire_run import run_on_wire

        return run_on_wire(*arguments, folder, spec.run_settings)
    from experiments.runs.ovs_run import run_on_ovs

    return run_on_ovs(*arguments, folder, spec.run_settings)


def check_control(control: str) -> None:
    """Raise InvalidValueError unless a control is a baseline, or an algorithm with valid parameters."""
    algorithm, parameters = parse_control(control)
    if algorithm not in BASELINES:
        make_policy(algorithm, parameters, key="control", parameters_key="control")


def by_experiment(summaries: Sequence[dict[str, Any]]) -> Mapping[str, list[dict[str, Any]]]:
    """Return the summaries by the name of their experiment."""
    found: dict[str, list[dict[str, Any]]] = {}
    for summary in summaries:
        found.setdefault(summary["experiment"], []).append(summary)
    return found
