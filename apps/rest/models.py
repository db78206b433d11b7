"""What requests may hold and what answers hold. The models are also what ``/v1/openapi.json`` says.

Field descriptions end up in the reference, so they state units. A body's fields are checked by the core's own rules;
the models only add their JSON types, so that no value is ever converted into an acceptable one.
"""

from __future__ import annotations

import re
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

from controller.algorithms import parameters_of
from controller.config_sections import MAX_PORT_NO, MAX_VLAN_VID, MIN_VLAN_VID
from controller.errors import InvalidValueError
from controller.units import MAX_RATE_BPS, MIN_RATE_BPS, check_rate_bps

_WHOLE_RATE = "must be a whole number of bits per second, such as 40000000: no quotes, fraction or exponent"
_EVENT_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_MAX_EVENT_NUMBER = 10**18 - 1


def _rate(value: object, info: ValidationInfo) -> int:
    key = info.field_name or "rate"
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValueError(key, value, _WHOLE_RATE)
    return check_rate_bps(value, key)


def _ceiling(value: object, info: ValidationInfo) -> int | None:
    return None if value is None else _rate(value, info)


def _parameters(value: object, info: ValidationInfo) -> dict[str, Any]:
    key = info.field_name or "parameters"
    if not isinstance(value, dict):
        raise InvalidValueError(key, value, 'must be an object of numbers, such as {"d": 2}')
    for name, number in value.items():
        if isinstance(number, int) and abs(number) >= 2**63:
            raise InvalidValueError(f"{key}.{name}", number, "is larger than any parameter may be")
    return value


def _event_number(value: object) -> int:
    if _EVENT_NUMBER.fullmatch(str(value)) is None:
        raise InvalidValueError("after", value, "is not the number of an event: write 0 or more, in decimal digits")
    return int(str(value))


def _parameters_schema() -> dict[str, Any]:
    known: dict[str, Any] = {}
    for parameters in parameters_of.values():
        for one in parameters:
            low = {"exclusiveMinimum": one.above} if one.above is not None else {"minimum": one.minimum}
            meaning = f"{one.meaning}; {one.bounds}, {one.default:g} unless given"
            # Of two algorithms' parameters of one name the first is described: it has the wider bounds.
            known.setdefault(one.name, {"type": "number", **low, "maximum": one.maximum, "description": meaning})
    return {
        "type": "object",
        "properties": known,
        "additionalProperties": False,
        "description": "all parameters; those not given take their defaults; each algorithm has its own",
    }


def _whole(least: int, most: int, meaning: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "integer", "minimum": least, "maximum": most, "description": meaning})


def _absent_not_null(schema: dict[str, Any]) -> None:
    """A field that may be left out has no default and may not be null."""
    for field in schema["properties"].values():
        field.pop("default", None)


def _change(schema: dict[str, Any]) -> None:
    _absent_not_null(schema)
    schema["minProperties"] = 1


# -- what requests hold. A path's parts stay text: what they name is looked up, and told when there is no such thing.

VlanVid = Annotated[str, _whole(MIN_VLAN_VID, MAX_VLAN_VID, "VLAN id")]
PortNo = Annotated[str, _whole(1, MAX_PORT_NO, "OpenFlow port number of an edge port")]
RateBps = Annotated[int, BeforeValidator(_rate), _whole(MIN_RATE_BPS, MAX_RATE_BPS, "bit/s on the wire (layer 2)")]

CeilingBps = Annotated[
    int | None,
    BeforeValidator(_ceiling),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer", "minimum": MIN_RATE_BPS, "maximum": MAX_RATE_BPS}, {"type": "null"}],
            "description": "bit/s up to which it may borrow with max-min, its limit to its port's capacity; null: none",
        }
    ),
]


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra=_absent_not_null)


class NoQuery(_Query):
    """The query of resources that have none."""


class VnQuery(_Query):
    """Which VNs, or whose entries, to list: all, or those of a VLAN, of a switch, or of both."""

    vlan: VlanVid = Field(default="", description="only those of this VLAN id")
    switch: Annotated[str, WithJsonSchema({"type": "string", "minLength": 1})] = Field(
        default="", description="only those on this switch, by its name"
    )

    def given(self, name: str) -> str | None:
        """Return a part of the query, None if it is absent; empty text is a name, of nothing."""
        return getattr(self, name) if name in self.model_fields_set else None


class EventQuery(_Query):
    """From where on to list events."""

    after: Annotated[int, BeforeValidator(_event_number)] = Field(
        default=0, description="only events with a higher number", ge=0, le=_MAX_EVENT_NUMBER
    )


