"""The algorithms by name. To add one: write its file, and add a line with its module and class here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from controller.allocation.interface import AllocationAlgorithm
from controller.allocation.network_max_min import NetworkMaxMin
from controller.allocation.parameters import Parameter, check_parameters
from controller.errors import InvalidValueError

CLASSES = (
    "controller.allocation.fair_share:FairShare",
    "controller.allocation.slow_probe:SlowProbe",
    "controller.allocation.fast_probe:FastProbe",
    "controller.allocation.forward_explicit:ForwardExplicit",
    "controller.allocation.fair_level:FairLevel",
)


def _load(target: str) -> type[AllocationAlgorithm]:
    module, _, name = target.partition(":")
    algorithm: type[AllocationAlgorithm] = getattr(importlib.import_module(module), name)
    return algorithm


algorithms: dict[str, type[AllocationAlgorithm]] = {one.name: one for one in map(_load, CLASSES)}


def make_algorithm(
    name: object,
    parameters: Mapping[str, object] | None = None,
    *,
    key: str = "algorithm",
    parameters_key: str = "parameters",
) -> AllocationAlgorithm:
    """Return the algorithm of that name with these parameters, and defaults for the others.

    Raises InvalidValueError for an unknown name (naming ``key``), an unknown parameter or a value out of bounds (naming
    ``parameters_key.parameter``), with what would be accepted.
    """
    known = algorithms.get(name) if isinstance(name, str) else None
    if known is None:
        raise InvalidValueError(key, name, f"is not an allocation algorithm: write one of {', '.join(algorithms)}")
    values = check_parameters(known.name, known.parameters, parameters or {}, parameters_key)
    return known(**values)


def describe_algorithms() -> list[dict[str, object]]:
    """Return a row per algorithm: name, title, and rows of its parameters with default, bounds and meaning."""
    return [
        {
            "name": algorithm.name,
            "title": algorithm.title,
            "sums_within_limit": algorithm.sums_within_limit,
            "parameters": [
                {
                    "name": parameter.name,
                    "default": parameter.default,
                    "bounds": parameter.bounds,
                    "meaning": parameter.meaning,
                }
                for parameter in algorithm.parameters
            ],
        }
        for algorithm in algorithms.values()
    ]


Algorithm = AllocationAlgorithm | NetworkMaxMin

parameters_of: dict[str, tuple[Parameter, ...]] = {
    **{name: algorithm.parameters for name, algorithm in algorithms.items()},
    NetworkMaxMin.name: NetworkMaxMin.parameters,
}
"""The parameters of every algorithm by its name."""


def title_of_algorithm(name: str) -> str:
    """Return an algorithm's title for people; of one that is not there any more, its name."""
    if name == NetworkMaxMin.name:
        return NetworkMaxMin.title
    return algorithms[name].title if name in algorithms else name


def make_any_algorithm(
    name: object,
    parameters: Mapping[str, object] | None = None,
    *,
    key: str = "algorithm",
    parameters_key: str = "parameters",
) -> Algorithm:
    """Return the algorithm of that name with these parameters, and defaults for the others.

    Raises InvalidValueError as ``make_algorithm`` does.
    """
    if name == NetworkMaxMin.name:
        table = NetworkMaxMin.parameters
        return NetworkMaxMin(**check_parameters(NetworkMaxMin.name, table, parameters or {}, parameters_key))
    if not isinstance(name, str) or name not in parameters_of:
        known = ", ".join(parameters_of)
        raise InvalidValueError(key, name, f"is not an allocation algorithm: write one of {known}")
    return make_algorithm(name, parameters, parameters_key=parameters_key)
