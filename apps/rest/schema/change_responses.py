"""Responses about changes: the result of one, overrides, the history, and the document of all overrides."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from apps.rest.schema.fabric_responses import Page
from apps.rest.schema.rest_model import RestModel


class ChangeResult(RestModel):
    """The result of a change, or of its dry run."""

    revision: int = Field(description="number of the change; with dry_run of the last change")
    changed: int = Field(description="number of effective values that differ from before")


class ConfigChangeView(RestModel):
    """One changed value of the configuration; null: absent."""

    path: str = Field(description="path of the value in the configuration; rates in bit/s")
    before: bool | int | float | str | None
    after: bool | int | float | str | None


class ReloadResult(RestModel):
    """The result of a reload, or of its dry run."""

    revision: int = Field(description="number of the last change")
    summary: list[str] = Field(
        description="the differences, in sentences; consequences of other differences are left out"
    )
    changes: list[ConfigChangeView] = Field(description="all values that differ")


class VlanOrVn(RestModel):
    """A VLAN, or a VN if ``switch`` and ``port_no`` are given."""

    vlan_vid: int
    switch: str | None
    port_no: int | None
    port: str | None = Field(description="number of the port, or name of its interface if it is configured by name")


class OverrideView(VlanOrVn):
    """The override of a VLAN, or of a VN if ``switch`` and ``port_no`` are given."""

    values: dict[str, Any] = Field(description="the values set at run time, by field; rates in bit/s")
    file: dict[str, Any] = Field(
        description="the configuration file's values of these fields; empty: the file lacks the VLAN or VN"
    )
    revision: int
    active: bool = Field(description="whether the override is effective")
    reason: str | None = Field(description="why the override, or a part of it, is not effective; null: it is")


class ReplaceResult(ChangeResult):
    """The result of replacing all overrides, or of its dry run."""

    inactive: list[OverrideView] = Field(description="overrides that do not fit the configuration, a thousand at most")


class OverrideList(Page):
    """Overrides: first of VLANs, by id, then of VNs in the order of the configuration."""

    overrides: list[OverrideView]
    revision: int = Field(description="number of the last change")


class ChangeView(RestModel):
    """A change: its time, its client and its action."""

    revision: int
    at: str = Field(description="RFC 3339, UTC")
    who: str = Field(description="name of the client's token or certificate; anonymous: neither was needed")
    address: str = Field(description="address of the client")
    action: Literal["vn", "vlan", "limits", "reset", "import", "undo", "configuration"] = Field(
        description="kind of request; configuration: another configuration file was loaded"
    )
    changed: int = Field(description="number of changed values")


class ItemView(VlanOrVn):
    """A changed value: of a VLAN, or of a VN if ``switch`` and ``port_no`` are given."""

    field: str
    before: Any
    after: Any


class ChangeDetail(ChangeView):
    """A change with all its values."""

    items: list[ItemView]


class History(Page):
    """Changes, newest first; the last ten thousand are stored."""

    changes: list[ChangeView]


class VlanValues(RestModel):
    """The override of a VLAN."""

    vlan_vid: int
    values: dict[str, Any]


class VnValues(RestModel):
    """The override of a VN; values without an override are absent."""

    model_config = ConfigDict(extra="allow")
    vlan_vid: int
    switch: str
    port_no: int


class Export(RestModel):
    """All overrides, for ``/v1/import``."""

    format: Literal["dets-overrides-1"]
    vlans: list[VlanValues]
    vns: list[VnValues]
