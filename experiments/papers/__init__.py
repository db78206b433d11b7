"""The papers whose claims are judged: one module or package each, with a ``paper``. A new file is found automatically.

``NAME.toml`` beside it lists every figure, table and number of the paper, with what judges it.

The names of a paper's experiments, in ``experiments.scenarios``, begin with the paper's name. Start with dets.py.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from pathlib import Path

from controller.errors import InvalidValueError
from experiments.evaluation.claims import Paper
from experiments.evaluation.elements import Element, read_elements

DEFAULT = "dets"


def papers() -> dict[str, Paper]:
    """Return all papers by name, DETS first; InvalidValueError for a paper whose name differs from its file's."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        paper: Paper = importlib.import_module(f"{__name__}.{module.name}").paper
        if paper.name != module.name:
            raise InvalidValueError("name", paper.name, f"must be {module.name}, as its file {module.name}.py says")
        found[paper.name] = paper
    return dict(sorted(found.items(), key=lambda item: (item[0] != DEFAULT, item[0])))


def paper_named(name: str) -> Paper:
    """Return the paper of a name; InvalidValueError for an unknown one."""
    known = papers()
    if name not in known:
        raise InvalidValueError("paper", name, f"is not one of {', '.join(known)}")
    return known[name]


def elements_of(paper: str) -> list[Element]:
    """Return every element of a paper, in its order; [] without a file of elements."""
    paths = (Path(folder) / f"{paper}.toml" for folder in __path__)
    return next((read_elements(path) for path in paths if path.exists()), [])


def source_of(paper: str) -> str:
    """Return the file, or the folder, of a paper's claims, relative to the project."""
    folder = any(module.ispkg and module.name == paper for module in pkgutil.iter_modules(__path__))
    return f"experiments/papers/{paper}" + ("" if folder else ".py")


def experiments_of(paper: str, experiments: Iterable[str]) -> list[str]:
    """Return those of ``experiments`` that belong to a paper; experiments of no paper belong to the default one."""
    known = papers()

    def owner(experiment: str) -> str:
        return next((name for name in known if experiment.startswith(f"{name}-")), DEFAULT)

    return [experiment for experiment in experiments if owner(experiment) == paper]
