"""Every scenario is one module here, with a ``scenario``; a new file is found by itself (docs/experiments.md)."""

from __future__ import annotations

import importlib
import pkgutil

from controller.errors import InvalidValueError
from experiments.scenarios.scenario import Scenario


def scenarios() -> dict[str, Scenario]:
    """Return all scenarios by name; InvalidValueError for one that has another name than its file."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name == "scenario":
            continue
        scenario: Scenario = importlib.import_module(f"{__name__}.{module.name}").scenario
        expected = module.name.replace("_", "-")
        if scenario.name != expected:
            raise InvalidValueError("name", scenario.name, f"must be {expected}, as its file {module.name}.py says")
        found[scenario.name] = scenario
    return found
