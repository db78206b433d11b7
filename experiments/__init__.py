"""Experiments on emulated fabrics, and benchmarks.

Start with ``run`` here, scenarios/scenario.py (what is run) and runs/scenario_run.py (how); demo.py is ``make demo``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.evaluation.result import Result, RunProgress
    from experiments.runs.scenario_run import RunSettings
    from experiments.scenarios.scenario import Scenario


def run(
    scenario: Scenario | str,
    controls: str | Sequence[str] | None = None,
    *,
    fabric: str = "model",
    seeds: int | Sequence[int] = 1,
    folder: Path | str | None = None,
    settings: RunSettings | None = None,
    placed: bool = False,
    progress: RunProgress = lambda _number, _passed_s: None,
) -> Result:
    """Run a scenario, given as such or by its name, under one or several controls, such as ``"fp d=4"``.

    ``controls`` None: those that the scenario names. ``fabric`` is ``model``, ``wire`` or ``ovs``. ``seeds`` is one
    seed or several. ``folder`` keeps the files of each run, below EXPERIMENT/CONTROL/seed-N; None: the files are
    deleted. A scenario that is ``placed`` has rates and a duration that the fabric can carry; any other scenario is
    scaled to the fabric. Raises InvalidValueError naming the argument.
    """
    from tempfile import TemporaryDirectory

    from experiments.evaluation.result import execute_runs, placed_scenario
    from experiments.runs.scenario_run import DEFAULT_SETTINGS
    from experiments.scenarios import scenario_named

    unscaled = scenario_named(scenario) if isinstance(scenario, str) else scenario
    on_fabric = unscaled if placed else placed_scenario(unscaled, fabric)
    requested = (
        unscaled.controls_on(fabric) if controls is None else [controls] if isinstance(controls, str) else controls
    )
    chosen = [*dict.fromkeys(requested)]
    numbers = [seeds] if isinstance(seeds, int) else [*dict.fromkeys(seeds)]
    with TemporaryDirectory(prefix="dets-run-") as scratch:
        run_folder = Path(folder or scratch)
        return execute_runs(on_fabric, chosen, numbers, fabric, settings or DEFAULT_SETTINGS, run_folder, progress)
