"""The claims of a paper, the aims of this project, and how both are judged from the runs of one fabric.

A claim holds (True) or fails (False) if the whole 95 % confidence interval of the seeds' mean is on one side of the
threshold, and is UNDECIDED if the threshold lies within the interval. Fewer than MIN_SEEDS seeds have no interval: then
every claim is undecided. None: the fabric has no runs that could decide. In texts, the number after "+-" is half the
width of the interval. Two controls are compared seed by seed, since a seed gives the same bursts to both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from experiments.evaluation.measures import confidence
from experiments.evaluation.run_matrix import SCALE

UNDECIDED: Literal["undecided"] = "undecided"
Outcome = bool | Literal["undecided"] | None
MIN_SEEDS = 3
"""With fewer seeds there is no confidence interval."""


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """The result on one fabric as text, whether the statement holds, and the result of the control ``Paper.best``."""

    result: str
    holds: Outcome
    best: str = "-"


Judge = Callable[["Measured"], ClaimVerdict]


@dataclass(frozen=True, slots=True)
class Published:
    """How a claim is judged as published.

    ``form`` names law and constants for the page; ``conditions`` is a key of scenario.CONDITIONS. ``decides`` are
    (name, judge) of changes that may reverse the verdict, under the same conditions.
    """

    form: str
    judge: Judge
    conditions: str = "product"
    decides: tuple[tuple[str, Judge], ...] = ()

    def of(self, summaries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return those of ``summaries`` that were run under ``conditions``."""
        return [summary for summary in summaries if summary.get("conditions", "product") == self.conditions]


