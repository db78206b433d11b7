"""The parts of a fabric, independent of its realization by Mininet, a model or software switches.

Standard library only: ``mn --custom`` runs it with the system's Python. Rates are L2 bit/s, delays seconds. Wrong
values raise ValueError naming the key, the value and the limit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

MAX_MININET_RATE_BPS = 1_000_000_000  # mininet.link.TCIntf ignores bw > 1000 with only a log line
MAX_INTERFACE_NAME = 15  # IFNAMSIZ less the terminating zero
MAX_PORT_NO = 0xFFFFFF00  # OFPP_MAX, OpenFlow 1.3.5 section 7.2.1
MAX_NETDEV_PORT_NO = 0xFEFF  # OVS numbers its ports with 16 bits
TRUNK_PORT_NO = 1  # of every PN's own bridge; its VNs are at the ports from 2 on
_SWITCH_NAME = re.compile(r"[a-z][a-z0-9]*")


@dataclass(frozen=True, slots=True)
class TopoSwitch:
    """An OpenFlow switch that the controller controls; ``role`` is ``edge`` or ``core``."""

    name: str
    dpid: int
    role: str = "edge"

    def __post_init__(self) -> None:
        _require(_SWITCH_NAME.fullmatch(self.name) is not None, "switch name", self.name, "must be like s1: a-z, 0-9")
        _require(0 < self.dpid < 2**64, f"{self.name}.dpid", self.dpid, "is outside 1 to 2^64-1")
        _require(self.role in ("edge", "core"), f"{self.name}.role", self.role, "must be edge or core")


@dataclass(frozen=True, slots=True)
class PhysicalNode:
    """A PN: a host with a vswitch behind one edge port, and one VN in each of ``vlans``."""

    number: int
    switch: str
    port_no: int
    vlans: tuple[int, ...]
    link_rate_bps: int
    link_delay_s: float = 0.0

    @property
    def name(self) -> str:
        """The name of the PN's vswitch."""
        return f"p{self.number}"

    @property
    def trunk_interface(self) -> str:
        """The PN's end of its link to the edge switch."""
        return f"{self.name}-eth{TRUNK_PORT_NO}"

    @property
    def edge_interface(self) -> str:
        """The edge switch's end of that link."""
        return f"{self.switch}-eth{self.port_no}"


@dataclass(frozen=True, slots=True)
class TopoLink:
    """A link between two switches."""

    switch_a: str
    port_a: int
    switch_b: str
    port_b: int
    rate_bps: int
    delay_s: float = 0.0

    @property
    def interfaces(self) -> tuple[str, str]:
        """Both ends."""
        return f"{self.switch_a}-eth{self.port_a}", f"{self.switch_b}-eth{self.port_b}"


@dataclass(frozen=True, slots=True)
class VirtualNode:
    """A VN: the host of one VLAN on one PN. Created by ``Fabric.vn``."""

    vlan_vid: int
    pn: PhysicalNode
    vlan_index: int
    pn_port_no: int

    @property
    def name(self) -> str:
        """Host name: v<vlan>_<pn>."""
        return f"v{self.vlan_vid}_{self.pn.number}"

    @property
    def ip(self) -> str:
        """IPv4 address; the n-th VLAN of the fabric is 10.n.0.0/16."""
        return f"10.{self.vlan_index}.{self.pn.number >> 8}.{self.pn.number & 0xFF}"

    @property
    def mac(self) -> str:
        """MAC address, locally administered: VLAN and PN number in the last four bytes."""
        number = self.vlan_vid << 16 | self.pn.number
        return ":".join(f"{byte:02x}" for byte in (2, 0, *number.to_bytes(4, "big")))

    @property
    def host_interface(self) -> str:
        """The VN's own interface, inside its namespace."""
        return f"{self.name}-eth0"

    @property
    def switch_interface(self) -> str:
        """The PN's end of the VN's link: what it transmits is what the VN receives, untagged."""
        return f"{self.pn.name}-eth{self.pn_port_no}"


