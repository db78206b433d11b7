"""The value of ``experiments.run``: the runs of one scenario, as arrays, as pandas tables and as a plot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.errors import InvalidValueError
from experiments.evaluation.run_matrix import SCALE, RunSpec, check_control, execute_run
from experiments.runs.scenario_run import FloatArray, RunSettings, ScenarioRun
from experiments.scenarios.scenario import SHAPINGS, Scenario

if TYPE_CHECKING:
    from pandas import DataFrame

RunProgress = Callable[[int, float], None]
"""Called with a run's number, from 0 on, and the seconds of traffic that have passed since the last call."""


@dataclass(frozen=True, slots=True)
class Result:
    """The runs of one scenario on one fabric, with the summary (``summary.json``) of each; ``scenario`` is as it ran.

    Tables need pandas (the extra ``tables`` of dets-lab); ModuleNotFoundError without it.
    """

    scenario: Scenario
    runs: tuple[ScenarioRun, ...]
    summaries: tuple[Mapping[str, Any], ...]

    def select(self, control: str | None = None, seed: int | None = None) -> ScenarioRun:
        """Return the first run under a control and with a seed; None: any. InvalidValueError if there is none."""
        for run in self.runs:
            if control in (None, run.control) and seed in (None, run.seed):
                return run
        known = ", ".join(f"{run.control} seed {run.seed}" for run in self.runs)
        raise InvalidValueError("control", f"{control} seed {seed}", f"was not run: choose from {known}")

    def arrays(self, control: str | None = None, seed: int | None = None) -> dict[str, FloatArray]:
        """Return a run's columns by name, (intervals,) each: see ``ScenarioRun.columns``."""
        return self.select(control, seed).columns()

    def series(self, control: str | None = None, seed: int | None = None) -> DataFrame:
        """Return ``arrays`` as a table, a row for each interval, by ``time_s``."""
        import pandas as pd

        return pd.DataFrame(self.arrays(control, seed)).set_index("time_s")

    def measures(self) -> DataFrame:
        """Return a row for each run, by control and seed, with the measures listed in docs/experiments.md."""
        return _table(((summary["control"], summary["seed"]), summary["figures"]) for summary in self.summaries)

    def phases(self) -> DataFrame:
        """Return a row for each run and phase, by control, seed and phase."""
        rows = [
            ((summary["control"], summary["seed"], phase), measured)
            for summary in self.summaries
            for phase, measured in summary["phases"].items()
        ]
        return _table(rows, "phase")

    def draw(self, path: Path | str, titles: Mapping[str, str] | None = None) -> Path:
        """Draw a row for each control, of its lowest seed, and return the plot's path. Needs matplotlib.

        ``titles`` are those of controls if the scenario has ``isolation``; None: the algorithms' own.
        """
        from experiments.evaluation.plots import draw_isolation, draw_scenario, in_order, title_of

        if self.scenario.isolation is None:
            draw_scenario(self.runs, Path(path))
        elif titles is None:
            draw_isolation([(title_of(run.control), run) for run in in_order(self.runs)], Path(path))
        else:
            draw_isolation([(titles[run.control], run) for run in self.runs], Path(path))
        return Path(path)


def _table(rows: Iterable[tuple[tuple[Any, ...], Mapping[str, Any]]], *more: str) -> DataFrame:
    """Return a table of (key, measures by name) rows; a key is control, seed, and a value for each name in ``more``."""
    import pandas as pd

    listed = [*rows]
    names = ["control", "seed", *more]
    index = pd.MultiIndex.from_tuples([key for key, _ in listed], names=names) if listed else None
    return pd.DataFrame([measured for _, measured in listed], index=index)


def execute_runs(
    scenario: Scenario,
    controls: Sequence[str],
    seeds: Sequence[int],
    fabric: str,
    settings: RunSettings,
    folder: Path,
    progress: RunProgress,
) -> Result:
    """Run a scenario that is placed on the fabric; the arguments are those of ``experiments.run``."""
    for key, values in (("controls", controls), ("seeds", seeds)):
        if not values:
            raise InvalidValueError(key, [*values], "is empty: nothing would run")
    if fabric not in SCALE:
        raise InvalidValueError("fabric", fabric, f"is not one of {', '.join(SCALE)}")
    if settings.shaping not in SHAPINGS:
        raise InvalidValueError("shaping", settings.shaping, f"is not one of {', '.join(SHAPINGS)}")
    for control in controls:
        check_control(control)
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise InvalidValueError("seeds", seed, "is outside 0 to 2^32 - 1")
    specs = [RunSpec(scenario.name, name, seed, fabric, scenario, settings) for name in controls for seed in seeds]
    if fabric == "wire" and specs[0].run_settings.shaping != "meter":
        raise InvalidValueError(
            "fabric", fabric, "has no agents, and agents shape in this scenario: choose model or ovs"
        )
    summaries = [execute_run(spec, folder, partial(progress, number)) for number, spec in enumerate(specs)]
    return Result(scenario, tuple(spec.load(folder) for spec in specs), tuple(summaries))


def placed_scenario(scenario: Scenario, fabric: str) -> Scenario:
    """Return a scenario scaled to what a fabric can carry; InvalidValueError for an unknown fabric."""
    if fabric not in SCALE:
        raise InvalidValueError("fabric", fabric, f"is not one of {', '.join(SCALE)}")
    return scenario.on(fabric, SCALE[fabric])
