"""Responses about changes: the result of one, overrides, the history, and the document of all overrides."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from apps.rest.schema.fabric_responses import Page
from apps.rest.schema.rest_model import RestModel


class ChangeResult(RestModel):
    """The result of a change, or of its dry run."""

    revision: int = Field(description="its number; with dry_run that of the last change")
    changed: int = Field(description="how many values in force are others than before")


class ConfigChangeView(RestModel):
    """One changed value of the configuration; null where it is absent."""

    path: str = Field(description="where it stands; rates in bit/s")
    before: bool | int | float | str | None
    after: bool | int | float | str | None


class ReloadResult(RestModel):
    """The result of a reload, or of its dry run."""

    revision: int = Field(description="the last change to anything")
    summary: list[str] = Field(description="what differs, in sentences; what follows from something else is left out")
    changes: list[ConfigChangeView] = Field(description="every value that differs")


class OverrideView(RestModel):
    """The override of a VLAN, or of a VN if ``switch`` and ``port_no`` are given."""

    vlan_vid: int
    switch: str | None
    port_no: int | None
    port: str | None = Field(description="its number, or the name of its interface, by which it is configured")
    values: dict[str, Any] = Field(description="what was set, by field; rates in bit/s")
    file: dict[str, Any] = Field(description="what the configuration says of these fields; empty: it has no such thing")
    revision: int
    active: bool = Field(description="whether it is in force")
    reason: str | None = Field(description="why it, or a part of it, is not in force")


class ReplaceResult(ChangeResult):
    """The result of replacing all overrides, or of its dry run."""

    inactive: list[OverrideView] = Field(description="those that do not fit the configuration, a thousand at most")


class OverrideList(Page):
    """Overrides: first of VLANs, by id, then of VNs in the order of the configuration."""

    overrides: list[OverrideView]
    revision: int = Field(description="of the last change to anything")


class ChangeView(RestModel):
    """Who changed what and when."""

    revision: int
    at: str = Field(description="RFC 3339, UTC")
    who: str = Field(description="the name of the token or certificate; anonymous: neither was needed")
    address: str = Field(description="where the request came from")
    action: Literal["vn", "vlan", "limits", "reset", "import", "undo", "configuration"] = Field(
        description="the request; configuration: the file was another one"
    )
    changed: int = Field(description="how many values")


class ItemView(RestModel):
    """A changed value: of a VLAN, or of a VN if ``switch`` and ``port_no`` are given."""

    vlan_vid: int
    switch: str | None
    port_no: int | None
    port: str | None = Field(description="its number, or the name of its interface, by which it is configured")
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
