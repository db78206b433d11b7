"""The sections of a configuration file with the values of their keys, one pydantic model per section.

A model covers its own section only; rules between sections are in ``controller.config.loader``. To pydantic every field
is optional (``required`` names the mandatory ones). So a section with one bad value still yields the other values, and
all problems of a file are reported at once.

The reference (``docs/configuration.md``) is made from these models: each names its ``path``, and the reference quotes
the text below a field.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field

from controller.config.value_types import (
    MAX_IDLE_TIMEOUT_S,
    MAX_METER_ID,
    Algorithm,
    Codepoint,
    Dpid,
    FilePath,
    Interface,
    Listen,
    Name,
    Network,
    Ovsdb,
    Parameters,
    Rate,
    SwitchPort,
    TrunkVlans,
    VlanVid,
    Weight,
    of_room,
)
from controller.fabric.config_model import MAX_FRAME_OVERHEAD_BYTES, AgentMode, Profile
from controller.units import MAX_INTERVAL_MS, MIN_INTERVAL_MS

FrameOverhead = Annotated[int, Field(ge=0, le=MAX_FRAME_OVERHEAD_BYTES)]


class Section(BaseModel):
    """Base of every section; ``has_bad`` tests for rejected fields, which are None or the default.

    ``path`` is the section's position in the file: ``vlans.VID`` for each of the VLANs.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)
    path: ClassVar[str] = ""
    required: ClassVar[tuple[str, ...]] = ()
    renamed: ClassVar[dict[str, str]] = {}  # renamed keys: the present names by the former ones
    # Of sections with bad values; a class variable, because a private attribute is slow to make.
    _bad: ClassVar[frozenset[str]] = frozenset()

    def with_bad(self, names: frozenset[str]) -> Self:
        """Return the section, still unshared, with the names of its bad values."""
        object.__setattr__(self, "_bad", names)
        return self

    @property
    def is_good(self) -> bool:
        """Return whether no value was rejected or is missing."""
        return not self._bad

    def has_bad(self, name: str) -> bool:
        """Return whether the value of ``name`` was rejected, or is required and missing."""
        return name in self._bad


class ControlSection(Section):
    """``control``: the loop's interval, and what remains on the switches when the controller stops."""

    path = "control"
    renamed: ClassVar = {"report_rate": "packet_in_rate"}
    interval_ms: Annotated[int, Field(ge=MIN_INTERVAL_MS, le=MAX_INTERVAL_MS)] = 55
    """The control interval, milliseconds; the default is the DETS paper's (section III.A)."""
    on_stop: Literal["keep", "remove"] = "keep"
    """Whether meters, flow entries and queues stay on the switches when the controller stops."""
    mac_ageing_s: Annotated[int, Field(ge=1, le=MAX_IDLE_TIMEOUT_S)] = 300
    """Time without traffic after which a learned MAC is removed, seconds."""
    max_macs_per_vn: Annotated[int, Field(ge=1, le=1_000_000)] = 64
    """Maximum number of learned MACs behind one VN; as many more may move there from other ports."""
    packet_in_rate: Rate = 128_000
    """Rate limit of packet-ins per VN (new hosts and pairs). Frames above it are forwarded without a packet-in."""
    newcomers: Literal["share", "limit"] = "share"
    """Rate of a VN to new receivers without a queue until their pairs are installed: a share, or the send limit."""


class ListenerSection(Section):
    """Base of the sections of listeners, with or without TLS; files are in PEM form."""

    certificate: FilePath | None = None
    """File with the server's certificate chain (PEM); it turns TLS on."""
    key: FilePath | None = None
    """File with the certificate's private key (PEM), without a password."""
    client_ca: FilePath | None = None
    """CA file (PEM). Clients must present a certificate signed by one of these CAs."""


class OpenFlowSection(ListenerSection):
    """``openflow``: where switches connect, and which meter ids are the controller's."""

    path = "openflow"
    listen: Listen = ("127.0.0.1", 6653)
    """Address that switches connect to."""
    first_meter_id: Annotated[int, Field(ge=1, le=MAX_METER_ID)] = 1
    """First meter id of the controller; it never changes meters outside its range."""
    last_meter_id: Annotated[int, Field(ge=1, le=MAX_METER_ID)] = 65535
    """Last meter id of the controller."""


