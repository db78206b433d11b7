"""Responses about the fabric and its tenants: VLANs, VNs, ports, pairs, explanations and events.

The models are also in ``/v1/openapi.json``; descriptions have the units.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from apps.rest.schema.fabric_responses import GuaranteeView, Page, Partial, Rate
from apps.rest.schema.rest_model import RestModel
from controller.events import EventKind


class VlanView(RestModel):
    """A VLAN (tenant) and its sharing of receive limits."""

    vlan_vid: int
    name: str
    algorithm: str
    parameters: dict[str, float] = Field(description="all that the algorithm takes, defaults included")
    weight: float
    send_limit_bps: int | None = Field(description="configured default of its VNs, bit/s; null: each has its own")
    receive_limit_bps: int | None = Field(description="configured default of its VNs, bit/s; null: each has its own")
    vns: int = Field(description="number of its VNs")
    shadow: str | None = Field(description="algorithm that is computed for comparison and not enforced; null: none")
    shadow_parameters: dict[str, float] = Field(description="all that the shadow takes; empty without a shadow")
    overridden: list[str] = Field(description="which of these were set at run time and are not the file's")
    revision: int = Field(description="of the last change to it; its ETag")


Enforceable = Annotated[
    Literal["yes", "partly", "no"],
    Field(description="whether the limits of VNs at the port can be enforced, as tests of its switch have shown"),
]


_PORT = Field(description="its number, or the name of its interface, by which it is configured")


class VnView(RestModel):
    """A virtual node, one VLAN behind one edge port, with its limits and its state in the last interval."""

    vlan_vid: int
    switch: str
    dpid: str = Field(description="datapath id of the switch, 16 hex digits")
    port_no: int
    port: str = _PORT
    send_limit_bps: int = Field(description="bit/s on the wire")
    receive_limit_bps: int = Field(description="bit/s on the wire")
    send_ceiling_bps: int | None = Field(description="up to where its algorithm may borrow, bit/s; null: its limit")
    receive_ceiling_bps: int | None = Field(description="up to where its algorithm may borrow; null: its limit")
    weight: float = Field(description="its share of what its VLAN's algorithm shares by weight")
    measured_receive_bps: Rate = Field(description="what its senders' meters let through, bit/s; null: unknown")
    measured_send_bps: Rate = Field(description="what the meters let through of what it sends, bit/s; null: unknown")
    offered_receive_bps: Rate = Field(
        description="what its senders send to it, before any drop (senders above their send limit: in proportion); "
        "null: unknown"
    )
    offered_send_bps: Rate = Field(description="what it sends, before any drop; null: unknown")
    dropped_receive_bps: Rate = Field(description="what its senders' meters dropped; null: unknown")
    dropped_send_bps: Rate = Field(description="what the meters of its pairs dropped of what it sends; null: unknown")
    send_limit_dropped_bps: Rate = Field(description="what the meter of its send limit dropped; null: unknown")
    delivered_bps: Rate = Field(description="what its receiving queue sent, bit/s; null: unknown, or no such queue")
    granted_bps: Rate = Field(description="sum of the grants of its active senders, bit/s; null: not congested")
    marked_share: float | None = Field(
        description="part of what it receives that counts as marked; null: unknown, or none"
    )
    lost_share: float | None = Field(description="part of it that is lost on its way; null: unknown, or none")
    bottleneck: str | None = Field(
        description="where the policy holds back the pair that sends it most; null: nowhere that it names"
    )
    flood_limit_bps: int = Field(description="most that it may send to everybody, to groups and to unknown addresses")
    flooded_bps: Rate = Field(description="what it sends of these behind its meters, bit/s; null: unknown")
    flood_dropped_bps: Rate = Field(description="what its meters drop of these; null: unknown")
    flood_received_bps: Rate = Field(description="what others' floods take of its receive limit now, bit/s")
    congested: bool = Field(description="more is sent to it than its limit; with max-min: than its senders are granted")
    congested_since: str | None = Field(description="RFC 3339, UTC; null: is not, or was when the controller started")
    queue_dropped_bps: Rate = Field(
        description="what its receiving queue dropped in the last interval; null: unknown, or no policy reads queues"
    )
    notifications: int = Field(description="congestion notifications that its senders got from it, so far")
    guarantee: GuaranteeView
    hosts: list[str] = Field(description="MAC addresses learned behind the port in this VLAN")
    hosts_full: bool = Field(
        description="whether it has as many hosts as it may learn: a new one is served as an unknown destination"
    )
    enforceable: Enforceable
    enforceable_reasons: list[str] = Field(description="why it is not yes")
    overridden: list[str] = Field(description="which of limits, ceilings and weight were set at run time")
    revision: int = Field(description="of the last change to its limits, ceilings and weight; its ETag")


class AgentView(RestModel):
    """The agent on the host behind an edge port."""

    mode: Literal["trust", "verify"] = Field(description="whether it shapes alone, or meters verify it")
    state: Literal["absent", "hello", "trusted", "distrusted"]
    features: list[str] = Field(description="its features")
    last_seen_ms: int | None = Field(description="since its last frame; null: never")
    rejected_frames: dict[str, int] = Field(description="its rejected frames, by cause")


class PortView(RestModel):
    """An edge port: its load, and its commitments."""

    switch: str
    dpid: str = Field(description="datapath id of the switch, 16 hex digits")
    port_no: int
    port: str = _PORT
    name: str
    interface: str | None = Field(description="name that the switch gives it, 15 characters at most; null: unknown")
    state: Literal["up", "down", "absent"] | None = Field(description="null: its switch has not been there")
    state_since: str | None = Field(description="RFC 3339, UTC; null: unknown")
    speed_bps: Rate = Field(description="of its link, as the switch says; null: it says none")
    fence: str | None = Field(
        description="why nothing passes it: it may be another port than is meant; null: frames do"
    )
    capacity_bps: int = Field(description="bit/s on the wire")
    admissible_bps: int = Field(description="largest sum of limits: the capacity less the overhead of frames")
    vlan_vids: list[int]
    untagged_vid: int | None = Field(description="the VLAN whose frames carry no tag here; null: all carry one")
    refused_frames: dict[str, int] | None = Field(
        description="frames of hosts that were dropped where they came in, by reason: untagged, foreign-vlan, lldp, "
        "fenced; read every 10 s; null: not yet"
    )
    send_limits_bps: int = Field(description="sum of its VNs' send limits")
    receive_limits_bps: int = Field(description="sum of its VNs' receive limits")
    received_bps: Rate = Field(description="what came in from its hosts, bit/s; null: unknown")
    sent_bps: Rate = Field(description="what went out to its hosts, bit/s; null: unknown")
    enforceable: Enforceable
    enforceable_reasons: list[str] = Field(description="why it is not yes")
    agent: AgentView | None = Field(description="the agent on its host; null: none is configured")


class PortLocation(RestModel):
    """The location of a VN."""

    switch: str
    dpid: str
    port_no: int
    port: str = _PORT


class PairView(RestModel):
    """An active pair of VNs, in one direction, and the meter that limits it at the sender's edge switch."""

    vlan_vid: int
    sender: PortLocation
    receiver: PortLocation
    measured_bps: Rate = Field(description="the rate to allocate by: it rises at once and fades slowly")
    offered_bps: Rate = Field(description="what came to the meter in the last interval")
    dropped_bps: Rate = Field(description="what the meter dropped in the last interval")
    granted_bps: Rate = Field(description="rate granted by the receiver's allocator; null: none")
    limit_bps: int = Field(description="limit in force: the least of the grant and both VNs' limits, bit/s")
    meter_rate_bps: int = Field(
        description="what the meter is set to, bit/s; its mean follows the limit (docs/enforcement.md)"
    )
    meter_id: int | None = Field(description="null: its host's agent shapes alone")
    shaping: Literal["meter", "agent", "both"] = Field(
        description="who shapes: a meter, the agent of the sender's host, or both"
    )
    control: Literal["idle", "reporting", "limited"] = Field(description="state of the send-rate controller")
    enforced: bool = Field(description="whether its limit holds: an agent shapes, or meters limit, as tests have shown")
    unresponsive: bool = Field(description="whether the sender goes on sending far above its rate")
    shadow_bps: Rate = Field(description="limit that the VLAN's shadow algorithm would set; null: it has none")
    egress_limit_bps: Rate = Field(
        description="limit that the sender sets itself by congestion notifications; null: its policy has none"
    )
    notification_age_s: float | None = Field(
        description="since when the sender got no notification; null: it never did"
    )
    marked_share: float | None = Field(description="part of its traffic that counts as marked; null: unknown, or none")
    lost_share: float | None = Field(description="part of it that is lost at its bottleneck; null: unknown, or none")
    bottleneck: str | None = Field(description="where its policy holds it back; null: its policy names no such place")


