"""The configuration: what an operator writes in YAML, checked as a whole and made into frozen values.

``load_config`` and ``parse_config`` either return a ``Config`` that keeps every promise below or raise ``ConfigError``
with all that is wrong, each with file, line and column. Reading the file is this module's only input and output.

Rules between sections: a VN's limit is at most its port's capacity, and so is the sum of a port's send limits and the
sum of its receive limits; a port is either an access port or a trunk; its VLANs exist and are named once; a dpid
belongs to one switch; the links carry every traffic matrix that the limits allow.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from controller.config_file import ConfigError, Document, Path, Problem, read_document, show_path, show_value
from controller.config_links import CoreLink, check_limits, read_links
from controller.config_sections import (
    MAX_PORT_NO,
    MAX_VLAN_VID,
    MIN_VLAN_VID,
    NAME_RULE,
    ControlSection,
    OpenFlowSection,
    PortSection,
    QueuesSection,
    RestSection,
    RootSection,
    SwitchSection,
    VlanSection,
    VnSection,
    check_name,
    read_section,
)
from controller.errors import InvalidValueError
from controller.units import format_rate

__all__ = [
    "Config",
    "ConfigError",
    "CoreLink",
    "Endpoint",
    "Port",
    "Problem",
    "Switch",
    "Vlan",
    "Vn",
    "load_config",
    "parse_config",
]

_MAX_FILE_BYTES = 64 * 2**20
_KEY_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_DIRECTIONS = ("send", "receive")


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

    ``shadow`` is an algorithm that is computed beside, and not enforced.
    """

    vlan_vid: int
    name: str
    algorithm: str
    parameters: Mapping[str, object]
    weight: float
    send_limit_bps: int | None
    receive_limit_bps: int | None
    shadow: str | None = None


@dataclass(frozen=True, slots=True)
class Vn:
    """A virtual node: one VLAN on one edge port, its limits, and the ceilings up to which it may borrow, if any."""

    vlan_vid: int
    switch: str
    dpid: int
    port_no: int
    send_limit_bps: int
    receive_limit_bps: int
    send_ceiling_bps: int | None = None
    receive_ceiling_bps: int | None = None


