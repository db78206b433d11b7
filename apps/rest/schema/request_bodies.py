"""The bodies of requests. The models are also in ``/v1/openapi.json``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, WithJsonSchema, model_validator

from apps.rest.schema import value_types
from apps.rest.schema.request_parameters import absent_not_null
from apps.rest.schema.rest_model import RestModel
from controller.config.value_types import MAX_VLAN_VID
from controller.errors import InvalidValueError
from controller.policy.registry import policies

MAX_LIMITS = 20_000


def _change(schema: dict[str, Any]) -> None:
    absent_not_null(schema)
    schema["minProperties"] = 1


def _with_example(**body: Any) -> ConfigDict:
    def extend(schema: dict[str, Any]) -> None:
        _change(schema)
        schema["example"] = body

    return ConfigDict(json_schema_extra=extend)


class _Patch(RestModel):
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
    """New limits, ceilings and weight of a VN. Absent values do not change. All are set, or none."""

    model_config = _with_example(receive_limit_bps=20_000_000)
    send_limit_bps: value_types.RateBps = 0
    receive_limit_bps: value_types.RateBps = 0
    send_ceiling_bps: value_types.CeilingBps = None
    receive_ceiling_bps: value_types.CeilingBps = None
    weight: value_types.Weight = 0.0


class VlanPatch(_Patch):
    """New values of a VLAN. A new algorithm has its default parameters unless ``parameters`` are given."""

    model_config = _with_example(algorithm="fp", parameters={"d": 2})
    name: value_types.Name = ""
    algorithm: Annotated[
        Any, WithJsonSchema({"type": "string", "enum": list(policies), "description": "short name of the algorithm"})
    ] = ""
    parameters: value_types.Parameters = None
    shadow: Annotated[
        Any,
        WithJsonSchema(
            {
                "enum": [*policies, None],
                "description": "short name of an algorithm that is computed and not enforced; null: none",
            }
        ),
    ] = None
    shadow_parameters: value_types.Parameters = None
    weight: value_types.Weight = 0.0
    send_limit_bps: value_types.RateBps = 0
    receive_limit_bps: value_types.RateBps = 0


_AN_ITEM: JsonValue = {"vlan_vid": 10, "switch": "s1", "port_no": 1, "receive_limit_bps": 20_000_000}


def _vn_item() -> dict[str, Any]:
    """Return the schema of one VN's values in a list: the location and at least one of the values."""
    return {
        "type": "object",
        "properties": {
            "vlan_vid": value_types.VLAN_SCHEMA | {"description": "VLAN id, or the VLAN's name"},
            "switch": value_types.NAME_SCHEMA | {"description": "name of the switch"},
            "port_no": value_types.PORT_SCHEMA
            | {"description": "OpenFlow port number of an edge port, or the port's name"},
            "send_limit_bps": value_types.RATE_SCHEMA,
            "receive_limit_bps": value_types.RATE_SCHEMA,
            "send_ceiling_bps": value_types.CEILING_SCHEMA,
            "receive_ceiling_bps": value_types.CEILING_SCHEMA,
            "weight": value_types.WEIGHT_SCHEMA,
        },
        "required": ["vlan_vid", "switch", "port_no"],
        "minProperties": 4,
        "additionalProperties": False,
    }


class ManyLimits(RestModel):
    """New limits, ceilings and weights of many VNs: all are set, or none. Absent values of a VN do not change."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"limits": [_AN_ITEM]}})
    # Read by apps.rest.schema.bulk_values: thousands of models at once would take too long.
    limits: Annotated[
        Any, WithJsonSchema({"type": "array", "items": _vn_item(), "minItems": 1, "maxItems": MAX_LIMITS})
    ]


class Import(RestModel):
    """A document of ``/v1/export``, which replaces all overrides."""

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
                        "vlan_vid": value_types.VLAN_SCHEMA | {"description": "VLAN id, or the VLAN's name"},
                        "values": VlanPatch.model_json_schema(),
                    },
                    "required": ["vlan_vid", "values"],
                    "additionalProperties": False,
                },
            }
        ),
    ]
    vns: Annotated[Any, WithJsonSchema({"type": "array", "items": _vn_item(), "maxItems": MAX_LIMITS})]


class RecordingAction(RestModel):
    """An action on the recording of the control intervals."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"action": "start"}})
    action: Literal["start", "take", "stop"] = Field(
        description="start a recording; take and delete its records so far; stop it and take the rest"
    )