@dataclass(frozen=True, slots=True)
class Fabric:
    """A whole fabric. ``vlans`` are VLAN ids in order; VN addresses depend on that order only."""

    name: str
    switches: tuple[TopoSwitch, ...]
    pns: tuple[PhysicalNode, ...]
    vlans: tuple[int, ...]
    core_links: tuple[TopoLink, ...] = ()

    def __post_init__(self) -> None:
        _check_vlans(self.vlans)
        _check_unique("switch name", (s.name for s in self.switches))
        _check_unique("dpid", (s.dpid for s in self.switches))
        _check_unique("PN number", (pn.number for pn in self.pns))
        names = {s.name for s in self.switches}
        for pn in self.pns:
            _check_pn(pn, self.vlans)
        for name in names & {pn.name for pn in self.pns}:
            raise ValueError(f"switch name: {name!r} is the name of a PN's vswitch too")
        for link in self.core_links:
            key = "-".join(link.interfaces)
            _check_rate(f"{key}.rate_bps", link.rate_bps)
            _check_delay(f"{key}.delay_s", link.delay_s)
            _require(link.switch_a != link.switch_b, f"{key}.switch_b", link.switch_b, "is linked with itself")
        ports = list(self._ports())
        for switch, port_no in ports:
            _require(switch in names, "switch", switch, f"is not one of {', '.join(sorted(names))}")
            _require(1 <= port_no <= MAX_PORT_NO, f"{switch}.port_no", port_no, f"is outside 1 to {MAX_PORT_NO}")
        _check_unique("port (switch, port_no)", ports)

    def _ports(self) -> Iterable[tuple[str, int]]:
        """Yield (switch name, port number) of every port that a PN or a core link uses."""
        for pn in self.pns:
            yield pn.switch, pn.port_no
        for link in self.core_links:
            yield link.switch_a, link.port_a
            yield link.switch_b, link.port_b

    def switch(self, name: str) -> TopoSwitch:
        """Return a switch by name; KeyError if there is none."""
        for switch in self.switches:
            if switch.name == name:
                return switch
        raise KeyError(f"no switch {name} in fabric {self.name}")

    def pn(self, number: int) -> PhysicalNode:
        """Return a PN by number; KeyError if there is none."""
        for pn in self.pns:
            if pn.number == number:
                return pn
        raise KeyError(f"no PN {number} in fabric {self.name}")

    def vn(self, vlan_vid: int, pn_number: int) -> VirtualNode:
        """Return the VN of a VLAN on a PN; KeyError if there is none."""
        pn = self.pn(pn_number)
        if vlan_vid not in pn.vlans:
            raise KeyError(f"PN {pn_number} of fabric {self.name} has no VN in VLAN {vlan_vid}")
        return self._vn(pn, vlan_vid)

    def vns(self) -> tuple[VirtualNode, ...]:
        """Return every VN, by PN and then by the PN's order of VLANs."""
        return tuple(self._vn(pn, vid) for pn in self.pns for vid in pn.vlans)

    def _vn(self, pn: PhysicalNode, vlan_vid: int) -> VirtualNode:
        """Return the VN of one of the PN's VLANs; the PN's VNs are at successive ports of its vswitch."""
        pn_port_no = TRUNK_PORT_NO + 1 + pn.vlans.index(vlan_vid)
        return VirtualNode(vlan_vid, pn, self.vlans.index(vlan_vid) + 1, pn_port_no)

    def uncongested_links(self) -> tuple[TopoLink, ...]:
        """Return the core links without delay that are never full, even if all PNs but one send over them."""
        rates_bps = [pn.link_rate_bps for pn in self.pns]
        max_load_bps = sum(rates_bps) - min(rates_bps, default=0)
        return tuple(link for link in self.core_links if link.rate_bps >= max_load_bps and not link.delay_s)

    def check_emulable(self) -> None:
        """Raise ValueError for values that Mininet or Linux would silently cut off or ignore.

        Rates over 1 Gb/s (Mininet ignores them), interface names over 15 characters, port numbers OVS cannot give,
        delays (they need the netem qdisc, which many kernels lack; the model fabric has delays).
        """
        for pn in self.pns:
            key = f"PN {pn.number}"
            _check_mininet_rate(f"{key}.link_rate_bps", pn.link_rate_bps)
            _require(pn.link_delay_s == 0, f"{key}.link_delay_s", pn.link_delay_s, "must be 0 on an emulated fabric")
            _check_interface(pn.edge_interface)
            _check_interface(pn.trunk_interface)
        for link in self.core_links:
            key = "-".join(link.interfaces)
            _check_mininet_rate(f"{key}.rate_bps", link.rate_bps)
            _require(link.delay_s == 0, f"{key}.delay_s", link.delay_s, "must be 0 on an emulated fabric")
            for interface in link.interfaces:
                _check_interface(interface)
        for vn in self.vns():
            _check_interface(vn.host_interface)
            _check_interface(vn.switch_interface)
        for switch, port_no in self._ports():
            limit = f"is outside 1 to {MAX_NETDEV_PORT_NO}, what Open vSwitch can number"
            _require(port_no <= MAX_NETDEV_PORT_NO, f"{switch}.port_no", port_no, limit)


