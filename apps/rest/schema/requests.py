"""What requests may hold. The models are also what ``/v1/openapi.json`` says.

Field descriptions end up in the reference, so they state units. A body's fields are checked by the core's own rules;
the models only add their JSON types, so that no value is ever converted into an acceptable one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from controller.allocation.parameters import Parameter
from controller.config.sections import MAX_PORT_NO, MAX_VLAN_VID, MIN_VLAN_VID
from controller.errors import InvalidValueError
from controller.events import EventKind
from controller.fabric.values import check_name, check_vn_value, check_weight
from controller.policy.registry import policies
from controller.units import MAX_RATE_BPS, MAX_WEIGHT, MIN_RATE_BPS, MIN_WEIGHT

_MAX_EVENT_NUMBER = 10**18 - 1
_WHOLE_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
# A page of VNs of this many takes about as long as the controller can spare at once.
MAX_PAGE = 250
MAX_EVENTS = 1000
MOST_LIMITS = 20_000
STREAM_FORMS = ("objects", "columns")
MIN_STREAM_MS, MAX_STREAM_MS = 250, 60_000


def _vn_value(value: object, info: ValidationInfo) -> int | float | None:
    return check_vn_value(info.field_name or "", value)


def _parameters(value: object, info: ValidationInfo) -> dict[str, Any]:
    key = info.field_name or "parameters"
    if not isinstance(value, dict):
        raise InvalidValueError(key, value, 'must be an object of numbers, such as {"d": 2}')
    for name, number in value.items():
        if isinstance(number, int) and abs(number) >= 2**63:
            raise InvalidValueError(f"{key}.{name}", number, "is larger than any parameter may be")
    return value


def _event_number(value: object) -> int:
    if _WHOLE_NUMBER.fullmatch(str(value)) is None:
        raise InvalidValueError("after", value, "is not the number of an event: write 0 or more, in decimal digits")
    return int(str(value))


def _number_in(least: int, most: int) -> BeforeValidator:
    def number(value: object, info: ValidationInfo) -> int:
        text, key = str(value), info.field_name or "number"
        if _WHOLE_NUMBER.fullmatch(text) is None or not least <= int(text) <= most:
            raise InvalidValueError(key, value, f"must be a whole number in decimal digits, {least} to {most}")
        return int(text)

    return BeforeValidator(number)


def _flag(value: object, info: ValidationInfo) -> bool:
    if value not in ("true", "false", True, False):
        raise InvalidValueError(info.field_name or "flag", value, "must be true or false")
    return value in ("true", True)


def _some_name(value: object, info: ValidationInfo) -> str:
    if not value or not isinstance(value, str):
        raise InvalidValueError(info.field_name or "name", value, "is empty: give a name, or leave it out")
    return value


def _form(value: object) -> str:
    if value not in STREAM_FORMS:
        raise InvalidValueError("form", value, f"is not a form of the stream: write {' or '.join(STREAM_FORMS)}")
    return str(value)


def _name(value: object) -> str:
    return check_name(value)


def _parameters_schema() -> dict[str, Any]:
    of_name: dict[str, list[Parameter]] = {}
    for policy in policies.values():
        for one in policy.parameters:
            of_name.setdefault(one.name, []).append(one)
    known = {name: _number_schema(found) for name, found in of_name.items()}
    return {
        "type": "object",
        "properties": known,
        "additionalProperties": False,
        "description": "all parameters; those not given take their defaults; each algorithm has its own",
    }


def _number_schema(found: Sequence[Parameter]) -> dict[str, Any]:
    """Return what values a parameter may have; where several policies have one of that name, in any of them."""
    low, exclusive = min((one.minimum, False) if one.above is None else (one.above, True) for one in found)
    meanings = dict.fromkeys(f"{one.meaning}; {one.bounds}, {one.default:g} unless given" for one in found)
    return {
        "type": "integer" if all(one.whole for one in found) else "number",
        "exclusiveMinimum" if exclusive else "minimum": low,
        "maximum": max(one.maximum for one in found),
        "description": ". Or: ".join(meanings),
    }


_NAME = {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$", "maxLength": 63}
_VLAN = {"anyOf": [{"type": "integer", "minimum": MIN_VLAN_VID, "maximum": MAX_VLAN_VID}, _NAME]}
_PORT = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_PORT_NO}, _NAME]}


def _whole(least: int, most: int, meaning: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "integer", "minimum": least, "maximum": most, "description": meaning})


def _named(meaning: str, example: str | None = None) -> WithJsonSchema:
    schema: dict[str, Any] = {"type": "string", "minLength": 1, "description": meaning}
    return WithJsonSchema(schema if example is None else schema | {"example": example})


def _absent_not_null(schema: dict[str, Any]) -> None:
    """A field that may be left out has no default and may not be null."""
    for field in schema["properties"].values():
        field.pop("default", None)


def _change(schema: dict[str, Any]) -> None:
    _absent_not_null(schema)
    schema["minProperties"] = 1


# -- what requests hold. A path's parts stay text: what they name is looked up, and a 404 says when it does not exist.

VlanText = Annotated[str, _named("VLAN id, or the VLAN's name", "10")]
PortText = Annotated[str, _named("OpenFlow port number of an edge port, or the port's name", "1")]
PastPort = Annotated[str, _named("OpenFlow port number, or a port's name")]
SwitchName = Annotated[str, _named("name of the switch", "s1")]
RateBps = Annotated[int, BeforeValidator(_vn_value), _whole(MIN_RATE_BPS, MAX_RATE_BPS, "bit/s on the wire (layer 2)")]

CeilingBps = Annotated[
    int | None,
    BeforeValidator(_vn_value),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer", "minimum": MIN_RATE_BPS, "maximum": MAX_RATE_BPS}, {"type": "null"}],
            "description": "bit/s up to which its algorithm may borrow, its limit to its port's capacity; null: none",
        }
    ),
]

Weight = Annotated[
    float,
    BeforeValidator(check_weight),
    WithJsonSchema({"type": "number", "minimum": MIN_WEIGHT, "maximum": MAX_WEIGHT, "description": "its share"}),
]


class _Parameters(BaseModel):
    """Has its JSON schema at hand: the library asks for it again with every request that has parameters."""

    @classmethod
    def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:
        return super().model_json_schema(*arguments, **options) if arguments or options else cls._plain_schema()

    @classmethod
    @cache
    def _plain_schema(cls) -> dict[str, Any]:
        return super().model_json_schema()


class _Query(_Parameters):
    model_config = ConfigDict(extra="forbid", json_schema_extra=_absent_not_null)


SwitchFilter = Annotated[str, BeforeValidator(_some_name), WithJsonSchema({"type": "string", "minLength": 1})]
VnText = Annotated[str, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 200})]
PageSize = Annotated[
    int, _number_in(1, MAX_PAGE), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_PAGE})
]
Flag = Annotated[bool, BeforeValidator(_flag), WithJsonSchema({"type": "boolean"})]


class NoQuery(_Query):
    """The query of resources that have none."""


class ChangeQuery(_Query):
    """How a change must be made."""

    dry_run: Flag = Field(default=False, description="check and answer as the change would, and change nothing")


class IfMatch(_Parameters):
    """What a change is meant for."""

    model_config = ConfigDict(json_schema_extra=_absent_not_null)
    if_match: Annotated[str, WithJsonSchema({"type": "string", "example": "*"})] = Field(
        default="", alias="If-Match", description='the ETag of the resource that changes, such as "17"; * for any'
    )


class PageQuery(_Query):
    """Which page of a list."""

    limit: PageSize = Field(default=MAX_PAGE, description="how many at most; the most unless given")
    cursor: Annotated[str, WithJsonSchema({"type": "string", "maxLength": 500})] = Field(
        default="", description="`next` of the page before; the first page without it"
    )


class VnQuery(PageQuery):
    """Which VNs, or whose entries, to list: all, or those of a VLAN, of a switch, or of both."""

    vlan: VlanText = Field(default="", description="only those of this VLAN, by its id or name")
    switch: Annotated[str, WithJsonSchema({"type": "string", "minLength": 1})] = Field(
        default="", description="only those on this switch, by its name"
    )

    def given(self, name: str) -> str | None:
        """Return a part of the query, None if it is absent; empty text is a name, of nothing."""
        return getattr(self, name) if name in self.model_fields_set else None


class VnListQuery(VnQuery):
    """Which VNs to list."""

    missing: Flag = Field(default=False, description="only those whose guarantee is missing now")


class HistoryQuery(PageQuery):
    """Which changes to list: all, or those that changed something of a VLAN or a VN."""

    vlan: VlanText = Field(
        default="", description="only changes of this VLAN, by its id or name, and its VNs; needed for the others"
    )
    switch: SwitchFilter = Field(default="", description="only changes of VNs on this switch, by its name")
    port: PastPort = Field(default="", description="only changes of VNs at this port, by its number or name")

    def given(self, name: str) -> str | None:
        """Return a part of the query, None if it is absent."""
        return getattr(self, name) if name in self.model_fields_set else None


class PortQuery(PageQuery):
    """Which edge ports to list."""

    switch: Annotated[str, WithJsonSchema({"type": "string", "minLength": 1})] = Field(
        default="", description="only those of this switch, by its name"
    )
    name: Annotated[str, BeforeValidator(_name), WithJsonSchema(_NAME | {"example": "s1-1"})] = Field(
        default="", description="only those of this name"
    )

    def given(self, name: str) -> str | None:
        """Return a part of the query, None if it is absent."""
        return getattr(self, name) if name in self.model_fields_set else None


class OverrideQuery(PageQuery):
    """Which overrides to list."""

    active: Flag | None = Field(default=None, description="only those that are in force, or only those that are not")


class StreamQuery(_Query):
    """Of what the stream tells, and how often."""

    vlan: VlanText = Field(default="", description="the state of the VNs of this VLAN, by its id or name")
    switch: Annotated[str, WithJsonSchema({"type": "string", "minLength": 1})] = Field(
        default="", description="the state of the VNs on this switch, by its name"
    )
    interval_ms: Annotated[
        int,
        _number_in(MIN_STREAM_MS, MAX_STREAM_MS),
        WithJsonSchema({"type": "integer", "minimum": MIN_STREAM_MS, "maximum": MAX_STREAM_MS}),
    ] = Field(default=1000, description="milliseconds between two states; 1000 unless given")
    form: Annotated[str, BeforeValidator(_form), WithJsonSchema({"type": "string", "enum": list(STREAM_FORMS)})] = (
        Field(default="objects", description="objects, or columns: arrays in kb/s, means over the last second")
    )
    receiver: VnText = Field(
        default="", description="with form=columns and vlan or switch: also the pairs of this VN, as VLAN/SWITCH/PORT"
    )
    states: Annotated[
        int, _number_in(1, 1_000_000), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 1_000_000})
    ] = Field(default=1_000_000, description="end after so many states")

    def given(self, name: str) -> str | None:
        """Return a part of the query, None if it is absent."""
        return getattr(self, name) if name in self.model_fields_set else None


class SeriesQuery(_Query):
    """Of what to show the last five minutes: of a VLAN or of a VN."""

    vlan: VlanText = Field(default="", description="of this VLAN, by its id or name: sums over its VNs")
    vn: Annotated[
        VnText, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 200, "example": "10/s1/1"})
    ] = Field(default="", description="of this VN, as VLAN/SWITCH/PORT")

    def given(self, name: str) -> str | None:
        """Return a part of the query, None if it is absent."""
        return getattr(self, name) if name in self.model_fields_set else None


class EventQuery(_Query):
    """From where on to list events, and of which kind and place."""

    kind: Annotated[EventKind | None, WithJsonSchema({"type": "string", "enum": [str(kind) for kind in EventKind]})] = (
        Field(default=None, description="only events of this kind")
    )
    vlan: VlanText = Field(default="", description="only events of this VLAN, by its id or name")
    switch: SwitchFilter = Field(default="", description="only events of this switch, by its name")
    after: Annotated[int, BeforeValidator(_event_number)] = Field(
        default=0, description="only events with a higher number", ge=0, le=_MAX_EVENT_NUMBER
    )
    limit: Annotated[
        int,
        _number_in(1, MAX_EVENTS),
        WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_EVENTS}),
    ] = Field(default=MAX_EVENTS, description="how many at most; the most unless given")

    def given(self, name: str) -> str | None:
        """Return a part of the query, None if it is absent."""
        return getattr(self, name) if name in self.model_fields_set else None


class LoopQuery(_Query):
    """From where on to look at rounds."""

    after: Annotated[int, BeforeValidator(_event_number)] = Field(
        default=0, description="only rounds with a higher number", ge=0, le=_MAX_EVENT_NUMBER
    )


class PortPath(BaseModel):
    """Names an edge port."""

    switch: SwitchName
    port_no: PortText


class ChangePath(BaseModel):
    """Names a change of the history."""

    revision: Annotated[
        str,
        WithJsonSchema(
            {
                "type": "integer",
                "minimum": 1,
                "maximum": 2**62,
                "description": "the number of the change",
                "example": 1,
            }
        ),
    ]


class VlanPath(BaseModel):
    """Names a VLAN."""

    vlan_vid: VlanText


class VnPath(BaseModel):
    """Names a VN: its VLAN, and the edge port behind which it lives."""

    vlan_vid: VlanText
    switch: SwitchName
    port_no: PortText


class EntryPath(BaseModel):
    """Names an entry: its VLAN, and the edge ports of its sender and its receiver."""

    vlan_vid: VlanText
    sender_switch: SwitchName
    sender_port_no: PortText
    receiver_switch: SwitchName
    receiver_port_no: Annotated[str, _named("port of the receiver, by its number or name", "2")]


def _with_example(**body: Any) -> ConfigDict:
    def extend(schema: dict[str, Any]) -> None:
        _change(schema)
        schema["example"] = body

    return ConfigDict(json_schema_extra=extend)


class _Patch(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra=_change)

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set:
            raise InvalidValueError("body", {}, f"changes nothing: give {' or '.join(type(self).model_fields)}")
        return self

    def given(self) -> dict[str, Any]:
        """Return the fields that were given."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class VnPatch(_Patch):
    """New limits, ceilings and weight of a VN; what is not given stays as it is. All are set, or none."""

    model_config = _with_example(receive_limit_bps=20_000_000)
    send_limit_bps: RateBps = 0
    receive_limit_bps: RateBps = 0
    send_ceiling_bps: CeilingBps = None
    receive_ceiling_bps: CeilingBps = None
    weight: Weight = 0.0


