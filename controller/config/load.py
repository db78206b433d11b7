"""The configuration: what an operator writes in YAML, checked as a whole and made into frozen values.

``load_config`` and ``parse_config`` either return a ``Config`` that keeps every promise below or raise ``ConfigError``
with all that is wrong, each with file, line and column. Reading the file is this module's only input and output.

Rules between sections: a VN's limit is at most its port's capacity, and so is the sum of a port's send limits and the
sum of its receive limits; a port is either an access port or a trunk; its VLANs exist and are named once; a dpid
belongs to one switch; the links carry every traffic matrix that the limits allow.
"""

from __future__ import annotations

import pathlib

from controller.allocation.registry import make_any_algorithm
from controller.config.document import ConfigError, ConfigProblem, Document, Path, read_document, show_value
from controller.config.links import check_limits, read_links
from controller.config.listeners import read_rest, read_tls
from controller.config.ports import PortReader
from controller.config.sections import (
    MAX_VLAN_VID,
    MIN_VLAN_VID,
    NAME_RULE,
    ControlSection,
    LoggingSection,
    OpenFlowSection,
    QueuesSection,
    RootSection,
    SwitchSection,
    VlanSection,
    check_name,
    read_number,
    read_section,
)
from controller.errors import InvalidValueError
from controller.fabric.description import Config, Endpoint, Switch, Vlan, Vn
from controller.limits.changes import check_borrows
from controller.units import format_rate

_MAX_FILE_BYTES = 64 * 2**20


def load_config(path: str | pathlib.Path) -> Config:
    """Return the configuration in the file at ``path``; raise ConfigError if it is unreadable or not acceptable."""
    name = str(path)
    try:
        with open(path, "rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ConfigError(name, [ConfigProblem(0, 0, "", f"is larger than {_MAX_FILE_BYTES} bytes")])
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(name, [ConfigProblem(0, 0, "", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        raise ConfigError(name, [ConfigProblem(line, column, "", "is not UTF-8 text")]) from error
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
        logging = read_section(LoggingSection, document, ("logging",), root.logging)
        queues = read_section(QueuesSection, document, ("queues",), root.queues)
        rest = read_rest(document, root, source_name)
        self._check_listeners(openflow, rest.listen)
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
            rest=rest,
            queue_max_rate=queues.max_rate,
            vlans=vlans,
            switches=switches,
            links=read_links(document, root.links, switches),
            openflow_tls=read_tls(document, openflow, source_name),
            log_format=logging.format,
            log_level=logging.level,
        )

    def check_links(self, config: Config) -> None:
        """Report a limit that the links do not fit; the file must have no other problem."""

        def limit_path(vn: Vn, way: str) -> Path:
            here = ("switches", vn.switch, "ports", str(vn.port_no))
            own = (*here, "vns", str(vn.vlan_vid), f"{way}_limit")
            return own if self._document.has(own) else here

        check_limits(self._document, config, limit_path)

    def _check_listeners(self, openflow: OpenFlowSection, rest: Endpoint) -> None:
        if openflow.first_meter_id > openflow.last_meter_id:
            message = f"{openflow.last_meter_id} is below first_meter_id, {openflow.first_meter_id}"
            self._document.report(("openflow", "last_meter_id"), message)
        if Endpoint(*openflow.listen) == rest and not openflow.has_bad("listen"):
            self._document.report(("rest", "listen"), f"{rest} is also openflow.listen")

    def _read_vlans(self, root: RootSection) -> dict[int, Vlan]:
        vlans: dict[int, Vlan] = {}
        for key, data in root.vlans.items():
            path = ("vlans", key)
            section = read_section(VlanSection, self._document, path, data)
            self._check_algorithm(path, section, "algorithm", "parameters")
            self._check_algorithm(path, section, "shadow", "shadow_parameters")
            self._check_ceilings(path, section)
            vid = read_number(self._document, path, "VLAN id", MIN_VLAN_VID, MAX_VLAN_VID)
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
                shadow_parameters=section.shadow_parameters,
            )
        if not root.vlans and not root.has_bad("vlans"):
            self._document.report(("vlans",), "holds no VLAN: at least one is needed")
        return vlans

    def _check_algorithm(self, path: Path, section: VlanSection, key: str, parameters_key: str) -> None:
        if section.has_bad(key) or section.has_bad(parameters_key):
            return
        name, parameters = getattr(section, key), getattr(section, parameters_key)
        if name is None:
            if parameters:
                self._document.report((*path, parameters_key), f"stands without {key}, whose parameters these are")
            return
        try:
            make_any_algorithm(name, parameters, key=key, parameters_key=parameters_key)
        except InvalidValueError as error:
            self._document.report((*path, *error.key.split(".", 1)), f"{show_value(error.value)} {error.reason}")

    def _check_ceilings(self, path: Path, section: VlanSection) -> None:
        if section.has_bad("algorithm") or section.has_bad("shadow"):
            return
        for key in ("send_ceiling", "receive_ceiling"):
            ceiling_bps = getattr(section, key)
            try:
                if ceiling_bps is not None:
                    check_borrows(key, ceiling_bps, section.algorithm, section.shadow)
            except InvalidValueError as error:
                self._document.report((*path, key), f"{format_rate(ceiling_bps)} {error.reason}")

    def _read_switches(self, root: RootSection) -> dict[str, Switch]:
        switches = {}
        reader = PortReader(self._document, self._vlans)
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
                port = reader.read((*path, "ports", key), name, section.dpid or 0, port_data)
                ports[port.port_no] = port
            switches[name] = Switch(name, section.dpid or 0, section.ovsdb, ports, section.profile)
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
