"""Checks of VLANs' and VNs' values, from the configuration file, REST or the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from controller.errors import InvalidValueError
from controller.units import MAX_WEIGHT, MIN_WEIGHT, check_rate_bps

NAME_RULE = "must be 1 to 63 letters, digits, '_', '-' or '.', the first a letter or digit"
WHOLE_RATE_RULE = "must be a whole number of bits per second, such as 40000000: no quotes, fraction or exponent"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def is_name(text: str) -> bool:
    """Return whether a text may name a VLAN, a switch or a port."""
    return _NAME.fullmatch(text) is not None


def check_name(value: object) -> str:
    """Return a name that is safe in logs, URLs and metric labels."""
    if not isinstance(value, str) or not is_name(value):
        quoted = "; put a number in quotes" if isinstance(value, int | float) else ""
        raise InvalidValueError("name", value, NAME_RULE + quoted)
    return value


def check_weight(value: object, *, key: str = "weight") -> float:
    """Return a weight; raise InvalidValueError naming ``key`` and the bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not MIN_WEIGHT <= value <= MAX_WEIGHT:
        raise InvalidValueError(key, value, f"must be a number, {MIN_WEIGHT:f} to {MAX_WEIGHT:.0f}")
    return float(value)


def check_vn_value(field: str, value: object, *, key: str | None = None) -> int | float | None:
    """Return a VN's limit, ceiling (None: no ceiling) or weight; raise InvalidValueError naming ``key``.

    ``field`` is one of ``controller.limits.overrides.VN_FIELDS``, and the default of ``key``.
    """
    key = field if key is None else key
    if field == "weight":
        return check_weight(value, key=key)
    if value is None and field.endswith("_ceiling_bps"):
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValueError(key, value, WHOLE_RATE_RULE)
    return check_rate_bps(value, key)


def check_vlan_values(values: Mapping[str, object]) -> None:
    """Raise InvalidValueError for a value that no VLAN can have; keys are fields of ``config_model.Vlan``.

    Whether an algorithm exists and accepts its parameters is not checked here.
    """
    for key, value in values.items():
        if key not in _CHECKS:
            raise InvalidValueError(key, value, f"is not a value of a VLAN; there are: {', '.join(_CHECKS)}")
        _CHECKS[key](key, value)


def _is_a(kind: type | tuple[type, ...], words: str) -> Callable[[str, object], object]:
    def check(key: str, value: object) -> None:
        if not isinstance(value, kind):
            raise InvalidValueError(key, value, f"must be {words}")

    return check


def _check_limit(key: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValueError(key, value, "must be a whole number of bits per second")
    check_rate_bps(value, key)


_CHECKS: dict[str, Callable[[str, object], object]] = {
    "name": lambda _, value: check_name(value),
    "algorithm": _is_a(str, "the name of an algorithm"),
    "parameters": _is_a(dict, "an object"),
    "shadow": _is_a((str, type(None)), "the name of an algorithm, or nothing"),
    "shadow_parameters": _is_a(dict, "an object"),
    "weight": lambda _, value: check_weight(value),
    "send_limit_bps": _check_limit,
    "receive_limit_bps": _check_limit,
}
