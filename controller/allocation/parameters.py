"""Parameters of policies: dataclass fields with their meaning and bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any

from controller.errors import InvalidValueError

_KEY = "parameter"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A numeric parameter of a policy: at most ``most``, and at least ``least`` or more than ``above``.

    A ``whole`` parameter takes whole numbers only. A whole parameter from 0 to 1 is a switch, off or on.
    """

    default: float
    about: str
    most: float
    least: float | None = None
    above: float | None = None
    whole: bool = False

    @property
    def is_switch(self) -> bool:
        """Return whether the parameter is 0 or 1."""
        return self.whole and (self.least, self.most) == (0.0, 1.0)

    @property
    def bounds(self) -> str:
        """Return the bounds as text."""
        if self.is_switch:
            return "0 (off) or 1 (on)"
        low = f"above {self.above:g}" if self.above is not None else f"at least {self.least:g}"
        return f"{'whole, ' if self.whole else ''}{low} and at most {self.most:g}"

    def check(self, value: object, key: str) -> float:
        """Return the value as a float; raise InvalidValueError naming ``key``, value and bounds otherwise."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidValueError(key, value, f"must be a number {self.bounds}")
        # A whole number may have any number of digits, and isfinite fails on one that no float can represent.
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidValueError(key, value, f"must be a number {self.bounds}")
        too_low = value <= self.above if self.above is not None else value < (self.least or 0.0)
        if too_low or value > self.most or (self.whole and value != int(value)):
            raise InvalidValueError(key, value, f"must be {self.bounds}")
        return float(value)


def parameter(
    default: float,
    description: str,
    *,
    maximum: float,
    minimum: float | None = None,
    above: float | None = None,
    whole: bool = False,
) -> Any:
    """Return a field of a policy's dataclass that is a parameter."""
    return field(default=default, metadata={_KEY: Parameter(default, description, maximum, minimum, above, whole)})


def switch(default: bool, description: str) -> Any:
    """Return a field that is a switch: 0 is off, 1 on."""
    return parameter(float(default), description, minimum=0.0, maximum=1.0, whole=True)


@cache
def parameters_of(policy: type) -> Mapping[str, Parameter]:
    """Return a policy's parameters by name."""
    all_fields = fields(policy) if is_dataclass(policy) else ()
    return {column.name: column.metadata[_KEY] for column in all_fields if _KEY in column.metadata}


def check_parameters(
    owner: str, parameters: Mapping[str, Parameter], values: Mapping[str, object], key: str = "parameters"
) -> dict[str, float]:
    """Return a value for each of the ``parameters``, by name: from ``values``, or the default.

    Raises InvalidValueError, with ``key.name`` as the key, for an unknown name or a value out of bounds. ``owner`` is
    the algorithm's name, for the message.
    """
    for name, value in values.items():
        if name not in parameters:
            names = ", ".join(parameters) if parameters else "none"
            raise InvalidValueError(f"{key}.{name}", value, f"is not a parameter of {owner}, which takes: {names}")
    return {
        name: parameter.check(values.get(name, parameter.default), f"{key}.{name}")
        for name, parameter in parameters.items()
    }
