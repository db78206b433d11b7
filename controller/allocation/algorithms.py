"""All the algorithms that a VLAN can be given by name: those of each receiver, and the one of the whole network."""

from __future__ import annotations

from collections.abc import Mapping

from controller.allocation import AllocationAlgorithm, make_algorithm
from controller.allocation.network_max_min import NetworkMaxMin
from controller.allocation.parameters import Parameter, check_parameters
from controller.allocation.registry import algorithms
from controller.errors import InvalidValueError

Algorithm = AllocationAlgorithm | NetworkMaxMin

parameters_of: dict[str, tuple[Parameter, ...]] = {
    **{name: algorithm.parameters for name, algorithm in algorithms.items()},
    NetworkMaxMin.name: NetworkMaxMin.parameters,
}
"""The parameters of every algorithm by its name."""


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
