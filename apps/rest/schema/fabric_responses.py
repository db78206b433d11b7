"""Responses about switches, links, guarantees, series and the session; descriptions have the units."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from apps.rest.schema.rest_model import RestModel

Rate = Annotated[int | None, Field(description="bit/s on the wire; null while unknown")]
Partial = Annotated[
    list[str] | None,
    Field(description="nodes of the cluster that did not answer: their data are missing here; absent: none"),
]


class Page(RestModel):
    """A page of a list."""

    next: str | None = Field(description="cursor of the next page; null: this is the last page")
    unreachable_nodes: Partial = None


class SwitchView(RestModel):
    """A switch of the configuration."""

    switch: str = Field(description="name of the switch")
    dpid: str = Field(description="datapath id, 16 hex digits")
    role: Literal["edge", "core"] = Field(description="edge: the switch has edge ports; core: it has none")
    state: Literal["disconnected", "connecting", "ready", "failed"]
    faults: list[str] = Field(description="faults of a switch that is ready")
    edge_ports: int
    vns: int
    capacity_bps: int = Field(description="sum of the capacities of the edge ports, bit/s")


class Switches(Page):
    """Switches in the order of the configuration."""

    switches: list[SwitchView]


class LinkDirection(RestModel):
    """One direction of a link."""

    committed_bps: int | None = Field(
        description="largest load that the limits allow: exact on trees, elsewhere an upper bound, bit/s; null: the "
        "link is not in the configuration"
    )
    load_bps: Rate = Field(description="load, mean over the last second, bit/s; null: unknown")


class LinkEndView(RestModel):
    """One end of a link."""

    switch: str
    dpid: str
    port_no: int


class LinkView(RestModel):
    """A link between two switches."""

    a: LinkEndView
    b: LinkEndView
    capacity_bps: int | None = Field(
        description="capacity of each direction, bit/s; null: the link is not in the configuration"
    )
    admissible_bps: int | None = Field(description="largest commitment: the capacity less the overhead of frames")
    up: bool
    up_since: str | None = Field(description="RFC 3339, UTC; null: the link is down")
    a_to_b: LinkDirection
    b_to_a: LinkDirection


class Links(Page):
    """Links of the configuration in its order, then other discovered links."""

    links: list[LinkView]


class ViolatedBy(RestModel):
    """For how long a guarantee was violated, by reason; seconds since the controller started."""

    switch: float = Field(description="the VN's switch, or a sender's, was not connected")
    controller: float = Field(description="the controller was late in the last seconds")
    floods: float = Field(description="floods used a part of the receive limit")
    grants: float = Field(description="grants, or meters that enforce them, were too low")


class GuaranteeView(RestModel):
    """The guarantee of a VN's receive limit: whether the traffic offered within the limit reaches the VN."""

    entitled_bps: int = Field(description="offered load within the limit, mean over 3 s, bit/s")
    received_bps: int = Field(description="received rate, mean over 3 s, bit/s")
    violated: bool = Field(description="the VN receives less than 95 % of its entitled rate")
    violated_since: str | None = Field(description="RFC 3339, UTC; null: the guarantee is met")
    idle_s: float = Field(description="seconds without an entitled rate, since the controller started")
    met_s: float = Field(description="seconds in which the guarantee was met")
    violated_s: float = Field(description="seconds in which the guarantee was violated")
    violated_last_hour_s: float = Field(description="seconds of the last hour in which the guarantee was violated")
    violated_by_s: ViolatedBy


class SeriesColumns(RestModel):
    """Rates in bit/s, one number per second; a VLAN's are the sums over its VNs."""

    offered: list[int] = Field(description="rate sent to the VN, before any meter")
    received: list[int] = Field(description="rate that passed its senders' meters")
    dropped: list[int] = Field(description="rate that its senders' meters dropped")
    granted: list[int] = Field(description="sum of its senders' grants; 0 while the VN is not congested")
    send_offered: list[int] = Field(description="rate sent by the VN, before its send limit")
    sent: list[int] = Field(description="rate sent by the VN that passed all meters")
    send_limit_dropped: list[int] = Field(description="rate that the meter of its send limit dropped")
    flooded: list[int] = Field(description="rate sent to broadcast, multicast and unknown addresses")


class SeriesView(RestModel):
    """The last five minutes, one row per second, oldest first."""

    at: list[float] = Field(description="seconds since 1970, UTC")
    receive_limit_bps: list[int] = Field(description="receive limit at that time, bit/s; of a VLAN the sum")
    mean: SeriesColumns = Field(description="mean over the second")
    max: SeriesColumns = Field(description="maximum over the second's intervals")


class SessionView(RestModel):
    """The client's identity and scope."""

    who: str = Field(description="name of the client's token or certificate; anonymous: neither was needed")
    address: str
    scope: Literal["read", "write"]
    authentication: Literal["none", "token"] = Field(description="whether requests need a token")
    if_match: Literal["optional", "required"] = Field(description="whether changes need If-Match")
    version: str = Field(description="version of the controller")
    interval_ms: int = Field(description="control interval, ms")