@dataclass(frozen=True, slots=True)
class NotRun:
    """Why a claim is not judged as published: what is missing."""

    why: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a paper; ``section`` is where the paper makes it: a section, figure or table.

    ``judge`` judges it under this project's default law. ``published`` is its judgement as published; None: no law
    takes part, so ``judge`` applies. ``decides`` are (name, judge) of changes of law or conditions that may reverse the
    verdict of ``judge``.
    """

    key: str
    section: str
    title: str
    judge: Judge
    published: Published | NotRun | None = None
    decides: tuple[tuple[str, Judge], ...] = ()


@dataclass(frozen=True, slots=True)
class Aim:
    """A target of this project; not a claim of a paper, and not counted as one."""

    key: str
    title: str
    judge: Judge


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A table without a threshold: ``rows`` returns a heading and rows from one fabric's runs; []: no table."""

    title: str
    rows: Callable[[Measured], list[list[str]]]


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper with its claims; the names of its experiments begin with ``name``, which is also the name of its file.

    ``compared`` are claims that are judged under each of scenario.CONDITIONS too. ``best`` is a control whose results
    are shown next to the paper's, under the heading ``best_title``; "": none. ``tables`` are shown on the paper's page
    below the claims; ``note`` explains them. ``page`` is the path of the page in docs/; "": ``results/NAME.md``.
    """

    name: str
    title: str
    claims: tuple[Claim, ...]
    aims: tuple[Aim, ...] = ()
    compared: tuple[Claim, ...] = ()
    best: str = ""
    best_title: str = ""
    tables: tuple[ResultTable, ...] = ()
    note: str = ""
    page: str = ""

    def judge(self, summaries: Sequence[dict[str, Any]]) -> dict[str, ClaimVerdict]:
        """Return the verdict on every claim and aim by its key."""
        judges = {claim.key: claim.judge for claim in self.claims} | {aim.key: aim.judge for aim in self.aims}
        return {key: self.verdict(judge, summaries) for key, judge in judges.items()}

    def verdict(self, judge: Judge, summaries: Sequence[dict[str, Any]]) -> ClaimVerdict:
        """Return the verdict of ``judge``; undecided if one of its controls, except ``best``, has too few seeds."""
        measured = Measured(summaries, self.best)
        found = judge(measured)
        too_few_seeds = measured.fewest_seeds < MIN_SEEDS
        return replace(found, holds=UNDECIDED) if too_few_seeds and found.holds is not None else found

    def judge_published(self, summaries: Sequence[dict[str, Any]]) -> dict[str, ClaimVerdict]:
        """Return the verdict as published, by key, on every claim that has a published form of its own.

        ``summaries`` are runs under any conditions.
        """
        found = {}
        for claim in self.claims:
            if isinstance(claim.published, Published):
                found[claim.key] = self.verdict(claim.published.judge, claim.published.of(summaries))
        return found

    def undecided(self, summaries: Sequence[dict[str, Any]]) -> set[tuple[str, str, str]]:
        """Return (experiment, control, conditions) of the runs that leave a claim or aim undecided.

        ``summaries`` are runs under any conditions.
        """
        judges = [(claim.judge, "product") for claim in self.claims] + [(aim.judge, "product") for aim in self.aims]
        published = [claim.published for claim in self.claims if isinstance(claim.published, Published)]
        found = set()
        for judge, conditions in (*judges, *((form.judge, form.conditions) for form in published)):
            measured = Measured([run for run in summaries if run.get("conditions", "product") == conditions])
            if judge(measured).holds == UNDECIDED:
                found |= {(*run_key, conditions) for run_key in measured.used_runs}
        return found

    def deciding(self, summaries: Sequence[dict[str, Any]]) -> dict[str, str]:
        """Return for each claim that does not hold, by its key, the change that reverses the verdict, and its result.

        A change is one of law or conditions. If no change reverses the verdict, the text names the changes that were
        tried; a claim without any change is left out. ``summaries`` are runs under any conditions: this project's own
        form is judged by those under the product's conditions, the published form by those under its conditions.
        """
        product_runs = [summary for summary in summaries if summary.get("conditions", "product") == "product"]
        text_by_key = {}
        for claim in self.claims:
            own_verdict = self.verdict(claim.judge, product_runs)
            own_changes = [(name, self.verdict(judge, product_runs)) for name, judge in claim.decides]
            published_text = ""
            if isinstance(published := claim.published, Published):
                published_runs = published.of(summaries)
                published_verdict = self.verdict(published.judge, published_runs)
                published_changes = [(name, self.verdict(judge, published_runs)) for name, judge in published.decides]
                published_changes.append(("ours", own_verdict))
                published_text = _reversal(published_verdict, published_changes, "as published, ")
                own_changes.append(("as published", published_verdict))
            if text := "; ".join(filter(None, (_reversal(own_verdict, own_changes), published_text))):
                text_by_key[claim.key] = text
        return text_by_key


def _reversal(verdict: ClaimVerdict, changes: Sequence[tuple[str, ClaimVerdict]], prefix: str = "") -> str:
    """Return the first change under which the claim holds, with its result, as text that begins with ``prefix``.

    ``verdict`` is the verdict without a change; ``changes`` are the verdicts under each change, by name. If the claim
    holds under no change, the text names the changes that were run. "" if the claim holds without a change, is not run,
    or no change was run.
    """
    if verdict.holds not in (False, UNDECIDED):
        return ""
    for name, changed in changes:
        if changed.holds is True:
            return f"{prefix}{name}: {changed.result}"
    tried = ", ".join(name for name, changed in changes if changed.holds is not None)
    return f"{prefix}not turned by {tried}" if tried else ""


class Measured:
    """The measures of one fabric's runs, with a record of what was requested.

    ``fewest_seeds`` is the smallest number of seeds of any (experiment, control) that was requested; the control
    ``beside`` is not counted. ``used_runs`` are the (experiment, control) that were requested.
    """

    def __init__(self, summaries: Sequence[dict[str, Any]], beside: str = "") -> None:
        self._summaries = summaries
        self._beside = beside
        self.fewest_seeds = math.inf
        self.used_runs: set[tuple[str, str]] = set()

    def _runs_of(self, experiment: str, control: str) -> list[dict[str, Any]]:
        """Return the summaries of the runs of an experiment under a control, and record the request."""
        key = (experiment, control)
        self.used_runs.add(key)
        found = [summary for summary in self._summaries if (summary["experiment"], summary["control"]) == key]
        if found and control != self._beside:
            self.fewest_seeds = min(self.fewest_seeds, len({summary["seed"] for summary in found}))
        return found

    def substituted(self, control: str, from_prefix: str, to_prefix: str) -> Measured:
        """Return the runs, those under ``control`` replaced by runs of the experiments that begin with ``from_prefix``.

        Their experiments are renamed to begin with ``to_prefix``, so that they count as runs of those experiments.
        """
        kept = []
        for summary in self._summaries:
            if (name := summary["experiment"]).startswith(from_prefix):
                kept.append({**summary, "experiment": name.replace(from_prefix, to_prefix, 1)})
            elif summary["control"] != control:
                kept.append(summary)
        return Measured(kept, self._beside)

    @property
    def scale(self) -> float:
        """The fabric's rates over the paper's rates: 1, or less on a slower fabric."""
        return SCALE[self._summaries[0]["fabric"]] if self._summaries else 1.0

    @property
    def real_time(self) -> bool:
        """Whether the fabric runs in real time; some bounds are wider there, since other processes disturb the runs."""
        return self.scale < 1.0

    def values(self, experiment: str, control: str, name: str, phase: str | None = None) -> dict[int, Any]:
        """Return a measure by seed, of the whole run or of a phase; seeds without the measure are left out."""
        found = {}
        for summary in self._runs_of(experiment, control):
            figures = summary["figures"] if phase is None else summary["phases"].get(phase, {})
            if figures.get(name) is not None:
                found[summary["seed"]] = figures[name]
        return found

    def runs(self, experiment: str, control: str) -> list[dict[str, Any]]:
        """Return the figures of each run of an experiment under a control."""
        return [run["figures"] for run in self._runs_of(experiment, control)]

    def by_seed(self, experiment: str, control: str) -> dict[int, dict[str, Any]]:
        """Return the figures of each run by seed, also of runs that lack some measure."""
        return {run["seed"]: run["figures"] for run in self._runs_of(experiment, control)}

    def noted(self, experiment: str, control: str, name: str) -> list[Any]:
        """Return the values of a note, of the runs that have the note."""
        notes = [run["notes"] for run in self._runs_of(experiment, control)]
        return [note[name] for note in notes if name in note]

    def phases(self, experiment: str, control: str, phase: str) -> list[dict[str, Any]]:
        """Return the figures of a phase, of each run that has the phase."""
        phases_of_runs = [run["phases"] for run in self._runs_of(experiment, control)]
        return [by_phase[phase] for by_phase in phases_of_runs if phase in by_phase]

    def mean(self, experiment: str, control: str, name: str, phase: str | None = None) -> float | None:
        """Return the mean of a measure over seeds; None if no seed has the measure."""
        values = list(self.values(experiment, control, name, phase).values())
        return confidence(values)[0] if values else None

    def shown(self, experiment: str, control: str, name: str, phase: str | None = None, form: str = "percent") -> str:
        """Return the mean of a measure over seeds, with its confidence interval, as text."""
        return show(list(self.values(experiment, control, name, phase).values()), form)

    def more(self, experiment: str, one: str, other: str, name: str, phase: str | None = None) -> Outcome:
        """Return whether a measure is higher under control ``one`` than under ``other``, compared seed by seed."""
        first, second = (self.values(experiment, control, name, phase) for control in (one, other))
        return above([first[seed] - second[seed] for seed in first if seed in second])


def show(values: Sequence[float], form: str = "percent") -> str:
    """Return mean and, for at least MIN_SEEDS values, 95 % confidence interval as text; "-" for no values.

    ``form`` is "percent" (of parts, 0 to 1), "plain" or "count". With infinite values there is no mean: the text gives
    their number.
    """
    if not values:
        return "-"
    if infinite := sum(map(math.isinf, values)):
        return f"never ({infinite} of {len(values)} seeds)"
    scale, digits, unit = {"percent": (100.0, 1, " %"), "plain": (1.0, 3, ""), "count": (1.0, 1, "")}[form]
    mean, half_width = confidence(list(values))
    has_interval = not math.isnan(half_width) and len(values) >= MIN_SEEDS
    interval_text = f" +- {half_width * scale:.{digits}f}" if has_interval else ""
    return f"{mean * scale:.{digits}f}{interval_text}{unit}"


def within(values: Sequence[float], low: float = -math.inf, high: float = math.inf) -> Outcome:
    """Return whether the 95 % interval of the mean of ``values``, one per seed, lies within bounds, both included.

    UNDECIDED if it lies partly within, or for fewer than MIN_SEEDS values; None for no values. If some values are
    infinite ("never"), there is no interval: True if all values are within, False if none is.
    """
    if not values:
        return None
    if len(values) < MIN_SEEDS:
        return UNDECIDED
    if not all(map(math.isfinite, values)):
        inside = {low <= value <= high for value in values}
        return inside.pop() if len(inside) == 1 else UNDECIDED
    mean, half_width = confidence(list(values))
    if low <= mean - half_width and mean + half_width <= high:
        return True
    return False if mean + half_width < low or mean - half_width > high else UNDECIDED


def above(values: Sequence[float], threshold: float = 0.0) -> Outcome:
    """Return whether the 95 % interval of the mean of ``values``, one per seed, is above a threshold, not included."""
    return within(values, math.nextafter(threshold, math.inf))


def all_of(*outcomes: Outcome) -> Outcome:
    """Return True if all outcomes are True; otherwise the worst, in the order False, None, UNDECIDED."""
    distinct = set(outcomes)
    return next((outcome for outcome in (False, None, UNDECIDED) if outcome in distinct), True)