def _check_pn(pn: PhysicalNode, vlans: tuple[int, ...]) -> None:
    key = f"PN {pn.number}"
    _require(1 <= pn.number <= 0xFFFE, f"{key}.number", pn.number, "is outside 1 to 65534")
    _check_rate(f"{key}.link_rate_bps", pn.link_rate_bps)
    _check_delay(f"{key}.link_delay_s", pn.link_delay_s)
    _require(len(pn.vlans) > 0, f"{key}.vlans", pn.vlans, "must name at least one VLAN")
    _check_unique(f"{key}.vlans", pn.vlans)
    for vid in pn.vlans:
        _require(vid in vlans, f"{key}.vlans", vid, f"is not a VLAN of the fabric ({', '.join(map(str, vlans))})")


def _check_vlans(vlans: tuple[int, ...]) -> None:
    _check_unique("vlans", vlans)
    _require(1 <= len(vlans) <= 255, "vlans", len(vlans), "VLANs: a fabric has 1 to 255, one IPv4 network each")
    for vid in vlans:
        _require(1 <= vid <= 4094, "vlans", vid, "is outside 1 to 4094")


def _check_rate(key: str, rate_bps: int) -> None:
    _require(
        isinstance(rate_bps, int) and rate_bps >= 1000, key, rate_bps, "must be a whole number, at least 1000 bit/s"
    )


def _check_mininet_rate(key: str, rate_bps: int) -> None:
    limit = f"is over {MAX_MININET_RATE_BPS} bit/s, beyond which Mininet ignores a link's rate"
    _require(rate_bps <= MAX_MININET_RATE_BPS, key, rate_bps, limit)


def _check_delay(key: str, delay_s: float) -> None:
    _require(0 <= delay_s <= 10, key, delay_s, "is outside 0 to 10 seconds")


def _check_interface(name: str) -> None:
    limit = f"has {len(name)} characters; Linux takes {MAX_INTERFACE_NAME}"
    _require(len(name) <= MAX_INTERFACE_NAME, "interface name", name, limit)


def _check_unique(key: str, values: Iterable[object]) -> None:
    for value, count in Counter(values).items():
        _require(count == 1, key, value, f"is given {count} times")


def _require(condition: bool, key: str, value: object, reason: str) -> None:
    """Raise ValueError that names key, value and reason unless the condition holds."""
    if not condition:
        raise ValueError(f"{key}: {value!r} {reason}")
