"""A configuration that was read and checked, as frozen values. ``controller.config.loader`` makes them."""

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
    """A tenant: its algorithm, and the limits its VNs have by default (None: each VN has its own).

    ``shadow`` is an algorithm that is computed, with its own parameters, and not enforced. ``flood_limit_bps`` is what
    each VN may flood; None: a part of the smallest receive limit.
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

    ``own_limits`` says which of the limits (``send``, ``receive``) are its own and not its VLAN's. ``weight`` and
    ``flood_limit_bps`` are its own; None: it has its VLAN's.
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
"""Whether the host behind a port has an agent that shapes, and whether meters watch it."""


ANY_NAME = "any"
"""What is expected of a port that may have any name."""
FIRST_NAMED, LAST_NAMED = 0x6000_0000, 0x7FFF_FFFF
"""The numbers that ports by name have inside the controller: no switch has so many."""


@dataclass(frozen=True, slots=True)
class EdgePort:
    """An edge port. Frames of ``untagged_vid`` carry no tag: that of an access port, or the native VLAN of a trunk.

    ``expect`` is the name that the switch has to give it; None: the one that it had first. One that is configured by
    the name of its ``interface`` has a number that follows from that, and on its switch whichever that gives it.
    """

    port_no: int
    name: str
    capacity_bps: int
    untagged_vid: int | None
    vns: tuple[Vn, ...]
    agent: AgentMode = "none"
    expect: str | None = None
    interface: str | None = None

    @property
    def label(self) -> str:
        """What the configuration calls it: its number, or its interface's name."""
        return str(self.port_no) if self.interface is None else self.interface

    def tag_of(self, vlan_vid: int) -> int | None:
        """Return the tag that a VLAN's frames carry at the port, None if they carry none."""
        return None if vlan_vid == self.untagged_vid else vlan_vid

    @property
    def is_access(self) -> bool:
        """Whether no frame carries a tag here; so a trunk of its native VLAN alone is one."""
        return self.vlan_vids == (self.untagged_vid,)

    @property
    def vlan_vids(self) -> tuple[int, ...]:
        """The port's VLANs, in the order of the file."""
        return tuple(vn.vlan_vid for vn in self.vns)


Profile = Literal["auto", "full", "no-meters", "no-queues", "no-meter-counters"]
"""What a switch lacks; ``auto``: what it says and tests show, ``full``: nothing, and no test is made."""


@dataclass(frozen=True, slots=True)
class MeterSettings:
    """What is known of a switch's meters beforehand, None where it is to be found out: bounds, and how many there are.

    ``fail`` is what becomes of a VN for whose send limit the switch has no meter: it sends without, or nothing.
    """

    max_burst_bits: int | None = None
    min_rate_bps: int | None = None
    max_rate_bps: int | None = None
    rate_step_bps: int | None = None
    count: int | None = None
    fail: Literal["open", "closed"] = "open"

    def bounds(self) -> dict[str, int]:
        """Return the bounds that are given, in kb/s and kb, as fields of MeterBounds."""
        given = {
            "max_burst_kbits": (self.max_burst_bits, 0),
            "min_rate_kbps": (self.min_rate_bps, 999),
            "max_rate_kbps": (self.max_rate_bps, 0),
            "rate_step_kbps": (self.rate_step_bps, 999),
        }
        return {name: max((bits + more) // 1000, 1) for name, (bits, more) in given.items() if bits is not None}


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
    """A link between two switches, that carries ``capacity_bps`` in either direction."""

    ends: tuple[LinkEnd, LinkEnd]
    capacity_bps: int


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM form: the server's certificate (with its chain) and key, and the CA that clients' must be of."""

    certificate: str
    key: str
    client_ca: str | None = None


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Files in PEM form: the CA that servers' certificates must be of, and what is shown to them, if anything."""

    ca: str
    certificate: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """How the REST interface is served, and ``store``, the file (``:memory:``: none) in which changes are kept.

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
    """One of the nodes that share an etcd (client URLs) and a fabric; ``rest_advertise`` is the URL of its REST.

    ``mode``: one active node controls all switches, or each switch has an owner among all nodes. Then nodes exchange
    messages at ``peer_listen``, which other nodes reach at ``peer_advertise``.

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
