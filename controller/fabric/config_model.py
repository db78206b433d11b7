"""A checked configuration, as frozen values. ``controller.config.loader`` makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

DIRECTIONS = ("send", "receive")
"""The two directions of a limit, as a VN sees them."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A TCP endpoint to listen on."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Vlan:
    """A tenant: its algorithm, and the default limits of its VNs (None: each VN has its own).

    ``shadow`` is an algorithm that is computed, with its own parameters, and not enforced. ``flood_limit_bps`` is the
    flood limit of each VN; None: a part of the smallest receive limit.
    """

    vlan_vid: int
    name: str
    algorithm: str
    parameters: Mapping[str, object]
    weight: float
    send_limit_bps: int | None
    receive_limit_bps: int | None
    shadow: str | None = None
    shadow_parameters: Mapping[str, object] = field(default_factory=dict)
    flood_limit_bps: int | None = None


@dataclass(frozen=True, slots=True)
class Vn:
    """A virtual node: one VLAN on one edge port, its limits, and the ceilings up to which it may borrow, if any.

    ``own_limits`` are the limits (``send``, ``receive``) that are set for this VN and not for its VLAN. ``weight`` and
    ``flood_limit_bps`` are set for this VN; None: the VLAN's apply.
    """

    vlan_vid: int
    switch: str
    dpid: int
    port_no: int
    send_limit_bps: int
    receive_limit_bps: int
    send_ceiling_bps: int | None = None
    receive_ceiling_bps: int | None = None
    own_limits: tuple[str, ...] = ()
    weight: float | None = None
    flood_limit_bps: int | None = None


AgentMode = Literal["none", "trust", "verify"]
"""Whether the host behind a port has an agent that shapes, and whether meters verify it."""


MIN_FRAME_BYTES = 60
"""The shortest Ethernet frame, as counters of switches see it: without preamble, check sum and gap."""
MAX_FRAME_OVERHEAD_BYTES = 256


def admissible_bps(capacity_bps: int, frame_overhead_bytes: int) -> int:
    """Return the largest sum of limits that a link can carry, in bit/s as switches count, if all frames are minimal."""
    return capacity_bps * MIN_FRAME_BYTES // (MIN_FRAME_BYTES + frame_overhead_bytes)


ANY_NAME = "any"
"""The expected name of a port that may have any name."""
FIRST_NAMED, LAST_NAMED = 0x6000_0000, 0x7FFF_FFFF
"""The range of numbers of ports by name inside the controller, which no switch uses."""


@dataclass(frozen=True, slots=True)
class EdgePort:
    """An edge port.

    Frames of ``untagged_vid`` carry no tag: it is the VLAN of an access port, or the native VLAN of a trunk.

    ``expect`` is the port name that the switch must report; None: the first name that it reported. A port configured by
    the name of its ``interface`` has a number derived from that name; its number on the switch may be any.

    ``frame_overhead_bytes`` are the bytes of the link that a frame takes beyond those that the switch counts.
    """

    port_no: int
    name: str
    capacity_bps: int
    untagged_vid: int | None
    vns: tuple[Vn, ...]
    agent: AgentMode = "none"
    expect: str | None = None
    interface: str | None = None
    frame_overhead_bytes: int = 0

    @property
    def admissible_bps(self) -> int:
        """The largest sum of its VNs' limits."""
        return admissible_bps(self.capacity_bps, self.frame_overhead_bytes)

    @property
    def label(self) -> str:
        """The port's name in the configuration: its number, or its interface's name."""
        return str(self.port_no) if self.interface is None else self.interface

    def tag_of(self, vlan_vid: int) -> int | None:
        """Return the tag of a VLAN's frames at the port, None if they are untagged."""
        return None if vlan_vid == self.untagged_vid else vlan_vid

    @property
    def is_access(self) -> bool:
        """Return whether no frame is tagged at this port; a trunk with only its native VLAN counts."""
        return self.vlan_vids == (self.untagged_vid,)

    @property
    def vlan_vids(self) -> tuple[int, ...]:
        """The port's VLANs, in the order of the file."""
        return tuple(vn.vlan_vid for vn in self.vns)


Profile = Literal["auto", "full", "no-meters", "no-queues", "no-meter-counters"]
"""Which features a switch lacks. ``auto``: the controller asks and tests the switch; ``full``: none, without tests."""


