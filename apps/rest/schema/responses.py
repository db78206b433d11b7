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
    parameters: dict[str, float] = Field(description="all parameters of the algorithm, defaults included")
    weight: float
    send_limit_bps: int | None = Field(description="configured default of its VNs, bit/s; null: each VN has its own")
    receive_limit_bps: int | None = Field(description="configured default of its VNs, bit/s; null: each VN has its own")
    vns: int = Field(description="number of its VNs")
    shadow: str | None = Field(description="algorithm that is computed for comparison and not enforced; null: none")
    shadow_parameters: dict[str, float] = Field(
        description="all parameters of the shadow, defaults included; empty without a shadow"
    )
    overridden: list[str] = Field(description="names of the fields set at run time, which hide the file's values")
    revision: int = Field(description="number of the VLAN's last change; its ETag")


Enforceable = Annotated[
    Literal["yes", "partly", "no"],
    Field(description="whether the switch can enforce the limits of VNs at the port, by the controller's tests"),
]


_PORT = Field(description="number of the port, or name of its interface if it is configured by name")


class VnView(RestModel):
    """A virtual node, one VLAN behind one edge port, with its limits and its state in the last interval."""

    vlan_vid: int
    switch: str
    dpid: str = Field(description="datapath id of the switch, 16 hex digits")
    port_no: int
    port: str = _PORT
    send_limit_bps: int = Field(description="bit/s on the wire")
    receive_limit_bps: int = Field(description="bit/s on the wire")
    send_ceiling_bps: int | None = Field(description="rate up to which the VN may borrow, bit/s; null: its limit")
    receive_ceiling_bps: int | None = Field(description="rate up to which the VN may borrow, bit/s; null: its limit")
    weight: float = Field(description="weight among the VNs among which the algorithm shares")
    measured_receive_bps: Rate = Field(description="rate that passed its senders' meters, bit/s; null: unknown")
    measured_send_bps: Rate = Field(description="rate sent by the VN that passed all meters, bit/s; null: unknown")
    offered_receive_bps: Rate = Field(
        description="rate sent to the VN before any drop, bit/s (a sender above its send limit counts in proportion); "
        "null: unknown"
    )
    offered_send_bps: Rate = Field(description="rate sent by the VN before any drop, bit/s; null: unknown")
    dropped_receive_bps: Rate = Field(description="rate that its senders' meters dropped, bit/s; null: unknown")
    dropped_send_bps: Rate = Field(
        description="rate sent by the VN that its pairs' meters dropped, bit/s; null: unknown"
    )
    send_limit_dropped_bps: Rate = Field(
        description="rate that the meter of its send limit dropped, bit/s; null: unknown"
    )
    delivered_bps: Rate = Field(description="rate that its receiving queue sent, bit/s; null: unknown, or no queue")
    granted_bps: Rate = Field(description="sum of the grants of its active senders, bit/s; null: not congested")
    marked_share: float | None = Field(
        description="share of its received traffic that counts as marked; null: unknown, or none"
    )
    lost_share: float | None = Field(
        description="share of the traffic to it that is lost on the path; null: unknown, or none"
    )
    bottleneck: str | None = Field(
        description="bottleneck, by the policy, of the pair with the highest rate to the VN; null: none named"
    )
    flood_limit_bps: int = Field(description="limit on its broadcast, multicast and unknown destinations, bit/s")
    flooded_bps: Rate = Field(description="rate of its floods behind its meters, bit/s; null: unknown")
    flood_dropped_bps: Rate = Field(description="rate of its floods that meters dropped, bit/s; null: unknown")
    flood_received_bps: Rate = Field(description="part of its receive limit that other VNs' floods use now, bit/s")
    congested: bool = Field(description="offered load exceeds the receive limit; with max-min: the senders' grants")
    congested_since: str | None = Field(
        description="RFC 3339, UTC; null: not congested, or since before the controller's start"
    )
    queue_dropped_bps: Rate = Field(
        description="rate that its receiving queue dropped in the last interval, bit/s; null: unknown, or not read"
    )
    notifications: int = Field(description="number of congestion notifications to its senders since the start")
    guarantee: GuaranteeView
    hosts: list[str] = Field(description="MAC addresses learned behind the port in this VLAN")
    hosts_full: bool = Field(
        description="whether the VN is at its limit of learned hosts: frames to a new host are flooded"
    )
    enforceable: Enforceable
    enforceable_reasons: list[str] = Field(description="reasons why enforceable is not yes")
    overridden: list[str] = Field(description="which of limits, ceilings and weight were set at run time")
    revision: int = Field(description="number of the last change of its limits, ceilings and weight; its ETag")