class VlanPatch(_Patch):
    """Values of a VLAN. Another algorithm starts with its default parameters unless ``parameters`` are given."""

    model_config = _with_example(algorithm="fp", parameters={"d": 2})
    name: Annotated[
        str,
        BeforeValidator(_name),
        WithJsonSchema(_NAME),
    ] = ""
    algorithm: Annotated[
        Any, WithJsonSchema({"type": "string", "enum": list(policies), "description": "short name"})
    ] = ""
    parameters: Annotated[Any, BeforeValidator(_parameters), WithJsonSchema(_parameters_schema())] = None
    shadow: Annotated[
        Any,
        WithJsonSchema(
            {
                "enum": [*policies, None],
                "description": "short name of an algorithm to compute for comparison, and not to enforce; null: none",
            }
        ),
    ] = None
    shadow_parameters: Annotated[Any, BeforeValidator(_parameters), WithJsonSchema(_parameters_schema())] = None
    weight: Weight = 0.0
    send_limit_bps: RateBps = 0
    receive_limit_bps: RateBps = 0


_AN_ITEM = {"vlan_vid": 10, "switch": "s1", "port_no": 1, "receive_limit_bps": 20_000_000}


def _vn_item() -> dict[str, Any]:
    """Return the schema of one VN's values in a list of many: the place and at least one of the values."""
    ceiling = {"anyOf": [{"type": "integer", "minimum": MIN_RATE_BPS, "maximum": MAX_RATE_BPS}, {"type": "null"}]}
    limit = {"type": "integer", "minimum": MIN_RATE_BPS, "maximum": MAX_RATE_BPS}
    return {
        "type": "object",
        "properties": {
            "vlan_vid": _VLAN | {"description": "VLAN id, or the VLAN's name"},
            "switch": {"type": "string", "minLength": 1, "maxLength": 63},
            "port_no": _PORT | {"description": "OpenFlow port number of an edge port, or the port's name"},
            "send_limit_bps": limit,
            "receive_limit_bps": limit,
            "send_ceiling_bps": ceiling,
            "receive_ceiling_bps": ceiling,
            "weight": {"type": "number", "minimum": MIN_WEIGHT, "maximum": MAX_WEIGHT},
        },
        "required": ["vlan_vid", "switch", "port_no"],
        "minProperties": 4,
        "additionalProperties": False,
    }


