"""The values in requests: what is accepted, and their description in ``/v1/openapi.json``.

The core's own rules check values; the types only add their JSON schemas, so that no value is ever converted into a
valid one. Each check raises InvalidValueError.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema

from controller.allocation.parameters import Parameter, parameters_of
from controller.config.value_types import MAX_PORT_NO, MAX_VLAN_VID, MIN_VLAN_VID
from controller.errors import InvalidValueError
from controller.fabric.value_checks import check_name, check_vn_value, check_weight
from controller.openflow.ethernet import parse_mac
from controller.policy.registry import policies
from controller.units import MAX_RATE_BPS, MAX_WEIGHT, MIN_RATE_BPS, MIN_WEIGHT

MAX_EVENT_NUMBER = 10**18 - 1
# A page of this many VNs takes about the longest time that the controller can spare at once.
MAX_PAGE = 250
MAX_EVENTS = 1000
MIN_STREAM_MS, MAX_STREAM_MS = 250, 60_000
MAX_STREAM_STATES = 1_000_000
_WHOLE_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


def _vn_value(value: object, info: ValidationInfo) -> int | float | None:
    """Return a limit, ceiling or weight of a VN, by the name of the field."""
    return check_vn_value(info.field_name or "", value)


def _parameters(value: object, info: ValidationInfo) -> dict[str, Any]:
    """Return the parameters of an algorithm; the algorithm's own rules are checked later."""
    key = info.field_name or "parameters"
    if not isinstance(value, dict):
        raise InvalidValueError(key, value, 'must be an object of numbers, such as {"d": 2}')
    for name, number in value.items():
        if isinstance(number, int) and abs(number) >= 2**63:
            raise InvalidValueError(f"{key}.{name}", number, "is larger than any parameter may be")
    return value


def _digits(minimum: int, maximum: int) -> BeforeValidator:
    """Return a validator of numbers in a query, where they are text of decimal digits."""

    def number(value: object, info: ValidationInfo) -> int:
        text, key = str(value), info.field_name or "number"
        if _WHOLE_NUMBER.fullmatch(text) is None or not minimum <= int(text) <= maximum:
            raise InvalidValueError(key, value, f"must be a whole number in decimal digits, {minimum} to {maximum}")
        return int(text)

    return BeforeValidator(number)


def _flag(value: object, info: ValidationInfo) -> bool:
    """Return a flag in a query, where it is the text ``true`` or ``false``."""
    if value not in ("true", "false", True, False):
        raise InvalidValueError(info.field_name or "flag", value, "must be true or false")
    return value in ("true", True)


def _some_name(value: object, info: ValidationInfo) -> str:
    """Return a name that is not empty."""
    if not value or not isinstance(value, str):
        raise InvalidValueError(info.field_name or "name", value, "is empty: give a name, or leave it out")
    return value


def _mac(value: object, info: ValidationInfo) -> str:
    """Return the text of a MAC address as it was given."""
    parse_mac(info.field_name or "mac", str(value))
    return str(value)


def _parameters_schema() -> dict[str, Any]:
    """Return the schema of the parameters of all policies."""
    forms: dict[str, list[Parameter]] = {}  # by name: several policies may have parameters of the same name
    for policy in policies.values():
        for name, parameter in parameters_of(policy).items():
            forms.setdefault(name, []).append(parameter)
    properties = {name: _number_schema(same_name) for name, same_name in forms.items()}
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "description": "all parameters of the algorithm; absent ones have their defaults",
    }


def _number_schema(forms: Sequence[Parameter]) -> dict[str, Any]:
    """Return a schema that admits the values of each of these parameters, which have the same name.

    The parameters are those of different algorithms.
    """
    # Of equal lower bounds the inclusive one counts, since False sorts before True.
    low, exclusive = min((form.least, False) if form.above is None else (form.above, True) for form in forms)
    meanings = dict.fromkeys(f"{form.about}; {form.bounds}, default {form.default:g}" for form in forms)
    return {
        "type": "integer" if all(form.whole for form in forms) else "number",
        "exclusiveMinimum" if exclusive else "minimum": low,
        "maximum": max(form.most for form in forms),
        "description": ". Or: ".join(meanings),
    }


