"""``dets experiment NAME``: one scenario with one seed on one fabric, a run for each of the controls.

In figures 2 and 5 senders, rates and durations can be set.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import experiments
from controller.errors import InvalidValueError
from experiments.evaluation.result import placed_scenario
from experiments.experiment_options import ExperimentOptions
from experiments.isolation_report import report, titles
from experiments.model import warn_if_not_compiled
from experiments.runs.scenario_run import RunSettings
from experiments.scenarios import scenario_named
from experiments.scenarios.dets_fig5 import joined_by_udp
from experiments.scenarios.scenario import BASELINES, Scenario

SET_BY_OPTIONS = ("dets-fig2", "dets-fig5")
RATES = ("link_rate", "victim_limit", "aggressor_limit", "udp_rate")
SPECIAL_OPTIONS = ("senders", *RATES, "duration", "warmup", "cooldown", "topology", "static")
UNUSED_ON = {"ovs": ("slot",), "wire": ("datapath", "shaping"), "model": ("datapath",)}
UNUSED_BY = {"dets-fig2": ("algorithm", "parameter", "interval_ms", "baseline", "static")}


def run(
    name: str, options: ExperimentOptions, set_by_user: Collection[str] = (), kill_at_s: float | None = None
) -> dict[str, Any]:
    """Run a scenario, write the output folder, show a table unless ``options.quiet``; return the summaries by control.

    With ``kill_at_s`` there are three controllers in sharded mode, and the owner of the receiver's switch is killed
    that long after the start of the traffic. ``set_by_user`` names the options that the user set, as on the command
    line: InvalidValueError for an option that means nothing here, and for an unknown scenario.
    """
    named_scenario = scenario_named(name, "NAME")
    options = options.checked()
    _reject_options(
        set_by_user, options, UNUSED_BY.get(name, ()), f"means nothing to {name}, which runs without control"
    )
    _reject_options(set_by_user, options, UNUSED_ON[options.fabric], f"means nothing on the {options.fabric} fabric")
    set_by_file = f"means nothing to {name}: its file in experiments/scenarios sets it"
    if name not in SET_BY_OPTIONS:
        unused = (*SPECIAL_OPTIONS, *(("parameter",) if "algorithm" not in set_by_user else ()))
        _reject_options(set_by_user, options, unused, set_by_file)
    if named_scenario.shaping != "meter":
        _reject_options(set_by_user, options, ("shaping",), set_by_file)
    if options.fabric == "model":
        warn_if_not_compiled()
    announce = None if options.quiet else _announce
    run_settings = options.slot_s, options.congestion_control, options.datapath, options.shaping, options.interval_ms
    settings = RunSettings(*run_settings, kill_at_s=kill_at_s, announce=announce)
    folder = options.output or Path("results") / name
    scenario = _placed(named_scenario, options)
    controls = _controls(named_scenario, options, "algorithm" in set_by_user)
    with _Progress(options.quiet, scenario, controls) as progress:
        result = experiments.run(
            scenario,
            controls,
            fabric=options.fabric,
            seeds=options.seed,
            folder=folder,
            settings=settings,
            placed=True,
            progress=progress.update,
        )
    report(name, options, folder, result)
    return {summary["control"]: dict(summary) for summary in result.summaries}


def _announce(rest_url: str) -> None:
    """Print the address of the web UI of a run."""
    print(f"Web UI of this run: {rest_url}/ui", file=sys.stderr, flush=True)


def _reject_options(
    set_by_user: Collection[str], options: ExperimentOptions, unused: tuple[str, ...], reason: str
) -> None:
    """Raise InvalidValueError if the user set an option of ``unused``."""
    for key in unused:
        if key in set_by_user:
            raise InvalidValueError(key, options.value_of(key), reason)


def _controls(scenario: Scenario, options: ExperimentOptions, chosen: bool) -> list[str]:
    """Return the controls to run; ``chosen``: the user named an algorithm."""
    if scenario.name in SET_BY_OPTIONS:
        wanted = {"none": options.baseline, "static": options.static, options.control: True}
        controls = [control for control, is_wanted in wanted.items() if is_wanted]
        return ["none"] if scenario.name == "dets-fig2" else controls
    controls = [*BASELINES, options.control] if chosen else [*scenario.controls_on(options.fabric)]
    return [control for control in controls if options.baseline or control not in BASELINES]


def _placed(scenario: Scenario, options: ExperimentOptions) -> Scenario:
    """Return the scenario with the values of the options, scaled to the fabric unless the options set its rates."""
    if scenario.name in SET_BY_OPTIONS:
        return _set_by(scenario, options)
    adapted = dataclasses.replace(scenario, queues=scenario.queues and options.has_queues)
    return placed_scenario(adapted, options.fabric)


def _set_by(scenario: Scenario, options: ExperimentOptions) -> Scenario:
    """Return figure 2 or 5 with the values of the options."""
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

    def __init__(self, quiet: bool, scenario: Scenario, controls: list[str]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), disable=quiet)
        self._scenario = scenario
        title_of = titles(controls)
        self._titles = [title_of[control] for control in controls]
        self._tasks = [self._bar.add_task(title, total=scenario.duration_s) for title in self._titles]
        self._at_s = [0.0] * len(controls)

    def __enter__(self) -> _Progress:
        self._bar.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._bar.__exit__(*exception)

    def update(self, number: int, passed_s: float) -> None:
        """Advance the bar of a run by the seconds of traffic that have passed since the last call."""
        self._at_s[number] += passed_s
        title, phase = self._titles[number], self._scenario.phase_at(self._at_s[number])
        self._bar.update(self._tasks[number], advance=passed_s, description=f"{title}: {phase}" if phase else title)