class RestSection(ListenerSection):
    """``rest``: the address of the REST interface, and who may use it."""

    path = "rest"
    listen: Listen = ("127.0.0.1", 8080)
    """Address of the REST interface; other machines can reach it only with authentication or client_ca."""
    authentication: Literal["none", "token"] = "none"
    """Whether requests need a token (`dets token`)."""
    if_match: Literal["optional", "required"] = "optional"
    """Whether every change must name the revision on which it is based (If-Match)."""
    ui: Annotated[bool, of_room("ui", but=False)] = True
    """Whether the web UI is served at /ui."""
    requests_per_s: Annotated[int, Field(ge=1, le=1_000_000)] = 200
    """Sustained requests per second of one address; short bursts may have twice as many."""
    max_connections: Annotated[int, Field(ge=1, le=10_000)] = 256
    """Connections at once; at most half of them are event streams, and at most half come from one address."""
    trusted_proxies: Annotated[list[Network], Field(max_length=64)] = Field(default_factory=list)
    """Proxies in front of the REST interface. Limits and history use the client address in their `X-Forwarded-For`."""


class OvsdbTlsSection(Section):
    """``ovsdb_tls``: certificates for `ssl:` and `pssl:` of OVSDB; without it `ssl:` trusts the system's CAs."""

    path = "ovsdb_tls"
    required = ("ca",)
    ca: FilePath | None = None
    """CA file (PEM). As in Open vSwitch, any certificate of the CA is accepted, whatever its name."""
    certificate: FilePath | None = None
    """File with the controller's certificate (PEM), for servers that ask for one and for `pssl:`."""
    key: FilePath | None = None
    """File with the certificate's private key (PEM)."""


class StoreSection(Section):
    """``store``: the file with the changes made at run time."""

    path = "store"
    file: FilePath | None = None
    """SQLite file of changes made at run time; by default next to the configuration file, with the suffix .db."""


class LoggingSection(Section):
    """``logging``: format and level of the log; ryu-manager's options say where it goes."""

    path = "logging"
    format: Literal["console", "json"] = "console"
    """Text lines, or one JSON object per line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""


class MetricsSection(Section):
    """``metrics``: the contents of `/metrics`."""

    path = "metrics"
    vns: bool = True
    """Whether each VN has its own series; without them there are only the sums of VLANs."""


class QueuesSection(Section):
    """``queues``: the queues of edge ports, and whether a queue may use idle capacity above its limit."""

    path = "queues"
    renamed: ClassVar = {"classes": "mode"}
    mode: Literal["per-vlan", "single"] = "per-vlan"
    """A queue for each VLAN, or a single queue for all: then only senders' meters enforce receive limits."""
    max_rate: Literal["limit", "capacity"] = "limit"
    """Highest rate of a receiver's queue while its port is not full: its limit, or the port's capacity."""


class EcnSection(Section):
    """``ecn``: the source of congestion marks, for policies that read marks."""

    path = "ecn"
    renamed: ClassVar = {"marks": "source", "deliver": "expose_to_hosts"}
    source: Literal["phantom", "phantom+network"] = "phantom"
    """Source of congestion marks: phantom meters at receivers, or these and ECN marks of switches on the path, for \
which IP packets of these VLANs carry ECT between switches. Not with cluster.mode: sharded."""
    expose_to_hosts: bool = False
    """Whether hosts see congestion marks. If not, hosts with ECN react only to losses; otherwise also to marks."""
    codepoint: Codepoint = 1
    """ECN codepoint of packets without ECN between switches: 1, ECT(1), which the edge clears; or 2, ECT(0), for
    switches that prioritize ECT(1) (L4S): the edge does not clear it, since hosts send it too."""


class AgentsSection(Section):
    """``agents``: control frames of hosts' agents, at ports with an `agent`."""

    path = "agents"
    renamed: ClassVar = {"report_rate": "control_frame_rate", "local_ethertype": "experimental_ethertype"}
    control_frame_rate: Rate = 1_000_000
    """Rate limit of an agent's control frames to the controller, per VLAN."""
    experimental_ethertype: bool = False
    """Whether agents may also use EtherType 0x88b5, for network cards that drop 0x8808; otherwise it is dropped."""
    long_frames: bool = False
    """Whether control frames may carry more than 44 bytes of parameters, to agents that accept them."""


