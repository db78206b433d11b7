"""Every experiment is one module here, with a ``scenario``, or several ``scenarios`` that are variants of it.

A new file is found by itself (docs/experiments.md): ``my_burst.py`` or ``my/burst.py`` as ``my-burst``. What scenarios
are written in: scenario.py, limits.py, traffic.py.
"""

from __future__ import annotations

import importlib
import pkgutil

from controller.errors import InvalidValueError
from experiments.scenarios.scenario import Scenario

_LANGUAGE = ("scenario", "limits", "traffic")


def scenarios() -> dict[str, Scenario]:
    """Return all scenarios by name.

    InvalidValueError for one that is not named as its file, or for a variant that does not begin with the file's name,
    and for a name that stands twice.
    """
    found: dict[str, Scenario] = {}
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        name = module.name.removeprefix(f"{__name__}.")
        if name in _LANGUAGE or module.ispkg:
            continue
        loaded, expected = importlib.import_module(module.name), name.replace("_", "-").replace(".", "-")
        variants = getattr(loaded, "scenarios", None)
        for scenario in (loaded.scenario,) if variants is None else variants:
            says = f"must be {expected}" if variants is None else f"must begin with {expected}-"
            good = scenario.name == expected if variants is None else scenario.name.startswith(f"{expected}-")
            if not good:
                raise InvalidValueError("name", scenario.name, f"{says}, as its file {name}.py says")
            if scenario.name in found:
                raise InvalidValueError("name", scenario.name, f"stands twice, again in {name}.py")
            found[scenario.name] = scenario
    return found
