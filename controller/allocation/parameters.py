"""Parameters of algorithms: one table that validates them, documents them and gives their defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from controller.errors import InvalidValueError


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that an algorithm takes, with its bounds. ``above`` is an exclusive, ``minimum`` an inclusive bound.

    A ``whole`` one takes whole numbers only; one from 0 to 1 is a switch, off or on.
    """

    name: str
    default: float
    meaning: str
    maximum: float
    minimum: float | None = None
    above: float | None = None
    whole: bool = False

    @classmethod
    def switch(cls, name: str, default: bool, meaning: str) -> Parameter:
        """Return a parameter that is 0, off, or 1, on."""
        return cls(name, float(default), meaning, maximum=1.0, minimum=0.0, whole=True)

    @property
    def is_switch(self) -> bool:
        """Whether it is 0 or 1."""
        return self.whole and (self.minimum, self.maximum) == (0.0, 1.0)

    @property
    def bounds(self) -> str:
        """The bounds in words."""
        if self.is_switch:
            return "0 (off) or 1 (on)"
        low = f"above {self.above:g}" if self.above is not None else f"at least {self.minimum:g}"
        return f"{'whole, ' if self.whole else ''}{low} and at most {self.maximum:g}"

    def check(self, value: object, key: str) -> float:
        """Return the value as a float; raise InvalidValueError naming ``key``, value and bounds otherwise."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidValueError(key, value, f"must be a number {self.bounds}")
        # A whole number may have any number of digits, and isfinite fails on one that no float can hold.
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidValueError(key, value, f"must be a number {self.bounds}")
        too_low = value <= self.above if self.above is not None else value < (self.minimum or 0.0)
        if too_low or value > self.maximum or (self.whole and value != int(value)):
            raise InvalidValueError(key, value, f"must be {self.bounds}")
        return float(value)


def check_parameters(
    owner: str, table: tuple[Parameter, ...], given: Mapping[str, object], key: str = "parameters"
) -> dict[str, float]:
    """Return a value for every parameter of the table: the given one or the default.

    Raises InvalidValueError, with ``key.name`` as the key, for an unknown name or a value out of bounds. ``owner`` is
    the algorithm's name, for the message.
    """
    known = {parameter.name: parameter for parameter in table}
    for name, value in given.items():
        if name not in known:
            names = ", ".join(known) if known else "none"
            raise InvalidValueError(f"{key}.{name}", value, f"is not a parameter of {owner}, which takes: {names}")
    return {
        parameter.name: parameter.check(given.get(parameter.name, parameter.default), f"{key}.{parameter.name}")
        for parameter in table
    }


# A request of nothing, multiplied, stays nothing: every probing algorithm needs a least request to start from.
FLOOR = Parameter(
    "floor",
    0.01,
    "least request of an active sender, as a part of its fair share, so that probing can start from it",
    minimum=1e-6,
    maximum=1.0,
)
INFLATION = Parameter(
    "inflation",
    0.10,
    "how much a sender that fully uses its rate asks for above it, as a part of it",
    minimum=0.0,
    maximum=10.0,
)
HEADROOM = Parameter(
    "headroom",
    0.0,
    "0 is the paper; above 0.053, a sender that wants less than its fair share keeps what it sends and this part more, "
    "and is not squeezed and probed in turns",
    minimum=0.0,
    maximum=10.0,
)