class LoopQuery(_Query):
    """From where on to look at rounds."""

    after: Annotated[int, BeforeValidator(_event_number)] = Field(
        default=0, description="only rounds with a higher number", ge=0, le=_MAX_EVENT_NUMBER
    )


class VlanPath(BaseModel):
    """Names a VLAN."""

    vlan_vid: VlanVid


class VnPath(BaseModel):
    """Names a VN: its VLAN, and the edge port behind which it lives."""

    vlan_vid: VlanVid
    switch: str = Field(description="name of the switch")
    port_no: PortNo


class EntryPath(BaseModel):
    """Names an entry: its VLAN, and the edge ports of its sender and its receiver."""

    vlan_vid: VlanVid
    sender_switch: str = Field(description="name of the sender's switch")
    sender_port_no: PortNo
    receiver_switch: str = Field(description="name of the receiver's switch")
    receiver_port_no: PortNo


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
    """New limits and ceilings of a VN; one that is not given stays as it is. All are set, or none."""

    send_limit_bps: RateBps = 0
    receive_limit_bps: RateBps = 0
    send_ceiling_bps: CeilingBps = None
    receive_ceiling_bps: CeilingBps = None


class VlanPatch(_Patch):
    """A VLAN's allocation. Another algorithm starts with its default parameters unless ``parameters`` are given."""

    algorithm: Annotated[
        Any, WithJsonSchema({"type": "string", "enum": list(parameters_of), "description": "short name"})
    ] = ""
    parameters: Annotated[Any, BeforeValidator(_parameters), WithJsonSchema(_parameters_schema())] = None
    shadow: Annotated[
        Any,
        WithJsonSchema(
            {
                "enum": [*parameters_of, None],
                "description": "short name of an algorithm to compute beside, and not to enforce; null: none",
            }
        ),
    ] = None
    shadow_parameters: Annotated[Any, BeforeValidator(_parameters), WithJsonSchema(_parameters_schema())] = None


class RecordingAction(BaseModel):
    """What to do about the recording of the control intervals."""

    model_config = ConfigDict(extra="forbid")
    action: Literal["start", "take", "stop"] = Field(
        description="start one; take the records so far, which are then forgotten; stop and take the rest"
    )


# -- what answers hold

Rate = Annotated[int | None, Field(description="bit/s on the wire; null while unknown")]


class Health(BaseModel):
    """Whether the controller is able to do its work."""

    model_config = ConfigDict(extra="allow")
    status: str
    switches: dict[str, str] = Field(description="state of each switch by its name: ready, connecting, ...")
    troubles: dict[str, list[str]] = Field(
        default_factory=dict, description="what is wrong with switches that are ready, by name"
    )


class Spread(BaseModel):
    """Milliseconds of the rounds looked at."""

    p50: float
    p99: float
    max: float


class Loop(BaseModel):
    """The control loop: every interval one round of polling the counters, deciding, and pushing what follows."""

    model_config = ConfigDict(extra="allow")
    interval_ms: float
    rounds: int = Field(description="rounds so far")
    skipped_intervals: int = Field(description="intervals that passed while a round was still at work, so far")
    unanswered_polls: int = Field(description="times that a switch did not answer within its interval, so far")
    read_meters: int = Field(description="meters read, so far")
    set_meters: int = Field(description="meters set to another rate or burst, so far")
    over_rounds: int = Field(description="how many rounds, a thousand at most, the times below are of")
    poll_ms: Spread | None = Field(description="until all switches had answered")
    step_ms: Spread | None = Field(description="deciding")
    push_ms: Spread | None = Field(description="handing over what is to be sent")
    total_ms: Spread | None


class VlanView(BaseModel):
    """A VLAN (tenant) and how its receivers' limits are shared out."""

    vlan_vid: int
    name: str
    algorithm: str
    parameters: dict[str, float] = Field(description="all that the algorithm takes, defaults included")
    weight: float
    send_limit_bps: int | None = Field(description="configured default of its VNs, bit/s; null: each has its own")
    receive_limit_bps: int | None = Field(description="configured default of its VNs, bit/s; null: each has its own")
    vns: int = Field(description="number of its VNs")
    shadow: str | None = Field(description="algorithm that is computed beside and not enforced; null: none")
    shadow_parameters: dict[str, float] = Field(description="all that the shadow takes; empty without a shadow")


