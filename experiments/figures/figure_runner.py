"""``dets figures``: every figure and claim of a paper on one fabric; complete runs are not run again."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from controller.errors import InvalidValueError
from experiments.evaluation.claims import MIN_SEEDS
from experiments.evaluation.run_matrix import (
    SCALE,
    RunSpec,
    by_experiment,
    check_control,
    compared_runs,
    completed_runs,
    execute_run,
    scenario_runs,
)
from experiments.measure.manifest import ROOT
from experiments.model import warn_if_not_compiled
from experiments.papers import DEFAULT, experiments_of, paper_named
from experiments.scenarios import scenarios
from experiments.scenarios.scenario import Scenario

FABRICS = ("model", "ovs", "wire")
MAX_SEEDS = 1000
MAX_ADDED_SEED, SEEDS_AT_ONCE = 10, 2
"""The runs of an undecided claim get SEEDS_AT_ONCE more seeds at a time, up to MAX_ADDED_SEED; the first seed is 1."""


@dataclass(frozen=True, slots=True)
class FigureOptions:
    """What to run: ``experiments`` of a paper by name (none: all), under ``controls`` (none: each experiment's own).

    ``seeds`` is the number of seeds of each run. None: the experiment's own number; on the model MIN_SEEDS, and up to
    MAX_ADDED_SEED of the runs that leave a claim undecided.

    ``conditions`` are "product", "paper" (with those between, to show which of them decides) or "both". ``force``
    repeats complete runs. Pictures go to ``results``, pages to ``docs``. ``workers`` is the number of parallel
    processes on the model; None: one for each processor.
    """

    paper: str = DEFAULT
    fabric: str = "model"
    experiments: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    seeds: int | None = None
    conditions: str = "both"
    force: bool = False
    results: Path = ROOT / "results"
    docs: Path = ROOT / "docs"
    workers: int | None = None
    quiet: bool = False

    def chosen(self) -> list[RunSpec]:
        """Return the requested runs; raise InvalidValueError for an unknown name."""
        if self.fabric not in FABRICS:
            raise InvalidValueError("fabric", self.fabric, f"is not one of {', '.join(FABRICS)}")
        if self.seeds is not None and not 1 <= self.seeds <= MAX_SEEDS:
            raise InvalidValueError("seeds", self.seeds, f"is outside 1 to {MAX_SEEDS}")
        if self.conditions not in ("product", "paper", "both"):
            raise InvalidValueError("conditions", self.conditions, "is not one of product, paper, both")
        known = self.known
        for name in self.experiments:
            if name not in known:
                raise InvalidValueError("only", name, f"is not one of {', '.join(sorted(known))}")
        for control in self.controls:
            check_control(control)
        seeds = MIN_SEEDS if self.adds_seeds else self.seeds
        controls_of = {name: known[name].controls_on(self.fabric) for name in self.experiments or known}
        # A requested control that no experiment names runs in all of them: so a new algorithm is compared.
        named = {control for controls in controls_of.values() for control in controls}
        new_controls = [control for control in self.controls if control not in named]
        specs: list[RunSpec] = []
        if self.conditions != "paper":
            for name, names in controls_of.items():
                controls = self._controls_to_run(names, new_controls)
                specs += scenario_runs(name, known[name], self.fabric, seeds, controls)
        if self.conditions != "product":
            compared = compared_runs(self.fabric, self.experiments or known, seeds)
            specs += [spec for spec in compared if not self.controls or spec.control in self.controls]
        return list({spec.folder: spec for spec in specs}.values())

    def _controls_to_run(self, own: Sequence[str], new: Sequence[str]) -> list[str]:
        """Return the requested ones of an experiment's ``own`` controls, then the ``new`` ones."""
        return [*(control for control in own if not self.controls or control in self.controls), *new]

    @property
    def adds_seeds(self) -> bool:
        """Whether runs that leave a claim undecided get more seeds."""
        return self.seeds is None and self.fabric == "model"

    def next_seeds(self) -> list[RunSpec]:
        """Return the runs with the next seeds of the complete runs that leave a claim undecided.

        []: all claims are decided, or have all their seeds.
        """
        known = self.known
        completed = [run for run in completed_runs(self.fabric, self.runs_folder) if run[0].experiment in known]
        highest_seed: dict[tuple[str, str, str], int] = {}
        for spec, _ in completed:
            key = (spec.experiment, spec.control, spec.conditions)
            highest_seed[key] = max(highest_seed.get(key, 0), spec.seed)
        undecided = paper_named(self.paper).undecided([summary for _, summary in completed])
        specs = []
        for key in sorted(undecided & highest_seed.keys()):
            name, control, conditions = key
            requested = name in (self.experiments or known) and control in (self.controls or [control])
            if requested and highest_seed[key] < MAX_ADDED_SEED:
                seeds = min(highest_seed[key] + SEEDS_AT_ONCE, MAX_ADDED_SEED)
                specs += scenario_runs(name, known[name].with_conditions(conditions), self.fabric, seeds, [control])
        return [spec for spec in specs if spec.summary(self.runs_folder) is None]

    @property
    def known(self) -> dict[str, Scenario]:
        """The experiments of the paper; InvalidValueError for an unknown paper."""
        found = scenarios()
        return {name: found[name] for name in experiments_of(paper_named(self.paper).name, found)}

    @property
    def runs_folder(self) -> Path:
        """The folder of the fabric's runs."""
        return self.results / "figures" / self.fabric

    @property
    def command(self) -> str:
        """The command that was given."""
        given = [f"--only {name}" for name in self.experiments] + [f"--control '{name}'" for name in self.controls]
        given += [] if self.seeds is None else [f"--seeds {self.seeds}"]
        given += [] if self.conditions == "both" else [f"--conditions {self.conditions}"]
        if given:
            return " ".join(["dets figures", f"--paper {self.paper}", f"--fabric {self.fabric}", *given])
        settings = (("PAPER", self.paper, DEFAULT), ("FABRIC", self.fabric, "model"))
        return " ".join(["make figures", *(f"{key}={value}" for key, value, default in settings if value != default)])


def make_figures(options: FigureOptions) -> dict[str, Any]:
    """Execute the missing runs, then write pages and pictures; return the digest of the fabric's runs.

    Complete runs are kept after an interruption. Failed runs are reported at the end, as RuntimeError.
    """
    missing = [spec for spec in options.chosen() if options.force or spec.summary(options.runs_folder) is None]
    failures = _run(missing, options) if missing else []
    while options.adds_seeds and not failures and (more_seeds := options.next_seeds()):
        missing += more_seeds
        failures += _run(more_seeds, options)
    digest = write_digests(options)
    write_pages(options)
    if failures:
        raise RuntimeError(f"{len(failures)} of {len(missing)} runs failed, {failures[0]}")
    return digest


def write_digests(options: FigureOptions) -> dict[str, Any]:
    """Store the digests of all complete runs, and draw the pictures; return the digest of the product's conditions.

    ``options.conditions`` decides what is written: "product" the digest and pictures, "paper" the digest that compares
    the conditions, "both" all of it.
    """
    from experiments.figures.provenance import outcomes_of
    from experiments.figures.result_digests import conditions_digest, digest_of, write_digest

    known, paper, folder = options.known, paper_named(options.paper), options.docs / "results"
    completed = [run for run in completed_runs(options.fabric, options.runs_folder) if run[0].experiment in known]
    compared = [summary for spec, summary in completed if spec.control in known[spec.experiment].paper_controls]
    product = [(spec, summary) for spec, summary in completed if spec.conditions == "product"]
    all_summaries = [summary for _, summary in completed]
    digest = digest_of(paper, options.fabric, [summary for _, summary in product], options.command, all_summaries)
    digest["outcomes"] = outcomes_of(product)
    name = f"{options.paper}-{options.fabric}"
    if options.conditions != "paper":
        write_digest(folder, name, digest)
        _draw(options, product)
    if paper.compared and compared and options.conditions != "product":
        write_digest(folder, f"{name}-conditions", conditions_digest(paper, compared, digest))
    return digest


def repeat_runs(options: FigureOptions) -> list[str]:
    """Repeat one seed of each control of a paper's experiments on the model; return the names of runs that differ.

    Without a difference the digest records the current tree: pages and ``stale_pages`` then compare with that tree.
    """
    from experiments.figures.provenance import outcome_digest
    from experiments.figures.result_digests import read_digests, write_digest

    folder, known = options.docs / "results", options.known
    digest = read_digests(folder, options.paper).get("model", {})
    if options.fabric != "model" or not digest.get("outcomes"):
        raise InvalidValueError("repeat", options.fabric, "needs the model, and results with recorded outcomes")
    recorded = [
        (RunSpec(name, control, seed, "model", known[name].on("model", SCALE["model"])), outcome)
        for name, control, seed, outcome in digest["outcomes"]
        if name in known
    ]
    with TemporaryDirectory() as scratch:
        repetition = replace(options, results=Path(scratch))
        _run([spec for spec, _ in recorded], repetition)
        summaries = [spec.summary(repetition.runs_folder) for spec, _ in recorded]
    changed = [name for name, *_ in digest["outcomes"] if name not in known]
    for (spec, outcome), summary in zip(recorded, summaries, strict=True):
        if summary is None or outcome_digest(summary) != outcome:
            changed.append(_name(spec))
    if not changed:
        parts = {part: part_digest for spec, _ in recorded for part, part_digest in spec.depends.items()}
        repeated = {"runs": len(recorded), "depends": dict(sorted(parts.items()))}
        write_digest(folder, f"{options.paper}-model", {**digest, "repeated": repeated})
        write_pages(options)
    return changed


def write_pages(options: FigureOptions) -> list[Path]:
    """Write the pages of all papers from the stored digests; return them."""
    from experiments.figures.markdown_pages import write_docs

    return write_docs(options.docs)


def stale_pages(docs: Path) -> list[str]:
    """Return a line for each page that is made by another tree, or is not as it would be written, with the reason."""
    from experiments.figures.markdown_pages import page_of, pages_of, read_results
    from experiments.figures.provenance import stale_because

    results = read_results(docs / "results")
    lines = [
        f"{docs / page_of(result.paper)}, {fabric}{kind}: {why}"
        for result in results
        for kind, digests in (("", result.digests), (", conditions", result.conditions))
        for fabric, digest in digests.items()
        if (why := stale_because(digest))
    ]
    written = pages_of(docs, results)
    return lines + [
        f"{path}: not as `dets figures --pages-only` writes it"
        for path, text in written.items()
        if not path.exists() or path.read_text() != text
    ]


def _draw(options: FigureOptions, completed: Sequence[tuple[RunSpec, dict[str, Any]]]) -> None:
    """Draw the pictures of each experiment into the fabric's folder, from complete runs with their summaries."""
    from experiments.evaluation.plots import draw_trade_off, in_order
    from experiments.evaluation.result import Result

    summaries_of = by_experiment([summary for _, summary in completed])
    for name, summaries in summaries_of.items():
        specs = in_order([spec for spec, _ in completed if spec.experiment == name])
        path = options.runs_folder / f"{name}.png"
        Result(specs[0].scenario, tuple(spec.load(options.runs_folder) for spec in specs), ()).draw(path)
        if specs[0].scenario.isolation is None:
            draw_trade_off(summaries, path.with_stem(f"{name}-use-and-fairness"))


def _run(specs: Sequence[RunSpec], options: FigureOptions) -> list[str]:
    """Execute runs, on the model several at a time, with a progress bar; return a line for each failure."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[runs]}"), TimeRemainingColumn())
    failures: list[str] = []
    with Progress(*columns, console=Console(stderr=True), disable=options.quiet) as bar:
        task = bar.add_task(options.fabric, total=sum(spec.expected_s for spec in specs), runs=f"0/{len(specs)}")

        def finished(number: int, spec: RunSpec, error: BaseException | None, remaining_s: float) -> None:
            """Note the end of the ``number``-th run; the bar lacks ``remaining_s`` of its time."""
            bar.update(task, description=f"{options.fabric}: {_name(spec)}", runs=f"{number}/{len(specs)}")
            bar.advance(task, remaining_s)
            if error is not None:
                failures.append(f"{_name(spec)}: {type(error).__name__}: {error}")

        if options.fabric == "model":
            _run_side_by_side(specs, options, finished)
        else:
            for number, spec in enumerate(specs, start=1):
                bar.update(task, description=f"{options.fabric}: {_name(spec)}")
                error = _run_one(spec, options.runs_folder, lambda passed_s: bar.advance(task, passed_s))
                finished(number, spec, error, spec.expected_s - spec.traffic_s)
    return failures


def _name(spec: RunSpec) -> str:
    """Return the name of a run for messages."""
    conditions = "" if spec.conditions == "product" else f" ({spec.conditions})"
    return f"{spec.experiment} {spec.control}{conditions} seed {spec.seed}"


def _run_one(spec: RunSpec, folder: Path, progress: Callable[[float], None]) -> BaseException | None:
    """Execute a run; return its error, or None. The other runs continue; errors are reported at the end."""
    try:
        execute_run(spec, folder, progress)
    except Exception as error:  # reported at the end, by name; the other runs go on
        return error
    return None


def execute_apart(spec: RunSpec, folder: Path) -> None:
    """Execute a run in its own process; an exception becomes text, since not every exception can be sent back."""
    try:
        execute_run(spec, folder)
    except Exception as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from None


def _run_side_by_side(
    specs: Sequence[RunSpec],
    options: FigureOptions,
    finished: Callable[[int, RunSpec, BaseException | None, float], None],
) -> None:
    """Execute runs in parallel processes, the longest first.

    ``finished`` is called after each with the number of finished runs, the run, its error or None, and its expected
    seconds.
    """
    warn_if_not_compiled()
    workers = min(options.workers or os.cpu_count() or 1, len(specs))
    longest_first = sorted(specs, key=lambda spec: -spec.expected_s * len(spec.scenario.sources))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        spec_of = {pool.submit(execute_apart, spec, options.runs_folder): spec for spec in longest_first}
        try:
            for number, future in enumerate(as_completed(spec_of), start=1):
                spec = spec_of[future]
                finished(number, spec, future.exception(), spec.expected_s)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