class UnmeteredPairView(RestModel):
    """An active pair of VNs without a meter, in one direction."""

    vlan_vid: int
    sender: PortLocation
    receiver: PortLocation
    why: str = Field(description="why it has no meter")


class ExplanationView(RestModel):
    """Why a pair has its limit."""

    vlan_vid: int
    sender: PortLocation
    receiver: PortLocation
    limit_bps: int = Field(description="limit in force, bit/s")
    constraint: str = Field(description="the constraint that binds it")
    rank: int = Field(description="1 if no other sharer of that constraint is granted more, and so on; 0: no sharers")
    sharers: int = Field(description="how many entries with a grant share that constraint")
    next_constraint: str = Field(description="what would bind it if that constraint were lifted, all else equal")
    next_limit_bps: int = Field(description="the limit that would be in force then, bit/s")
    offered_send_bps: Rate = Field(description="what the sender sends in all, before its send limit; null: unknown")
    send_limit_dropped_bps: Rate = Field(description="what the sender's send limit drops of that; null: unknown")
    sentence: str = Field(description="all of this for people to read")


class EventView(RestModel):
    """An event."""

    number: int = Field(description="grows by one with each event")
    at_s: float = Field(description="the controller's clock, seconds")
    at: str = Field(description="RFC 3339, UTC")
    kind: EventKind
    severity: Literal["info", "warning", "critical"]
    vlan_vid: int | None = Field(description="the VLAN that it is about; null: none, or several")
    switch: str | None = Field(description="the switch that it is about; null: none, or several")
    port_no: int | None = Field(description="the edge port that it is about; null: none, or several")
    text: str