class VnView(BaseModel):
    """A virtual node, one VLAN behind one edge port, with its limits and its state in the last interval."""

    vlan_vid: int
    switch: str
    dpid: str = Field(description="datapath id of the switch, 16 hex digits")
    port_no: int
    send_limit_bps: int = Field(description="bit/s on the wire")
    receive_limit_bps: int = Field(description="bit/s on the wire")
    send_ceiling_bps: int | None = Field(description="up to where it may borrow with max-min, bit/s; null: its limit")
    receive_ceiling_bps: int | None = Field(description="up to where it may borrow with max-min; null: its limit")
    measured_receive_bps: Rate = Field(description="what its senders' meters let through, bit/s; null: unknown")
    measured_send_bps: Rate = Field(description="what the meters let through of what it sends, bit/s; null: unknown")
    delivered_bps: Rate = Field(description="what its receiving queue sent, bit/s; null: unknown, or no such queue")
    granted_bps: Rate = Field(description="sum of the grants of its active senders, bit/s; null: not congested")
    congested: bool
    hosts: list[str] = Field(description="MAC addresses learned behind the port in this VLAN")


class PortView(BaseModel):
    """An edge port: what it carries, and what is promised of it."""

    switch: str
    dpid: str = Field(description="datapath id of the switch, 16 hex digits")
    port_no: int
    name: str
    capacity_bps: int = Field(description="bit/s on the wire")
    vlan_vids: list[int]
    send_limits_bps: int = Field(description="sum of its VNs' send limits")
    receive_limits_bps: int = Field(description="sum of its VNs' receive limits")
    received_bps: Rate = Field(description="what came in from its hosts, bit/s; null: unknown")
    sent_bps: Rate = Field(description="what went out to its hosts, bit/s; null: unknown")


class Place(BaseModel):
    """Where a VN lives."""

    switch: str
    dpid: str
    port_no: int


class EntryView(BaseModel):
    """A pair of VNs that talk, in one direction, and the meter that limits it at the sender's edge switch."""

    vlan_vid: int
    sender: Place
    receiver: Place
    measured_bps: Rate = Field(description="the rate to allocate by: it rises at once and fades slowly")
    offered_bps: Rate = Field(description="what came to the meter in the last interval")
    dropped_bps: Rate = Field(description="what the meter dropped in the last interval")
    granted_bps: Rate = Field(description="rate granted by the receiver's allocator; null: none")
    limit_bps: int = Field(description="limit in force: the least of the grant and both VNs' limits, bit/s")
    meter_rate_bps: int = Field(description="what the meter is set to; it follows the limit with a hysteresis, bit/s")
    meter_id: int
    control: Literal["idle", "reporting", "limited"] = Field(description="state of the send-rate controller")
    unresponsive: bool = Field(description="whether the sender goes on sending far above its rate")
    shadow_bps: Rate = Field(description="limit that the VLAN's shadow algorithm would set; null: it has none")


class ExplanationView(BaseModel):
    """Why an entry has the limit it has."""

    vlan_vid: int
    sender: Place
    receiver: Place
    limit_bps: int = Field(description="limit in force, bit/s")
    bound: str = Field(description="the constraint that binds it")
    place: int = Field(description="1 if no other sharer of that constraint is granted more, and so on; 0: no sharers")
    sharers: int = Field(description="how many entries with a grant share that constraint")
    next_bound: str = Field(description="what would bind it if that constraint were lifted, all else equal")
    next_limit_bps: int = Field(description="the limit that would be in force then, bit/s")
    sentence: str = Field(description="all of this for people to read")


class EventView(BaseModel):
    """Something that happened."""

    number: int = Field(description="grows by one with each event")
    at_s: float = Field(description="the controller's clock, seconds")
    kind: str
    text: str


class Vlans(BaseModel):
    """All VLANs."""

    vlans: list[VlanView]


class Vns(BaseModel):
    """The VNs that were asked for."""

    vns: list[VnView]


class Ports(BaseModel):
    """All edge ports."""

    ports: list[PortView]


class Entries(BaseModel):
    """The pairs that were asked for; pairs that are silent age and vanish."""

    entries: list[EntryView]


class Explanations(BaseModel):
    """Explanations of the entries of a VN."""

    explanations: list[ExplanationView]
    entries: int = Field(description="how many entries the VN has; only the first hundred are explained")


class Recording(BaseModel):
    """The recording of the control intervals, of which there is one at a time."""

    running: bool
    overrun: bool = Field(description="whether it stopped because its records were not taken in time")


class Records(Recording):
    """A part of a recording."""

    records: str = Field(description="the records taken, base64; see controller/recording.py")


class Events(BaseModel):
    """Events, oldest first. The last thousand are kept."""

    events: list[EventView]
    last: int = Field(description="number of the newest event there is; below `after` if the controller restarted")
