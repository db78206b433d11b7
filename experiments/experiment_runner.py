"""``dets experiment NAME``: one scenario with one seed on one fabric, a cell for each of the controls asked for.

Figures 2 and 5 are scenarios whose senders, rates and durations can be set.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from controller import plugins
from controller.errors import InvalidValueError
from experiments.evaluation.run_matrix import SCALE, RunSpec, execute_run
from experiments.experiment_options import ExperimentOptions
from experiments.isolation_report import report, titles
from experiments.runs.scenario_run import RunSettings
from experiments.scenarios import scenarios
from experiments.scenarios.dets_fig5 import joined_by_udp
from experiments.scenarios.scenario import BASELINES, Scenario

SET_BY_OPTIONS = ("dets-fig2", "dets-fig5")
RATES = ("link_rate", "victim_limit", "aggressor_limit", "udp_rate")
SPECIAL_OPTIONS = ("senders", *RATES, "duration", "warmup", "cooldown", "topology", "static")
UNUSED_ON = {"ovs": ("slot",), "wire": ("datapath", "shaping"), "model": ("datapath",)}
UNUSED_BY = {"dets-fig2": ("algorithm", "parameter", "interval_ms", "baseline", "static")}


def run(
    name: str, options: ExperimentOptions, given: Collection[str] = (), kill_at_s: float | None = None
) -> dict[str, Any]:
    """Run it, write the output folder, show a table unless ``options.quiet``, and return the summaries by control.

    With ``kill_at_s`` three controllers share the switches out, and the one that owns the receiver's is killed so long
    after the traffic began.
    ``given`` names the options that the user gave, as the command line has them: InvalidValueError for one that means
    nothing here, and for a name that there is none of.
    """
    known = scenarios()
    if name not in known and (fault := plugins.fault_of(name, plugins.SCENARIOS)):
        raise InvalidValueError("NAME", name, f"is not loaded: {fault}")
    if name not in known:
        raise InvalidValueError("NAME", name, f"is not an experiment: write one of {', '.join(known)}")
    options = options.checked()
    _refuse(given, options, UNUSED_BY.get(name, ()), f"means nothing to {name}, which runs without control")
    _refuse(given, options, UNUSED_ON[options.fabric], f"means nothing on the {options.fabric} fabric")
    if name not in SET_BY_OPTIONS:
        says = f"means nothing to {name}, whose file in experiments/scenarios says it"
        _refuse(given, options, (*SPECIAL_OPTIONS, *(("parameter",) if "algorithm" not in given else ())), says)
    if known[name].shaping != "meter":
        _refuse(given, options, ("shaping",), f"means nothing to {name}, whose file in experiments/scenarios says it")
    announce = None if options.quiet else _announce
    grain = options.slot_s, options.congestion_control, options.datapath, options.shaping, options.interval_ms
    settings = RunSettings(*grain, kill_at_s=kill_at_s, announce=announce)
    folder = options.output or Path("results") / name
    cells = _cells(known[name], options, settings, "algorithm" in given)
    with _Progress(options.quiet, cells) as progress:
        done = {cell.control: execute_run(cell, folder, progress.callback(number)) for number, cell in enumerate(cells)}
    report(name, options, folder, cells, done)
    return done


def _announce(rest_url: str) -> None:
    print(f"The live page of this run: {rest_url}/ui", file=sys.stderr, flush=True)


def _refuse(given: Collection[str], options: ExperimentOptions, unused: tuple[str, ...], reason: str) -> None:
    for key in unused:
        if key in given:
            raise InvalidValueError(key, options.value_of(key), reason)


def _cells(scenario: Scenario, options: ExperimentOptions, settings: RunSettings, chosen: bool) -> list[RunSpec]:
    if scenario.name in SET_BY_OPTIONS:
        wanted = {"none": options.baseline, "static": options.static, options.control: True}
        controls = [control for control, is_wanted in wanted.items() if is_wanted]
        controls = ["none"] if scenario.name == "dets-fig2" else controls
        scenario = _set_by(scenario, options)
    else:
        controls = [*BASELINES, options.control] if chosen else [*scenario.controls_on(options.fabric)]
        controls = [control for control in controls if options.baseline or control not in BASELINES]
        asked = dataclasses.replace(scenario, queues=scenario.queues and options.has_queues)
        scenario = asked.on(options.fabric, SCALE[options.fabric])
    return [RunSpec(scenario.name, control, options.seed, options.fabric, scenario, settings) for control in controls]


def _set_by(scenario: Scenario, options: ExperimentOptions) -> Scenario:
    """Return figure 2 or 5 as the options have it."""
    return joined_by_udp(
        scenario.name,
        scenario.title,
        topology=options.topology,
        senders=options.senders,
        link_rate_bps=options.link_rate_bps,
        victim_limit_bps=options.victim_limit_bps,
        aggressor_limit_bps=options.aggressor_limit_bps,
        udp_rate_bps=options.udp_rate_bps,
        warmup_s=options.warmup_s,
        blast_s=options.blast_s,
        cooldown_s=options.cooldown_s,
        queues=options.has_queues,
    )


class _Progress:
    """A bar on stderr for each run, with its phase and the time left; a context manager."""

    def __init__(self, quiet: bool, cells: list[RunSpec]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), disable=quiet)
        called = titles(cells)
        self._runs = [(called[cell.control], cell.scenario) for cell in cells]
        self._tasks = [self._bar.add_task(title, total=scenario.duration_s) for title, scenario in self._runs]

    def __enter__(self) -> _Progress:
        self._bar.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._bar.__exit__(*exception)

    def callback(self, number: int) -> Any:
        """Return what is called with the seconds of traffic that have passed since the last call."""
        title, scenario = self._runs[number]
        task, at_s = self._tasks[number], 0.0

        def passed(passed_s: float) -> None:
            nonlocal at_s
            at_s += passed_s
            phase = scenario.phase_at(at_s)
            self._bar.update(task, advance=passed_s, description=f"{title}: {phase}" if phase else title)

        return passed