NAME_SCHEMA = {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$", "maxLength": 63}
VLAN_SCHEMA = {"anyOf": [{"type": "integer", "minimum": MIN_VLAN_VID, "maximum": MAX_VLAN_VID}, NAME_SCHEMA]}
PORT_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_PORT_NO}, NAME_SCHEMA]}
RATE_SCHEMA = {"type": "integer", "minimum": MIN_RATE_BPS, "maximum": MAX_RATE_BPS}
CEILING_SCHEMA = {"anyOf": [RATE_SCHEMA, {"type": "null"}]}
WEIGHT_SCHEMA = {"type": "number", "minimum": MIN_WEIGHT, "maximum": MAX_WEIGHT}


def _whole(minimum: int, maximum: int) -> WithJsonSchema:
    """Return the schema of whole numbers within bounds."""
    return WithJsonSchema({"type": "integer", "minimum": minimum, "maximum": maximum})


def named(meaning: str, example: str | None = None) -> WithJsonSchema:
    """Return the reference's description of a path part that is a name."""
    schema: dict[str, Any] = {"type": "string", "minLength": 1, "description": meaning}
    return WithJsonSchema(schema if example is None else schema | {"example": example})


# -- of paths and bodies. A path's parts stay text: they are looked up, and an unknown one gives a 404.

VlanText = Annotated[str, named("VLAN id, or the VLAN's name", "10")]
PortText = Annotated[str, named("OpenFlow port number of an edge port, or the port's name", "1")]
PastPort = Annotated[str, named("OpenFlow port number, or a port's name")]
SwitchName = Annotated[str, named("name of the switch", "s1")]
RateBps = Annotated[
    int, BeforeValidator(_vn_value), WithJsonSchema(RATE_SCHEMA | {"description": "bit/s on the wire (layer 2)"})
]
_CEILING = "bit/s up to which the VN may borrow, from its limit to its port's capacity; null: none"
CeilingBps = Annotated[
    int | None, BeforeValidator(_vn_value), WithJsonSchema(CEILING_SCHEMA | {"description": _CEILING})
]
Weight = Annotated[
    float,
    BeforeValidator(check_weight),
    WithJsonSchema(WEIGHT_SCHEMA | {"description": "weight by which algorithms share"}),
]

# -- in queries, where all is text

SwitchText = Annotated[str, WithJsonSchema({"type": "string", "minLength": 1})]
SomeSwitch = Annotated[SwitchText, BeforeValidator(_some_name)]
PortName = Annotated[str, BeforeValidator(check_name), WithJsonSchema(NAME_SCHEMA | {"example": "s1-1"})]
MacText = Annotated[
    str,
    BeforeValidator(_mac),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": "^[0-9A-Fa-f]{2}((:[0-9A-Fa-f]{2}){5}|(-[0-9A-Fa-f]{2}){5})$",
            "description": "MAC address, with colons or dashes",
            "example": "00:00:00:00:00:01",
        }
    ),
]
VnText = Annotated[str, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 200})]
Flag = Annotated[bool, BeforeValidator(_flag), WithJsonSchema({"type": "boolean"})]
PageSize = Annotated[int, _digits(1, MAX_PAGE), _whole(1, MAX_PAGE)]
EventCount = Annotated[int, _digits(1, MAX_EVENTS), _whole(1, MAX_EVENTS)]
StreamMs = Annotated[int, _digits(MIN_STREAM_MS, MAX_STREAM_MS), _whole(MIN_STREAM_MS, MAX_STREAM_MS)]
StreamCount = Annotated[int, _digits(1, MAX_STREAM_STATES), _whole(1, MAX_STREAM_STATES)]
EventNumber = Annotated[int, _digits(0, MAX_EVENT_NUMBER), _whole(0, MAX_EVENT_NUMBER)]

# -- in bodies

Name = Annotated[str, BeforeValidator(check_name), WithJsonSchema(NAME_SCHEMA)]
Parameters = Annotated[Any, BeforeValidator(_parameters), WithJsonSchema(_parameters_schema())]