@dataclass(frozen=True, slots=True)
class Port:
    """An edge port. ``tagged`` is True for a trunk; an access port has exactly one VN, whose frames carry no tag."""

    port_no: int
    name: str
    capacity_bps: int
    tagged: bool
    vns: tuple[Vn, ...]

    @property
    def vlan_vids(self) -> tuple[int, ...]:
        """The port's VLANs, in the order of the file."""
        return tuple(vn.vlan_vid for vn in self.vns)


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch; ``ports`` holds its edge ports by number (a core switch has none). No ``ovsdb`` means no queues."""

    name: str
    dpid: int
    ovsdb: str | None
    ports: Mapping[int, Port]


@dataclass(frozen=True, slots=True)
class Config:
    """A whole configuration. VLANs are held by VLAN id, switches by name; treat the mappings as read-only."""

    source_name: str
    interval_ms: int
    on_stop: Literal["keep", "remove"]
    mac_ageing_s: int
    max_macs_per_vn: int
    openflow_listen: Endpoint
    first_meter_id: int
    last_meter_id: int
    rest_listen: Endpoint
    queue_max_rate: Literal["limit", "capacity"]
    vlans: Mapping[int, Vlan]
    switches: Mapping[str, Switch]
    links: tuple[CoreLink, ...] = ()

    @property
    def interval_s(self) -> float:
        """The control interval in seconds."""
        return self.interval_ms / 1000

    def ports(self) -> Iterator[tuple[Switch, Port]]:
        """Yield every edge port with its switch, in the order of the file."""
        for switch in self.switches.values():
            for port in switch.ports.values():
                yield switch, port

    def vns(self) -> Iterator[Vn]:
        """Yield every VN, in the order of the file."""
        for _, port in self.ports():
            yield from port.vns

    def switch_of(self, dpid: int) -> Switch | None:
        """Return the switch with this datapath id, or None if it is not configured."""
        return next((switch for switch in self.switches.values() if switch.dpid == dpid), None)


def load_config(path: str | pathlib.Path) -> Config:
    """Return the configuration in the file at ``path``; raise ConfigError if it is unreadable or not acceptable."""
    name = str(path)
    try:
        with open(path, "rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ConfigError(name, [Problem(0, 0, "", f"is larger than {_MAX_FILE_BYTES} bytes")])
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(name, [Problem(0, 0, "", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        raise ConfigError(name, [Problem(line, column, "", "is not UTF-8 text")]) from error
    return parse_config(text, name)


def parse_config(text: str, source_name: str = "<text>") -> Config:
    """Return the configuration that a YAML text holds; raise ConfigError with everything that is wrong with it."""
    document = read_document(text)
    if document.data is None and document.problems:
        raise ConfigError(source_name, document.problems)
    assembly = _Assembly(document)
    config = assembly.config(source_name)
    if config.links and not document.problems:
        assembly.check_links(config)
    if document.problems:
        raise ConfigError(source_name, document.problems)
    return config


class _Assembly:
    """Puts the sections of one document together and checks what they demand of each other.

    Where a section has bad values it goes on with what is left: problems already reported stop the result from being
    used, and rules that would need a bad value are left out rather than guessed.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._vlans: dict[int, VlanSection] = {}
        self._dpids: dict[int, str] = {}

    def config(self, source_name: str) -> Config:
        document = self._document
        root = RootSection.of(document)
        control = read_section(ControlSection, document, ("control",), root.control)
        openflow = read_section(OpenFlowSection, document, ("openflow",), root.openflow)
        rest = read_section(RestSection, document, ("rest",), root.rest)
        queues = read_section(QueuesSection, document, ("queues",), root.queues)
        self._check_listeners(openflow, rest)
        vlans = self._read_vlans(root)
        switches = self._read_switches(root)
        return Config(
            source_name=source_name,
            interval_ms=control.interval_ms,
            on_stop=control.on_stop,
            mac_ageing_s=control.mac_ageing_s,
            max_macs_per_vn=control.max_macs_per_vn,
            openflow_listen=Endpoint(*openflow.listen),
            first_meter_id=openflow.first_meter_id,
            last_meter_id=openflow.last_meter_id,
            rest_listen=Endpoint(*rest.listen),
            queue_max_rate=queues.max_rate,
            vlans=vlans,
            switches=switches,
            links=read_links(document, root.links, switches),
        )

    def check_links(self, config: Config) -> None:
        """Report a limit that the links do not fit; the file must have no other problem."""

        def limit_path(vn: Vn, way: str) -> Path:
            here = ("switches", vn.switch, "ports", str(vn.port_no))
            own = (*here, "vns", str(vn.vlan_vid), f"{way}_limit")
            return own if self._document.has(own) else here

        check_limits(self._document, config, limit_path)

    def _check_listeners(self, openflow: OpenFlowSection, rest: RestSection) -> None:
        if openflow.first_meter_id > openflow.last_meter_id:
            message = f"{openflow.last_meter_id} is below first_meter_id, {openflow.first_meter_id}"
            self._document.report(("openflow", "last_meter_id"), message)
        if openflow.listen == rest.listen and not (openflow.has_bad("listen") or rest.has_bad("listen")):
            self._document.report(("rest", "listen"), f"{Endpoint(*rest.listen)} is also openflow.listen")

    def _read_vlans(self, root: RootSection) -> dict[int, Vlan]:
        vlans: dict[int, Vlan] = {}
        for key, data in root.vlans.items():
            path = ("vlans", key)
            section = read_section(VlanSection, self._document, path, data)
            self._check_algorithm(path, section)
            vid = self._number(path, "VLAN id", MIN_VLAN_VID, MAX_VLAN_VID)
            if vid is None:
                continue
            self._vlans[vid] = section
            vlans[vid] = Vlan(
                vlan_vid=vid,
                name=section.name or f"vlan{vid}",
                algorithm=section.algorithm,
                parameters=section.parameters,
                weight=section.weight,
                send_limit_bps=section.send_limit,
                receive_limit_bps=section.receive_limit,
                shadow=section.shadow,
            )
        if not root.vlans and not root.has_bad("vlans"):
            self._document.report(("vlans",), "holds no VLAN: at least one is needed")
        return vlans

    def _check_algorithm(self, path: Path, section: VlanSection) -> None:
        if section.has_bad("algorithm") or section.has_bad("parameters"):
            return
        # Here, not above: it brings numpy, which a command that reads no configuration should not wait for.
        from controller.algorithms import make_any_algorithm

        try:
            if section.shadow is not None:
                make_any_algorithm(section.shadow, key="shadow")
            make_any_algorithm(section.algorithm, section.parameters)
        except InvalidValueError as error:
            name = error.key.rpartition(".")[2]
            plain = name in ("algorithm", "shadow")
            place = (*path, "parameters", name) if name in section.parameters else (*path, "algorithm")
            if name == "shadow":
                place = (*path, "shadow")
            shown = "" if plain or name in section.parameters else f"{name}: "
            self._document.report(place, f"{shown}{show_value(error.value)} {error.reason}")

    def _read_switches(self, root: RootSection) -> dict[str, Switch]:
        switches = {}
        for name, data in root.switches.items():
            path = ("switches", name)
            try:
                check_name(name)
            except InvalidValueError:
                self._document.report(path, f"{name!r} is not a switch name: it {NAME_RULE}", at_key=True)
            section = read_section(SwitchSection, self._document, path, data)
            self._check_dpid(path, section)
            ports = {}
            for key, port_data in section.ports.items():
                port = self._read_port((*path, "ports", key), name, section.dpid or 0, port_data)
                ports[port.port_no] = port
            switches[name] = Switch(name, section.dpid or 0, section.ovsdb, ports)
        if not root.switches and not root.has_bad("switches"):
            self._document.report(("switches",), "holds no switch: at least one is needed")
        return switches

    def _check_dpid(self, path: Path, section: SwitchSection) -> None:
        if section.dpid is None:
            return
        first = self._dpids.setdefault(section.dpid, path[-1])
        if first != path[-1]:
            line, _ = self._document.locate(("switches", first, "dpid"))
            message = f"{section.dpid:016x} is also the dpid of switch {first} (line {line})"
            self._document.report((*path, "dpid"), message)

    def _read_port(self, path: Path, switch: str, dpid: int, data: object) -> Port:
        section = read_section(PortSection, self._document, path, data)
        port_no = self._number(path, "port number", 1, MAX_PORT_NO) or 0
        vns = []
        for vid in self._port_vlans(path, section):
            overrides = self._read_overrides(path, section, vid)
            send_bps, receive_bps = (self._limit(path, section, overrides, vid, way) for way in _DIRECTIONS)
            ceilings = [
                self._ceiling(path, section, overrides, vid, way, limit_bps)
                for way, limit_bps in zip(_DIRECTIONS, (send_bps, receive_bps), strict=True)
            ]
            vns.append(Vn(vid, switch, dpid, port_no, send_bps, receive_bps, *ceilings))
        self._check_stray_overrides(path, section)
        self._check_sums(path, section, vns)
        return Port(
            port_no=port_no,
            name=section.name or f"{switch}-{port_no}",
            capacity_bps=section.capacity or 0,
            tagged=section.trunk is not None,
            vns=tuple(vns),
        )

    def _port_vlans(self, path: Path, section: PortSection) -> list[int]:
        """Return the declared VLANs of a port, each once."""
        unknown = section.has_bad("access") or section.has_bad("trunk")
        if section.access is not None and section.trunk is not None:
            message = "stands beside trunk: a port is an access port of one VLAN or a trunk of several, not both"
            self._document.report((*path, "access"), message, at_key=True)
        elif section.access is None and section.trunk is None and not unknown:
            self._document.report(
                path, "needs access: VID (one VLAN, untagged) or trunk: [VID, ...] (tagged)", at_key=True
            )
        elif section.trunk is not None and not section.trunk:
            self._document.report((*path, "trunk"), "names no VLAN")
        named = [((*path, "trunk", f"[{index}]"), vid) for index, vid in enumerate(section.trunk or ())]
        if section.access is not None:
            named.append(((*path, "access"), section.access))
        vids: list[int] = []
        for place, vid in named:
            if vid not in self._vlans:
                known = ", ".join(map(str, sorted(self._vlans)[:20])) or "none"
                self._document.report(place, f"{vid} is not a VLAN of this file; its VLANs are {known}")
            elif vid in vids and place[-2] == "trunk":
                self._document.report(place, f"{vid} is on this port already")
            elif vid not in vids:
                vids.append(vid)
        return vids

    def _read_overrides(self, path: Path, section: PortSection, vid: int) -> VnSection:
        if str(vid) not in section.vns:
            return VnSection()
        return read_section(VnSection, self._document, (*path, "vns", str(vid)), section.vns[str(vid)])

    def _check_stray_overrides(self, path: Path, section: PortSection) -> None:
        unknown = section.has_bad("access") or section.has_bad("trunk")
        vids = [*(section.trunk or ()), *([] if section.access is None else [section.access])]
        for key in section.vns:
            vid = self._number((*path, "vns", key), "VLAN id", MIN_VLAN_VID, MAX_VLAN_VID)
            if vid is not None and vid not in vids and not unknown:
                here = ", ".join(map(str, vids)) or "none"
                message = f"VLAN {vid} is not on this port; its VLANs are {here}"
                self._document.report((*path, "vns", key), message, at_key=True)

    def _limit(self, path: Path, section: PortSection, overrides: VnSection, vid: int, way: str) -> int:
        """Return a VN's limit in bit/s, or 0 where it is unknown because of a problem reported."""
        key = f"{way}_limit"
        vlan = self._vlans[vid]
        own: int | None = getattr(overrides, key)
        default: int | None = getattr(vlan, key)
        own_path, default_path = (*path, "vns", str(vid), key), ("vlans", str(vid), key)
        if overrides.has_bad(key) or (own is None and vlan.has_bad(key)):
            return 0
        limit_bps = own if own is not None else default
        if limit_bps is None:
            message = f"is missing: VLAN {vid} has no {key} of its own ({show_path(default_path)}) to fall back on"
            self._document.report(own_path, message)
            return 0
        if section.capacity is not None and limit_bps > section.capacity:
            capacity = f"the port's capacity, {format_rate(section.capacity)}"
            if own is not None:
                self._document.report(own_path, f"{format_rate(limit_bps)} is above {capacity}")
            else:
                line, _ = self._document.locate(default_path)
                origin = f"{show_path(default_path)} (line {line}), {format_rate(limit_bps)},"
                self._document.report((*path, "capacity"), f"the {key} of VLAN {vid} here is {origin} above {capacity}")
            return 0
        return limit_bps

    def _ceiling(
        self, path: Path, section: PortSection, overrides: VnSection, vid: int, way: str, limit_bps: int
    ) -> int | None:
        """Return a VN's ceiling in bit/s, None if it has none or one with a problem reported."""
        key = f"{way}_ceiling"
        own: int | None = getattr(overrides, key)
        ceiling_bps: int | None = own if own is not None else getattr(self._vlans[vid], key)
        if ceiling_bps is None or not limit_bps or section.capacity is None:
            return None
        bounds = f"the limit of {format_rate(limit_bps)} to the port's capacity of {format_rate(section.capacity)}"
        if limit_bps <= ceiling_bps <= section.capacity:
            return ceiling_bps
        place = (*path, "vns", str(vid), key) if own is not None else path
        self._document.report(place, f"the {key} of VLAN {vid}, {format_rate(ceiling_bps)}, is outside {bounds}")
        return None

    def _check_sums(self, path: Path, section: PortSection, vns: Sequence[Vn]) -> None:
        if section.capacity is None:
            return
        for way in _DIRECTIONS:
            limits = {vn.vlan_vid: getattr(vn, f"{way}_limit_bps") for vn in vns}
            total_bps = sum(limits.values())
            if total_bps > section.capacity:
                terms = " + ".join(f"{format_rate(bps)} (VLAN {vid})" for vid, bps in limits.items())
                message = f"{format_rate(section.capacity)} is below the sum of the port's {way} limits, {terms} = "
                self._document.report((*path, "capacity"), message + format_rate(total_bps))

    def _number(self, path: Path, what: str, least: int, most: int) -> int | None:
        """Return the number that a key is, or None once reported that it is none."""
        key = path[-1]
        if _KEY_NUMBER.fullmatch(key) and least <= int(key) <= most:
            return int(key)
        self._document.report(
            path, f"{key!r} is not a {what}: it must be a decimal number, {least} to {most}", at_key=True
        )
        return None
