"""Responses about switches, links, guarantees, series and the session; descriptions have the units."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from apps.rest.schema.rest_model import RestModel

Rate = Annotated[int | None, Field(description="bit/s on the wire; null while unknown")]
Partial = Annotated[
    list[str] | None,
    Field(description="nodes of a cluster that did not answer, and what they know is missing; absent: none"),
]


class Page(RestModel):
    """A page of a list."""

    next: str | None = Field(description="cursor of the next page; null: this is the last one")
    unreachable_nodes: Partial = None


class SwitchView(RestModel):
    """A switch of the configuration."""

    switch: str = Field(description="its name")
    dpid: str = Field(description="datapath id, 16 hex digits")
    role: Literal["edge", "core"] = Field(description="whether it has edge ports")
    state: Literal["disconnected", "connecting", "ready", "failed"]
    faults: list[str] = Field(description="what is wrong with it although it is ready")
    edge_ports: int
    vns: int
    capacity_bps: int = Field(description="sum of its edge ports' capacities, bit/s")


class Switches(Page):
    """Switches in the order of the configuration."""

    switches: list[SwitchView]


class LinkDirection(RestModel):
    """One direction of a link."""

    committed_bps: int | None = Field(
        description="the most that the limits let through it: exact on trees, elsewhere an upper bound; null: the link "
        "is not in the configuration"
    )
    load_bps: Rate = Field(description="what it carried, mean over the last second, bit/s; null: unknown")


class LinkEndView(RestModel):
    """One end of a link."""

    switch: str
    dpid: str
    port_no: int


class LinkView(RestModel):
    """A link between two switches."""

    a: LinkEndView
    b: LinkEndView
    capacity_bps: int | None = Field(description="either way, bit/s; null: the link is not in the configuration")
    admissible_bps: int | None = Field(description="largest commitment: the capacity less the overhead of frames")
    up: bool
    up_since: str | None = Field(description="RFC 3339, UTC; null: it is down")
    a_to_b: LinkDirection
    b_to_a: LinkDirection


class Links(Page):
    """Links of the configuration in its order, then other discovered links."""

    links: list[LinkView]


class ViolatedBy(RestModel):
    """For how long a guarantee was violated, by reason; seconds since the controller started."""

    switch: float = Field(description="its switch, or one of its senders', was not connected")
    controller: float = Field(description="the controller was late in the last seconds")
    floods: float = Field(description="floods used a part of the receive limit")
    grants: float = Field(description="less was granted, or passed by the meters that follow the grants")


class GuaranteeView(RestModel):
    """The guarantee of a VN's receive limit: whether the traffic offered within the limit reaches the VN."""

    entitled_bps: int = Field(description="what is offered within the limit, mean over 3 s, bit/s")
    received_bps: int = Field(description="what it gets, mean over 3 s, bit/s")
    violated: bool = Field(description="it receives less than 95 % of its entitled rate")
    violated_since: str | None = Field(description="RFC 3339, UTC; null: it is met")
    idle_s: float = Field(description="seconds without an entitled rate, since the controller started")
    met_s: float = Field(description="seconds in which the guarantee was met")
    violated_s: float = Field(description="seconds in which the guarantee was violated")
    violated_last_hour_s: float = Field(description="the same in the last hour")
    violated_by_s: ViolatedBy


class SeriesColumns(RestModel):
    """Rates in bit/s, one number per second; a VLAN's are the sums over its VNs."""

    offered: list[int] = Field(description="sent to it, before any meter")
    received: list[int] = Field(description="of that, what passed its senders' meters")
    dropped: list[int] = Field(description="dropped by the meters of its senders' pairs with it")
    granted: list[int] = Field(description="sum of its senders' grants; 0 while it is not congested")
    send_offered: list[int] = Field(description="what it sends, before its send limit")
    sent: list[int] = Field(description="what its meters let through of that")
    send_limit_dropped: list[int] = Field(description="what its send limit drops")
    flooded: list[int] = Field(description="sent to everybody, groups and unknown addresses")


class SeriesView(RestModel):
    """The last five minutes, one row per second, oldest first."""

    at: list[float] = Field(description="seconds since 1970, UTC")
    receive_limit_bps: list[int] = Field(description="the limit then; of a VLAN the sum")
    mean: SeriesColumns = Field(description="mean of the second")
    max: SeriesColumns = Field(description="highest of the second's intervals")


class SessionView(RestModel):
    """The client's identity and scope."""

    who: str = Field(description="the name of the token or certificate; anonymous: neither was needed")
    address: str
    scope: Literal["read", "write"]
    authentication: Literal["none", "token"] = Field(description="whether requests need a token")
    if_match: Literal["optional", "required"] = Field(description="whether changes need If-Match")
    version: str = Field(description="of the controller")
    interval_ms: int = Field(description="control interval")
