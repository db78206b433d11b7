"""Every experiment is one module here, with a ``scenario``, or several ``scenarios`` that are variants of it.

A new file is found automatically (docs/experiments.md): ``my_burst.py`` or ``my/burst.py`` as ``my-burst``. The
language of scenarios: scenario.py, limits.py, traffic.py.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

from controller import plugins, rooms
from controller.errors import InvalidValueError
from experiments.scenarios.scenario import Scenario

_LANGUAGE = ("scenario", "limits", "traffic")


def scenarios() -> dict[str, Scenario]:
    """Return all scenarios by name: those of the files here, and those of other packages.

    A scenario is left out and reported in ``plugins.faults`` if its file raises an error, if its name differs from the
    name of its file or entry point (a variant's name must begin with that name), or if its name is taken.
    """
    found: dict[str, Scenario] = {}
    for module in pkgutil.walk_packages(__path__, f"{__name__}.", onerror=lambda _name: None):
        name = module.name.removeprefix(f"{__name__}.")
        if name in _LANGUAGE or module.ispkg:
            continue
        scenario_name = name.replace("_", "-").replace(".", "-")
        path = f"experiments/scenarios/{name.replace('.', '/')}.py"
        _add(found, plugins.Plugin(plugins.SCENARIOS, scenario_name, module.name, path), importlib.import_module)
    for plugin in plugins.declared(plugins.SCENARIOS):
        _add(found, plugin, rooms.load)
    return found


def scenario_named(name: str, key: str = "scenario") -> Scenario:
    """Return a scenario by its name; InvalidValueError, about ``key``, if it is unknown or not loaded."""
    known = scenarios()
    if name not in known and (fault := plugins.fault_of(name, plugins.SCENARIOS)):
        raise InvalidValueError(key, name, f"is not loaded: {fault}")
    if name not in known:
        raise InvalidValueError(key, name, f"is not an experiment: write one of {', '.join(known)}")
    return known[name]


def _add(found: dict[str, Scenario], plugin: plugins.Plugin, load: Callable[[str], Any]) -> None:
    """Add the scenario or the tuple of variants of a file or entry point, completely or not at all."""
    try:
        loaded = load(plugin.target)
        if isinstance(loaded, ModuleType):
            loaded = loaded.scenarios if hasattr(loaded, "scenarios") else loaded.scenario
        variants = None if isinstance(loaded, Scenario) else loaded
        added: dict[str, Scenario] = {}
        for scenario in (loaded,) if variants is None else variants:
            expected, relation = (plugin.name, "be") if variants is None else (f"{plugin.name}-", "begin with")
            if not (scenario.name == expected if variants is None else scenario.name.startswith(expected)):
                raise InvalidValueError("name", scenario.name, f"must {relation} {expected}")
            if scenario.name in found or scenario.name in added:
                raise InvalidValueError("name", scenario.name, "stands twice")
            added[scenario.name] = scenario
    except (Exception, SystemExit) as error:
        plugins.faults[plugin] = plugins.reason_of(error)
        return
    plugins.faults.pop(plugin, None)
    found |= added
