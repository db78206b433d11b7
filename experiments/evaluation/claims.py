"""What a paper claims, and how each claim is judged from the runs of one fabric.

A verdict's ``holds`` is None where the fabric's runs do not tell. Means are over seeds; "+-" is half the width of the
95 % confidence interval. Two controls are compared seed by seed, since a seed means the same bursts for both: one is
better if the whole confidence interval of the difference is on its side (with one seed: if the difference is).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.evaluation.measures import confidence
from experiments.evaluation.run_matrix import SCALE


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """What one fabric gave, what the paper's ``best`` control gave there, and whether the claim holds."""

    result: str
    holds: bool | None
    best: str = "-"


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim; ``section`` is where it stands, "-" where it is an aim of this project."""

    key: str
    section: str
    title: str
    judge: Callable[[Measured], ClaimVerdict]


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A table of a paper's page: ``rows`` makes it, its heading first, from the runs of one fabric; none: nothing."""

    title: str
    rows: Callable[[Measured], list[list[str]]]


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper with its claims; ``name`` begins the names of its experiments, and is that of its file.

    ``compared`` are judged under the conditions of ``Scenario.conditions`` as well. ``best`` is a control that is shown
    next to what the paper proposes, with ``best_title``; none: "". ``tables`` are shown on its page below claims, by
    title: a heading and rows; ``note`` says how to read them. ``page`` is where that stands in docs/; "":
    ``results/NAME.md``.
    """

    name: str
    title: str
    claims: tuple[Claim, ...]
    compared: tuple[Claim, ...] = ()
    best: str = ""
    best_title: str = ""
    tables: tuple[ResultTable, ...] = ()
    note: str = ""
    page: str = ""

    def judge(self, summaries: Sequence[dict[str, Any]]) -> dict[str, ClaimVerdict]:
        """Return the verdict on every claim by its key."""
        measured = Measured(summaries)
        return {claim.key: claim.judge(measured) for claim in self.claims}


class Measured:
    """The measures of one fabric's runs."""

    def __init__(self, summaries: Sequence[dict[str, Any]]) -> None:
        self._summaries = summaries

    @property
    def scale(self) -> float:
        """The part of the paper's rates that the fabric carried."""
        return SCALE[self._summaries[0]["fabric"]] if self._summaries else 1.0

    @property
    def real_time(self) -> bool:
        """Whether the fabric is in real time, where more comes in between: some bounds are wider there."""
        return self.scale < 1.0

    def values(self, experiment: str, control: str, name: str, phase: str | None = None) -> dict[int, Any]:
        """Return a measure by seed, where it is known."""
        found = {}
        for summary in self._summaries:
            if (summary["experiment"], summary["control"]) == (experiment, control):
                figures = summary["figures"] if phase is None else summary["phases"].get(phase, {})
                if figures.get(name) is not None:
                    found[summary["seed"]] = figures[name]
        return found

    def runs(self, experiment: str, control: str) -> list[dict[str, Any]]:
        """Return the figures of all runs."""
        wanted = (experiment, control)
        return [one["figures"] for one in self._summaries if (one["experiment"], one["control"]) == wanted]

    def noted(self, experiment: str, control: str, name: str) -> list[Any]:
        """Return what all runs noted under a name, where they did."""
        wanted = (experiment, control)
        notes = [one["notes"] for one in self._summaries if (one["experiment"], one["control"]) == wanted]
        return [one[name] for one in notes if name in one]

    def phases(self, experiment: str, control: str, phase: str) -> list[dict[str, Any]]:
        """Return the figures of a phase of all runs."""
        wanted = (experiment, control)
        found = [one["phases"] for one in self._summaries if (one["experiment"], one["control"]) == wanted]
        return [one[phase] for one in found if phase in one]

    def mean(self, experiment: str, control: str, name: str, phase: str | None = None) -> float | None:
        """Return the mean over seeds; None where there are none."""
        values = list(self.values(experiment, control, name, phase).values())
        return confidence(values)[0] if values else None

    def shown(self, experiment: str, control: str, name: str, phase: str | None = None, form: str = "percent") -> str:
        """Return mean and confidence interval as text."""
        return show(list(self.values(experiment, control, name, phase).values()), form)

    def more(self, experiment: str, one: str, other: str, name: str, phase: str | None = None) -> bool | None:
        """Whether a measure is higher under one control than under another, seed by seed; None if not known."""
        of_one, of_other = (self.values(experiment, control, name, phase) for control in (one, other))
        differences = [of_one[seed] - of_other[seed] for seed in of_one if seed in of_other]
        if not differences:
            return None
        mean, half = confidence(differences)
        return mean - (0.0 if half != half else half) > 0


def show(values: Sequence[float], form: str = "percent") -> str:
    """Return mean and 95 % confidence interval as text; "-" for no values."""
    if not values:
        return "-"
    scale, digits, unit = {"percent": (100.0, 1, " %"), "plain": (1.0, 3, ""), "count": (1.0, 1, "")}[form]
    mean, half = confidence(list(values))
    more = "" if half != half else f" +- {half * scale:.{digits}f}"
    return f"{mean * scale:.{digits}f}{more}{unit}"


def all_of(*conditions: bool | None) -> bool | None:
    """Return whether all hold; None if one of them is not known."""
    return None if any(one is None for one in conditions) else all(conditions)