class ManyLimits(BaseModel):
    """New limits, ceilings and weights of many VNs: all are set, or none. What is not given of a VN stays as it is."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"limits": [_AN_ITEM]}})
    # Read by apps.rest.schema.many: a model for each of thousands would take too long at once.
    limits: Annotated[
        Any, WithJsonSchema({"type": "array", "items": _vn_item(), "minItems": 1, "maxItems": MOST_LIMITS})
    ]


class Import(BaseModel):
    """What ``/v1/export`` has answered: from now on all the overrides there are."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"format": "dets-overrides-1", "vlans": [], "vns": [_AN_ITEM]}}
    )
    format: Literal["dets-overrides-1"]
    vlans: Annotated[
        Any,
        WithJsonSchema(
            {
                "type": "array",
                "maxItems": MAX_VLAN_VID,
                "items": {
                    "type": "object",
                    "properties": {
                        "vlan_vid": _VLAN | {"description": "VLAN id, or the VLAN's name"},
                        "values": VlanPatch.model_json_schema(),
                    },
                    "required": ["vlan_vid", "values"],
                    "additionalProperties": False,
                },
            }
        ),
    ]
    vns: Annotated[Any, WithJsonSchema({"type": "array", "items": _vn_item(), "maxItems": MOST_LIMITS})]


class RecordingAction(BaseModel):
    """What to do about the recording of the control intervals."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"action": "start"}})
    action: Literal["start", "take", "stop"] = Field(
        description="start one; take the records so far, which are then forgotten; stop and take the rest"
    )