class AgentView(RestModel):
    """The agent on the host behind an edge port."""

    mode: Literal["trust", "verify"] = Field(description="trust: the agent shapes alone; verify: meters check it")
    state: Literal["absent", "hello", "trusted", "distrusted"]
    features: list[str] = Field(description="features that the agent has reported")
    last_seen_ms: int | None = Field(description="milliseconds since its last frame; null: never")
    rejected_frames: dict[str, int] = Field(description="number of its rejected frames, by cause")


class PortView(RestModel):
    """An edge port: its load, and its commitments."""

    switch: str
    dpid: str = Field(description="datapath id of the switch, 16 hex digits")
    port_no: int
    port: str = _PORT
    name: str
    interface: str | None = Field(description="name that the switch reports, 15 characters at most; null: unknown")
    state: Literal["up", "down", "absent"] | None = Field(description="null: its switch has not connected yet")
    state_since: str | None = Field(description="RFC 3339, UTC; null: unknown")
    speed_bps: Rate = Field(description="speed of its link that the switch reports, bit/s; null: none reported")
    fence: str | None = Field(
        description="why the port is fenced and carries nothing: it may not be the configured one; null: not fenced"
    )
    capacity_bps: int = Field(description="bit/s on the wire")
    admissible_bps: int = Field(description="largest sum of limits: the capacity less the overhead of frames")
    vlan_vids: list[int]
    untagged_vid: int | None = Field(
        description="VLAN whose frames carry no tag at the port; null: all frames carry a tag"
    )
    refused_frames: dict[str, int] | None = Field(
        description="number of its hosts' frames that were dropped at the port, by reason: untagged, foreign-vlan, "
        "lldp, fenced; read every 10 s; null: not read yet"
    )
    send_limits_bps: int = Field(description="sum of its VNs' send limits, bit/s")
    receive_limits_bps: int = Field(description="sum of its VNs' receive limits, bit/s")
    received_bps: Rate = Field(description="rate received from its hosts, bit/s; null: unknown")
    sent_bps: Rate = Field(description="rate sent to its hosts, bit/s; null: unknown")
    enforceable: Enforceable
    enforceable_reasons: list[str] = Field(description="reasons why enforceable is not yes")
    agent: AgentView | None = Field(description="the agent on its host; null: none is configured")


class PortLocation(RestModel):
    """The location of a VN."""

    switch: str
    dpid: str
    port_no: int
    port: str = _PORT


class PairEnds(RestModel):
    """A pair of VNs, in one direction."""

    vlan_vid: int
    sender: PortLocation
    receiver: PortLocation