class VlanSection(Section):
    """``vlans.VID``: a tenant, its algorithm and the default limits of its VNs."""

    path = "vlans.VID"
    name: Name | None = None
    """Displayed name, unique among VLANs; by default vlanVID."""
    algorithm: Algorithm = "fp"
    """How each receiver's limit is shared among its senders (docs/allocation.md)."""
    parameters: Parameters = Field(default_factory=dict)
    """Parameters of the algorithm; absent ones have their defaults."""
    shadow: Algorithm | None = None
    """Second algorithm that is computed and not enforced; `/v1/pairs` shows its limits."""
    shadow_parameters: Parameters = Field(default_factory=dict)
    """Parameters of the shadow; absent ones have their defaults."""
    send_limit: Rate | None = None
    """Default send limit of its VNs; without it every VN needs its own."""
    receive_limit: Rate | None = None
    """Default receive limit of its VNs; without it every VN needs its own."""
    send_ceiling: Rate | None = None
    """Rate up to which its VNs may borrow for sending, from the limit to the port's capacity; only for algorithms that
    borrow, such as `max-min`."""
    receive_ceiling: Rate | None = None
    """Rate up to which its VNs may borrow for receiving, from the limit to the port's capacity; only for algorithms
    that borrow, such as `max-min`."""
    flood_limit: Rate | None = None
    """Rate limit of each VN for broadcast, multicast and unknown destinations: at least 2k, at most the smallest
    receive limit divided by the number of other VNs; by default a tenth of that (docs/enforcement.md)."""
    weight: Weight = 1.0
    """Weight of each VN as a sender; with `max-min` also across VLANs; not used by `fe`."""


class VnSection(Section):
    """``switches.NAME.ports.NO.vns.VID``: one VN's own limits and weight."""

    path = "switches.NAME.ports.NO.vns.VID"
    send_limit: Rate | None = None
    """Send limit; by default the VLAN's."""
    receive_limit: Rate | None = None
    """Receive limit; by default the VLAN's."""
    send_ceiling: Rate | None = None
    """Send ceiling; by default the VLAN's."""
    receive_ceiling: Rate | None = None
    """Receive ceiling; by default the VLAN's."""
    flood_limit: Rate | None = None
    """Flood limit, for a VN that sends more multicast than the others; by default the VLAN's (docs/enforcement.md)."""
    weight: Weight | None = None
    """Weight; by default the VLAN's."""


class PortSection(Section):
    """``switches.NAME.ports.NO``: an edge port, by its number or its interface's name (docs/switches.md)."""

    path = "switches.NAME.ports.NO"
    required = ("capacity",)
    name: Name | None = None
    """Displayed name, unique among ports; by default NAME-NO. The default for a port given by its interface is the
    interface's name, which ports of other switches may share."""
    capacity: Rate | None = None
    """Capacity of the link; the speed that the switch reports is not used."""
    expect: Interface | None = None
    """Interface name that the switch must report for the port; with another name the port carries nothing. By default
    the first reported name; `any`: every name (docs/switches.md)."""
    access: VlanVid | None = None
    """The only VLAN of the port: frames without a tag or with VLAN id 0 (priority tag); other frames are dropped."""
    trunk: list[TrunkVlans] | None = None
    """VLANs of the port, by the frames' tags; a port has either `trunk` or `access`."""
    native: VlanVid | None = None
    """VLAN of the trunk for frames without a tag or with VLAN id 0; its frames leave untagged."""
    vns: dict[str, Any] = Field(default_factory=dict)
    """Limits and weights of single VNs at this port."""
    frame_overhead_bytes: FrameOverhead = 0
    """Bytes of the link that each frame takes beyond the bytes that the switch counts, such as 24. The sums of limits
    then fit the capacity for frames of any size (docs/switches.md)."""
    agent: Annotated[AgentMode, of_room("agents", but="none")] = "none"
    """Whether the host behind the port has an agent that shapes: with `trust` it shapes alone, with `verify` meters
    stay behind it (docs/agents.md)."""

    @property
    def trunk_vids(self) -> list[range]:
        """The VLANs in ``trunk``, as its validator returns them."""
        return cast("list[range]", self.trunk or [])


