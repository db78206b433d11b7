"""The queries, headers and paths of requests. The models are also in ``/v1/openapi.json``.

Field descriptions are part of the reference, so they have units.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from apps.rest.schema import value_types
from apps.rest.schema.rest_model import RestModel
from controller.events import EventKind

MAX_REVISION = 2**62


def absent_not_null(schema: dict[str, Any]) -> None:
    """Describe an optional field, which has no default and must not be null."""
    for field in schema["properties"].values():
        field.pop("default", None)


class _Parameters(RestModel):
    """Caches its JSON schema, which the library needs again for every request with parameters."""

    @classmethod
    def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:
        return super().model_json_schema(*arguments, **options) if arguments or options else cls._plain_schema()

    @classmethod
    @cache
    def _plain_schema(cls) -> dict[str, Any]:
        return super().model_json_schema()


class _Query(_Parameters):
    model_config = ConfigDict(extra="forbid", json_schema_extra=absent_not_null)

    def given(self, name: str) -> str | None:
        """Return a part of the query, None if it is absent; an empty text is present."""
        return getattr(self, name) if name in self.model_fields_set else None


class NoQuery(_Query):
    """The query of resources without parameters."""


class OpenapiQuery(_Query):
    """The version of OpenAPI."""

    version: Literal["3.0", "3.1"] = Field(default="3.1", description="version of OpenAPI; by default 3.1")


class MetricsQuery(_Parameters):
    """The names of metrics; parameters that proxies add are ignored."""

    model_config = ConfigDict(extra="ignore", json_schema_extra=absent_not_null)

    names: list[Annotated[str, Field(pattern="^[a-zA-Z_:][a-zA-Z0-9_:]*$", max_length=80)]] = Field(
        default=[], alias="name[]", max_length=40, description="only metrics of these names"
    )


class ChangeQuery(_Query):
    """How a change must be made."""

    dry_run: value_types.Flag = Field(
        default=False, description="check the change and respond as if it were made, without making it"
    )


class IfMatch(_Parameters):
    """The revision of the resource that a change is based on."""

    model_config = ConfigDict(json_schema_extra=absent_not_null)
    if_match: Annotated[str, WithJsonSchema({"type": "string", "example": "*"})] = Field(
        default="", alias="If-Match", description='ETag of the resource to change, such as "17"; *: any'
    )


def _always_given(schema: dict[str, Any]) -> None:
    absent_not_null(schema)
    schema["required"] = ["If-Match"]


class NeededIfMatch(IfMatch):
    """The revision that a change of all overrides is based on; without it the response is 428."""

    model_config = ConfigDict(json_schema_extra=_always_given)


class PageQuery(_Query):
    """The page of a list."""

    limit: value_types.PageSize = Field(
        default=value_types.MAX_PAGE, description="maximum number of items; by default the largest allowed"
    )
    cursor: Annotated[
        str, WithJsonSchema({"type": "string", "pattern": "^[A-Za-z0-9_-]*={0,2}$", "maxLength": 500})
    ] = Field(default="", description="`next` of the previous page; by default the first page")


class VnQuery(PageQuery):
    """The VNs, or the senders of pairs, to list: all, or those of a VLAN, of a switch, or of both."""

    vlan: value_types.VlanText = Field(default="", description="only VNs of this VLAN, by its id or name")
    switch: value_types.SwitchText = Field(default="", description="only VNs on this switch, by its name")


class VnListQuery(VnQuery):
    """The VNs to list."""

    violated: value_types.Flag = Field(default=False, description="only VNs whose guarantee is violated now")


class HistoryQuery(PageQuery):
    """The changes to list: all, or those that concern a VLAN or a VN."""

    vlan: value_types.VlanText = Field(
        default="",
        description="only changes of this VLAN and its VNs, by its id or name; required with switch and port",
    )
    switch: value_types.SomeSwitch = Field(default="", description="only changes of VNs on this switch, by its name")
    port: value_types.PastPort = Field(
        default="", description="only changes of VNs at this port, by its number or name"
    )


class PortQuery(PageQuery):
    """The edge ports to list."""

    switch: value_types.SwitchText = Field(default="", description="only ports of this switch, by its name")
    name: value_types.PortName = Field(default="", description="only ports of this name")


class HostQuery(VnQuery):
    """The hosts to list: all, or those of a VLAN, of an edge port, and of an address."""

    port: value_types.PastPort = Field(
        default="", description="only hosts at this port, by its number or name; requires switch"
    )
    mac: value_types.MacText = Field(default="", description="only hosts with this MAC address, with colons or dashes")


class OverrideQuery(PageQuery):
    """The overrides to list."""

    active: value_types.Flag | None = Field(
        default=None, description="true: only effective overrides; false: only those that are not effective"
    )


class StreamQuery(_Query):
    """The contents and the interval of a stream."""

    vlan: value_types.VlanText = Field(default="", description="only VNs of this VLAN, by its id or name")
    switch: value_types.SwitchText = Field(default="", description="only VNs on this switch, by its name")
    interval_ms: value_types.StreamMs = Field(
        default=1000, description="milliseconds between two states; by default 1000"
    )
    pairs_of: value_types.VnText = Field(
        default="", description="with vlan or switch: also the pairs of this VN, as VLAN/SWITCH/PORT"
    )
    count: value_types.StreamCount = Field(
        default=value_types.MAX_STREAM_STATES, description="number of states after which the stream ends"
    )


class SeriesQuery(_Query):
    """The VLAN or VN of the series."""

    vlan: value_types.VlanText = Field(default="", description="a VLAN, by its id or name: sums over its VNs")
    vn: Annotated[
        value_types.VnText, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 200, "example": "10/s1/1"})
    ] = Field(default="", description="a VN, as VLAN/SWITCH/PORT")


class EventQuery(_Query):
    """The events to list: kind, location, first number."""

    kind: Annotated[EventKind | None, WithJsonSchema({"type": "string", "enum": [str(kind) for kind in EventKind]})] = (
        Field(default=None, description="only events of this kind")
    )
    vlan: value_types.VlanText = Field(default="", description="only events of this VLAN, by its id or name")
    switch: value_types.SomeSwitch = Field(default="", description="only events of this switch, by its name")
    after: value_types.EventNumber = Field(default=0, description="only events with a higher number")
    limit: value_types.EventCount = Field(
        default=value_types.MAX_EVENTS, description="maximum number of items; by default the largest allowed"
    )


class LoopQuery(_Query):
    """The first round to show."""

    after: value_types.EventNumber = Field(default=0, description="only rounds with a higher number")


class PortPath(RestModel):
    """An edge port."""

    switch: value_types.SwitchName
    port_no: value_types.PortText


class HostPath(_Parameters):
    """A host address, in any VLAN."""

    mac: value_types.MacText


class ChangePath(RestModel):
    """A change of the history."""

    revision: Annotated[
        str,
        WithJsonSchema(
            {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_REVISION,
                "description": "number of the change",
                "example": 2,
            }
        ),
    ]


class VlanPath(RestModel):
    """A VLAN."""

    vlan_vid: value_types.VlanText


class VnPath(RestModel):
    """A VN: its VLAN, and its edge port."""

    vlan_vid: value_types.VlanText
    switch: value_types.SwitchName
    port_no: value_types.PortText


class PairPath(RestModel):
    """A pair: its VLAN, and the edge ports of its sender and its receiver."""

    vlan_vid: value_types.VlanText
    sender_switch: value_types.SwitchName
    sender_port_no: value_types.PortText
    receiver_switch: value_types.SwitchName
    receiver_port_no: Annotated[str, value_types.named("port of the receiver, by its number or name", "2")]