@dataclass(frozen=True, slots=True)
class MeterSettings:
    """Configured bounds and number of a switch's meters; None: tests find the value.

    ``fail`` is what happens to a VN for whose send limit the switch has no meter: it sends unlimited, or not at all.
    """

    max_burst_bits: int | None = None
    min_rate_bps: int | None = None
    max_rate_bps: int | None = None
    rate_step_bps: int | None = None
    count: int | None = None
    fail: Literal["open", "closed"] = "open"

    def bounds(self) -> dict[str, int]:
        """Return the configured bounds, in kb/s and kb, as fields of MeterBounds."""
        # Maxima are rounded down, and minima and steps up: 999 is added before the division by 1000.
        configured = {
            "max_burst_kbits": (self.max_burst_bits, 0),
            "min_rate_kbps": (self.min_rate_bps, 999),
            "max_rate_kbps": (self.max_rate_bps, 0),
            "rate_step_kbps": (self.rate_step_bps, 999),
        }
        return {name: max((bits + add) // 1000, 1) for name, (bits, add) in configured.items() if bits is not None}


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch; ``ports`` holds its edge ports by number (a core switch has none). No ``ovsdb`` means no queues."""

    name: str
    dpid: int
    ovsdb: str | None
    ports: Mapping[int, EdgePort]
    profile: Profile = "auto"
    meters: MeterSettings = MeterSettings()


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """One end of a core link; prints as ``s1:1001``."""

    switch: str
    dpid: int
    port_no: int

    def __str__(self) -> str:
        return f"{self.switch}:{self.port_no}"


@dataclass(frozen=True, slots=True)
class CoreLink:
    """A link between two switches with ``capacity_bps`` in each direction; overhead is as in ``EdgePort``."""

    ends: tuple[LinkEnd, LinkEnd]
    capacity_bps: int
    frame_overhead_bytes: int = 0

    @property
    def admissible_bps(self) -> int:
        """The largest load that limits may cause, in each direction."""
        return admissible_bps(self.capacity_bps, self.frame_overhead_bytes)


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM form: the server's certificate (with its chain) and key, and the CA of clients' certificates."""

    certificate: str
    key: str
    client_ca: str | None = None


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Files in PEM form: the CA of servers' certificates, and the client's own certificate and key, if any."""

    ca: str
    certificate: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """Settings of the REST interface, and ``store``, the file that keeps changes (``:memory:``: none).

    ``trusted_proxies`` are IP networks.
    """

    listen: Endpoint
    authentication: Literal["none", "token"]
    if_match: Literal["optional", "required"]
    ui: bool
    requests_per_s: int
    max_connections: int
    trusted_proxies: tuple[str, ...]
    tls: Tls | None
    store: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """A node of a cluster ``name``: the nodes share an etcd (client URLs) and a fabric.

    ``rest_advertise`` is the URL at which other nodes and clients reach this node's REST interface. ``mode``: one
    active node controls all switches, or each switch is owned by one of the nodes. In the second case this node accepts
    other nodes' connections at ``peer_listen``, which they reach at ``peer_advertise``.

    Files are in PEM form: the CA of etcd's certificates, the node's certificate and key.
    """

    node: str
    name: str
    etcd: tuple[str, ...]
    lease_ttl_s: int
    rest_advertise: str
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    mode: Literal["active-standby", "sharded"] = "active-standby"
    peer_listen: Endpoint | None = None
    peer_advertise: Endpoint | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """A whole configuration. VLANs are held by VLAN id, switches by name; treat the mappings as read-only."""

    source_name: str
    interval_ms: int
    on_stop: Literal["keep", "remove"]
    mac_ageing_s: int
    max_macs_per_vn: int
    packet_in_rate_bps: int
    openflow_listen: Endpoint
    first_meter_id: int
    last_meter_id: int
    rest: Rest
    queue_max_rate: Literal["limit", "capacity"]
    vlans: Mapping[int, Vlan]
    switches: Mapping[str, Switch]
    links: tuple[CoreLink, ...] = ()
    control_frame_rate_bps: int = 1_000_000
    agent_long_frames: bool = False
    agent_experimental_ethertype: bool = False
    openflow_tls: Tls | None = None
    ovsdb_tls: ClientTls | None = None
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    queue_mode: Literal["per-vlan", "single"] = "per-vlan"
    vn_metrics: bool = True
    ecn_source: Literal["phantom", "phantom+network"] = "phantom"
    ecn_exposed: bool = False
    ecn_codepoint: Literal[1, 2] = 1
    cluster: Cluster | None = None
    newcomers: Literal["share", "limit"] = "share"

    @property
    def interval_s(self) -> float:
        """The control interval in seconds."""
        return self.interval_ms / 1000

    def ports(self) -> Iterator[tuple[Switch, EdgePort]]:
        """Yield every edge port with its switch, in the order of the file."""
        for switch in self.switches.values():
            for port in switch.ports.values():
                yield switch, port

    def vns(self) -> Iterator[Vn]:
        """Yield every VN, in the order of the file."""
        for _, port in self.ports():
            yield from port.vns