class MetersSection(Section):
    """``switches.NAME.meters``: meter settings that the switch accepts.

    Tests find the absent ones (docs/switches.md).
    """

    path = "switches.NAME.meters"
    max_burst: Rate | None = None
    """Largest burst_size, in bits: `32M` is 32,000 kb."""
    min_rate: Rate | None = None
    """Minimum rate of a meter."""
    max_rate: Rate | None = None
    """Maximum rate of a meter; limits above it are not enforced."""
    rate_step: Rate | None = None
    """Step of rates: a rate must be a multiple of it."""
    count: Annotated[int, Field(ge=0, le=MAX_METER_ID)] | None = None
    """Number of meters that the controller may use at the switch."""
    fail: Literal["open", "closed"] = "open"
    """Whether a VN without a meter for its send limit sends without a limit (open), or not at all (closed)."""


class SwitchSection(Section):
    """``switches.NAME``: a switch; a switch without ports is a core switch."""

    path = "switches.NAME"
    required = ("dpid",)
    dpid: Dpid | None = None
    """Datapath id, unique among switches."""
    ovsdb: Ovsdb | None = None
    """Address of its OVSDB; without it the switch gets no queues. With `ptcp:` and `pssl:` the controller listens at \
the address, which several switches may share, and the switch connects (`ovs-vsctl set-manager`)."""
    profile: Profile = "auto"
    """Missing features of the switch: ``auto`` finds them by tests, ``full`` assumes none."""
    meters: dict[str, Any] = Field(default_factory=dict)
    """Meter settings that the switch accepts."""
    ports: dict[str, Any] = Field(default_factory=dict)
    """Its edge ports by OpenFlow port number, 1 to 4294967040, or interface's name. `1-24` are 24 ports; a further \
item for one of them overrides single keys."""


class LinkSection(Section):
    """``links[N]``: a link between two switches with its capacity; limits are checked only against these links."""

    path = "links[N]"
    required = ("between", "capacity")
    between: list[SwitchPort] | None = None
    """The two ends, such as `[s1:1001, c1:1]`."""
    capacity: Rate | None = None
    """Capacity of each direction."""
    frame_overhead_bytes: FrameOverhead = 0
    """Bytes of the link that each frame takes beyond the bytes that the switch counts, such as 24."""


class RootSection(Section):
    """The file as a whole."""

    required = ("vlans", "switches")
    include: list[FilePath] = Field(default_factory=list)
    """Files, or patterns such as `racks/*.yaml`, that hold more of `vlans`, `switches` and `links`; relative to this \
file."""
    control: dict[str, Any] = Field(default_factory=dict)
    """The control loop."""
    openflow: dict[str, Any] = Field(default_factory=dict)
    """The OpenFlow listener."""
    rest: dict[str, Any] = Field(default_factory=dict)
    """The REST interface."""
    ovsdb_tls: dict[str, Any] | None = None
    """Certificates for the databases of switches."""
    store: dict[str, Any] = Field(default_factory=dict)
    """The store of changes made at run time."""
    logging: dict[str, Any] = Field(default_factory=dict)
    """The log."""
    metrics: dict[str, Any] = Field(default_factory=dict)
    """The contents of `/metrics`."""
    queues: dict[str, Any] = Field(default_factory=dict)
    """The queues of receiving VLANs."""
    agents: dict[str, Any] = Field(default_factory=dict)
    """Agents on hosts."""
    ecn: dict[str, Any] = Field(default_factory=dict)
    """Congestion marks."""
    cluster: dict[str, Any] | None = None
    """Several controllers of one fabric."""
    vlans: dict[str, Any] = Field(default_factory=dict)
    """The tenants by VLAN id, 1 to 4094. `10-20` are eleven; a further item for one of them overrides single keys."""
    switches: dict[str, Any] = Field(default_factory=dict)
    """The switches by name."""
    links: list[Any] = Field(default_factory=list)
    """Core links of known capacity."""