class HostView(RestModel):
    """The location of a host address, in one VLAN."""

    mac: str
    vlan_vid: int
    switch: str
    dpid: str = Field(description="datapath id of the switch, 16 hex digits")
    port_no: int
    port: str = _PORT
    since: str | None = Field(
        description="since when it was seen there, RFC 3339, UTC; of what stood in a switch's tables, when these were "
        "read; null: unknown"
    )
    moved_from: PortLocation | None = Field(
        description="where it was before, as far as it was known when it came; null: it was known nowhere"
    )


class Vlans(Page):
    """VLANs by id."""

    vlans: list[VlanView]
    revision: int = Field(description="of the last change to anything")


class Vns(Page):
    """The requested VNs, in the order of the configuration."""

    vns: list[VnView]
    revision: int = Field(description="of the last change to anything")


class Ports(Page):
    """Edge ports, in the order of the configuration."""

    ports: list[PortView]


class Entries(Page):
    """The requested pairs; idle pairs age and are removed."""

    pairs: list[PairView]
    unmetered_pairs: list[UnmeteredPairView] = Field(
        description="all pairs that talk and have no meter: they are not limited, and their rates are unknown"
    )


class Hosts(Page):
    """Known hosts, by VLAN and address. A cursor continues after a host, even if that is gone."""

    hosts: list[HostView]


class HostPlaces(RestModel):
    """The location of an address: a host for each VLAN in which it is known."""

    hosts: list[HostView]
    unreachable_nodes: Partial = None


class Explanations(RestModel):
    """Explanations of the pairs of a VN."""

    explanations: list[ExplanationView]
    pair_count: int = Field(description="how many entries the VN has; only the first hundred are explained")


class Events(RestModel):
    """Events, oldest first. The last thousand are kept."""

    events: list[EventView]
    last: int = Field(description="number of the newest event there is; below `after` if the controller restarted")