class PairView(PairEnds):
    """An active pair of VNs, in one direction, and the meter that limits it at the sender's edge switch."""

    measured_bps: Rate = Field(description="rate that the allocation uses: it rises at once and falls slowly, bit/s")
    offered_bps: Rate = Field(description="rate at the meter's input in the last interval, bit/s")
    dropped_bps: Rate = Field(description="rate that the meter dropped in the last interval, bit/s")
    granted_bps: Rate = Field(description="rate granted by the receiver's allocator, bit/s; null: none")
    limit_bps: int = Field(description="effective limit: the lowest of the grant and both VNs' limits, bit/s")
    meter_rate_bps: int = Field(
        description="rate of the meter, bit/s; its mean follows the limit (docs/enforcement.md)"
    )
    meter_id: int | None = Field(description="null: the agent of the sender's host shapes alone")
    shaping: Literal["meter", "agent", "both"] = Field(
        description="what shapes: a meter, the agent of the sender's host, or both"
    )
    control: Literal["idle", "reporting", "limited"] = Field(description="state of the send-rate controller")
    enforced: bool = Field(
        description="whether the limit holds: an agent shapes, or the switch's meters limit, by the controller's tests"
    )
    unresponsive: bool = Field(description="whether the sender keeps sending far above its rate")
    shadow_bps: Rate = Field(description="limit that the VLAN's shadow algorithm would set, bit/s; null: no shadow")
    egress_limit_bps: Rate = Field(
        description="limit that the sender sets itself after congestion notifications, bit/s; null: the policy has none"
    )
    notification_age_s: float | None = Field(
        description="seconds since the last congestion notification to the sender; null: none so far"
    )
    marked_share: float | None = Field(description="share of its traffic that counts as marked; null: unknown, or none")
    lost_share: float | None = Field(
        description="share of its traffic that is lost at its bottleneck; null: unknown, or none"
    )
    bottleneck: str | None = Field(description="bottleneck, by the policy; null: the policy names none")


class UnmeteredPairView(PairEnds):
    """An active pair of VNs without a meter, in one direction."""

    why: str = Field(description="reason why the pair has no meter")


class ExplanationView(PairEnds):
    """Why a pair has its limit."""

    limit_bps: int = Field(description="effective limit, bit/s")
    constraint: str = Field(description="the binding constraint")
    rank: int = Field(
        description="rank by grant among the pairs that share the constraint: 1 is the highest grant; 0: no sharers"
    )
    sharers: int = Field(description="number of pairs with a grant that share the constraint")
    next_constraint: str = Field(description="constraint that would bind without the binding one, all else equal")
    next_limit_bps: int = Field(description="limit under that constraint, bit/s")
    offered_send_bps: Rate = Field(description="total rate of the sender before its send limit, bit/s; null: unknown")
    send_limit_dropped_bps: Rate = Field(
        description="rate that the meter of the sender's send limit drops, bit/s; null: unknown"
    )
    sentence: str = Field(description="the explanation as a sentence")


class EventView(RestModel):
    """An event."""

    number: int = Field(description="grows by one with each event")
    at_s: float = Field(description="the controller's clock, seconds")
    at: str = Field(description="RFC 3339, UTC")
    kind: EventKind
    severity: Literal["info", "warning", "critical"]
    vlan_vid: int | None = Field(description="VLAN of the event; null: none, or several")
    switch: str | None = Field(description="switch of the event; null: none, or several")
    port_no: int | None = Field(description="edge port of the event; null: none, or several")
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
        description="time at which the host was learned there, RFC 3339, UTC; for a host from a switch's tables, the "
        "time at which these were read; null: unknown"
    )
    moved_from: PortLocation | None = Field(description="location before that, as known then; null: none known")


class Vlans(Page):
    """VLANs by id."""

    vlans: list[VlanView]
    revision: int = Field(description="number of the last change")


class Vns(Page):
    """The requested VNs, in the order of the configuration."""

    vns: list[VnView]
    revision: int = Field(description="number of the last change")


class Ports(Page):
    """Edge ports, in the order of the configuration."""

    ports: list[PortView]


class Pairs(Page):
    """The requested pairs; idle pairs age and are removed."""

    pairs: list[PairView]
    unmetered_pairs: list[UnmeteredPairView] = Field(
        description="all active pairs without a meter: they are not limited, and their rates are unknown"
    )


class Hosts(Page):
    """Known hosts, by VLAN and address. A cursor continues after a host, even if the host is gone."""

    hosts: list[HostView]


class HostLocations(RestModel):
    """The location of an address: a host for each VLAN in which it is known."""

    hosts: list[HostView]
    unreachable_nodes: Partial = None


class Explanations(RestModel):
    """Explanations of the pairs of a VN."""

    explanations: list[ExplanationView]
    pair_count: int = Field(description="number of pairs of the VN; only the first hundred are explained")


class Events(RestModel):
    """Events, oldest first. The last thousand of each severity are kept."""

    events: list[EventView]
    last: int = Field(description="number of the newest event; below `after` if the controller has restarted")
