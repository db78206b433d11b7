"""The configuration: the operator's YAML, checked as a whole and turned into frozen values.

``load_config`` and ``parse_config`` either return a ``Config`` that satisfies every rule below, or raise
``ConfigError`` with all problems, each with file, line and column. ``included_files`` reads the files.

Rules between sections: a VN's limit is at most its port's capacity, and so is the sum of a port's send limits and the
sum of its receive limits; a port is either an access port or a trunk; its VLANs exist and are named once; a dpid
belongs to one switch; floods fit the receive limits; the links carry every traffic matrix that the limits allow.

Each section's reader returns its values and the problems it found. A reader continues after a bad value; rules that
need the bad value are skipped, and any problem prevents the use of the result.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from controller.config.cluster import read_cluster
from controller.config.included_files import JoinedFiles, read_file, read_text
from controller.config.links import read_links
from controller.config.listeners import ovsdb_problems, read_ovsdb_tls, read_rest, read_tls
from controller.config.ports import port_keys, read_port
from controller.config.section_reader import Ranges, expand_key, read_section
from controller.config.sections import (
    AgentsSection,
    ControlSection,
    EcnSection,
    LoggingSection,
    MetersSection,
    MetricsSection,
    OpenFlowSection,
    QueuesSection,
    RestSection,
    RootSection,
    StoreSection,
    SwitchSection,
    VlanSection,
)
from controller.config.validation import (
    algorithm_problems,
    flood_problems,
    link_problems,
    port_problems,
    sharding_problems,
    unused_problems,
)
from controller.config.value_types import MAX_VLAN_VID, MIN_VLAN_VID
from controller.config.yaml_document import Bounds, ConfigError, Path, Problem
from controller.errors import InvalidValueError
from controller.fabric.config_model import ANY_NAME, Cluster, Config, EdgePort, Endpoint, MeterSettings, Switch, Vlan
from controller.fabric.value_checks import NAME_RULE, check_name
from controller.units import format_rate

MAX_VNS = 2**18
MIN_BURST_LIMIT_BITS = 40_000  # of a switch's meters: three frames of 1,522 bytes, in whole kb
_MAX_ENTRIES = Bounds({"vlans": MAX_VLAN_VID, "vns": MAX_VLAN_VID, "trunk": MAX_VLAN_VID}, 2**16)


def load_config(path: str | pathlib.Path) -> Config:
    """Return the configuration in the file at ``path``; raise ConfigError if it is unreadable or invalid."""
    return parse_config(read_file(pathlib.Path(path), str(path)), str(path), pathlib.Path(path).parent)


def read_config(stream: BinaryIO, name: str) -> Config:
    """Return the configuration read from a stream; raise ConfigError as ``load_config`` does, OSError from reading."""
    return parse_config(read_text(stream, name), name, pathlib.Path())


def parse_config(text: str, source_name: str = "<text>", folder: pathlib.Path | None = None) -> Config:
    """Return the configuration in a YAML text; raise ConfigError with all its problems.

    ``folder`` is that of the included files; without it, none can be included.
    """
    files = JoinedFiles(text, source_name, folder, _MAX_ENTRIES)
    if files.data is None and files.problems:
        raise ConfigError(source_name, files.problems)
    config, problems = _read_config(files.data, source_name)
    if not problems and not files.problems:
        problems += [*flood_problems(config), *link_problems(config), *sharding_problems(config)]
    if problems or files.problems:
        known = {(one.line, one.column, one.path) for one in files.problems}  # an alias has no value that can be right
        others = [one for one in files.with_positions(problems) if (one.line, one.column, one.path) not in known]
        raise ConfigError(source_name, [*files.problems, *others])
    return config


def _read_config(data: object, source_name: str) -> tuple[Config, list[Problem]]:
    """Return the configuration, and all problems found; with problems it is incomplete."""
    root, problems = read_section(RootSection, (), data)
    control, bad_control = read_section(ControlSection, ("control",), root.control)
    openflow, bad_openflow = read_section(OpenFlowSection, ("openflow",), root.openflow)
    logging, bad_logging = read_section(LoggingSection, ("logging",), root.logging)
    queues, bad_queues = read_section(QueuesSection, ("queues",), root.queues)
    agents, bad_agents = read_section(AgentsSection, ("agents",), root.agents)
    metrics, bad_metrics = read_section(MetricsSection, ("metrics",), root.metrics)
    ecn, bad_ecn = read_section(EcnSection, ("ecn",), root.ecn)
    rest_section, bad_rest_section = read_section(RestSection, ("rest",), root.rest)
    store, bad_store = read_section(StoreSection, ("store",), root.store)
    rest, bad_rest = read_rest(rest_section, store, source_name)
    tls, bad_tls = read_tls(openflow, source_name)
    ovsdb_tls, bad_ovsdb_tls = read_ovsdb_tls(root.ovsdb_tls, source_name)
    cluster, bad_cluster = read_cluster(root.cluster, control, store, rest, source_name)
    sections, vlans, bad_vlans = _read_vlans(root, control.interval_ms)
    switches, bad_switches = _read_switches(root, sections)
    links, bad_links = read_links(root.links, switches)
    problems += bad_control + bad_openflow + bad_logging + bad_queues + bad_rest_section + bad_store + bad_rest
    problems += bad_tls + bad_vlans + bad_switches + bad_links + bad_agents + bad_ecn + bad_cluster + bad_metrics
    problems += [*bad_ovsdb_tls, *_listener_problems(openflow, rest.listen, cluster)]
    used = {Endpoint(*openflow.listen): "openflow.listen", rest.listen: "rest.listen"}
    problems += ovsdb_problems(switches.values(), ovsdb_tls, used)
    config = Config(
        source_name=source_name,
        interval_ms=control.interval_ms,
        on_stop=control.on_stop,
        mac_ageing_s=control.mac_ageing_s,
        max_macs_per_vn=control.max_macs_per_vn,
        packet_in_rate_bps=control.packet_in_rate,
        newcomers=control.newcomers,
        openflow_listen=Endpoint(*openflow.listen),
        first_meter_id=openflow.first_meter_id,
        last_meter_id=openflow.last_meter_id,
        rest=rest,
        queue_max_rate=queues.max_rate,
        queue_mode=queues.mode,
        vn_metrics=metrics.vns,
        ecn_source=ecn.source,
        ecn_exposed=ecn.expose_to_hosts,
        ecn_codepoint=ecn.codepoint,
        vlans=vlans,
        switches=switches,
        links=links,
        control_frame_rate_bps=agents.control_frame_rate,
        agent_long_frames=agents.long_frames,
        agent_experimental_ethertype=agents.experimental_ethertype,
        openflow_tls=tls,
        ovsdb_tls=ovsdb_tls,
        log_format=logging.format,
        log_level=logging.level,
        cluster=cluster,
    )
    return config, problems


def _listener_problems(openflow: OpenFlowSection, rest: Endpoint, cluster: Cluster | None) -> Iterator[Problem]:
    """Yield problems of addresses that are used twice, and of meter ids in the wrong order."""
    if openflow.first_meter_id > openflow.last_meter_id:
        message = f"{openflow.last_meter_id} is below first_meter_id, {openflow.first_meter_id}"
        yield Problem(("openflow", "last_meter_id"), message)
    if Endpoint(*openflow.listen) == rest and not openflow.has_bad("listen"):
        yield Problem(("rest", "listen"), f"{rest} is also openflow.listen")
    for name, listen in (("openflow.listen", Endpoint(*openflow.listen)), ("rest.listen", rest)):
        if cluster is not None and cluster.peer_listen == listen:
            yield Problem(("cluster", "peer_listen"), f"{listen} is also {name}")


def _read_vlans(root: RootSection, interval_ms: int) -> tuple[dict[int, VlanSection], dict[int, Vlan], list[Problem]]:
    """Return the VLANs by id, as sections and as values, and all problems found."""
    sections: dict[int, VlanSection] = {}
    vlans: dict[int, Vlan] = {}
    problems: list[Problem] = []
    key_of_name: dict[str, str] = {}
    key_of_vid: dict[int, str] = {}
    ranges = Ranges(root.vlans)
    if (excess := ranges.check_count(("vlans",))) is not None:
        return {}, {}, [excess]
    for key in root.vlans:
        path = ("vlans", key)
        data, range_key = ranges.complete(key)
        section, bad_section = read_section(VlanSection, path, data)
        vids, bad_key = expand_key(path, "VLAN id", MIN_VLAN_VID, MAX_VLAN_VID)
        found = [*bad_section, *bad_key, *algorithm_problems(path, section, interval_ms)]
        found += [*unused_problems(path, section), *_range_problems(path, vids, data)]
        problems += ranges.relocate(found, path, range_key)
        overlapped_key = ""  # the last earlier key with some of the same VLAN ids: one problem for each such key
        for vid in ranges.without_own_entries(key, vids):
            name, first = section.name or f"vlan{vid}", key_of_vid.setdefault(vid, key)
            if first not in (key, overlapped_key):
                overlapped_key = first
                problems.append(Problem(path, f"{vid} is in {first} already", at_key=True, see=("vlans", first)))
            if not overlapped_key and not section.has_bad("name") and key_of_name.setdefault(name, key) != key:
                message = f"{name} is also the name of VLAN {key_of_name[name]}"
                problems.append(Problem((*path, "name"), message, see=("vlans", key_of_name[name], "name")))
            sections[vid] = section
            vlans[vid] = Vlan(
                vlan_vid=vid,
                name=name,
                algorithm=section.algorithm,
                parameters=section.parameters,
                weight=section.weight,
                send_limit_bps=section.send_limit,
                receive_limit_bps=section.receive_limit,
                shadow=section.shadow,
                shadow_parameters=section.shadow_parameters,
                flood_limit_bps=section.flood_limit,
            )
    if not root.vlans and not root.has_bad("vlans"):
        problems.append(Problem(("vlans",), "holds no VLAN: at least one is needed"))
    return sections, vlans, list(dict.fromkeys(problems))


def _read_switches(root: RootSection, vlans: Mapping[int, VlanSection]) -> tuple[dict[str, Switch], list[Problem]]:
    """Return the switches by name, and all problems found; reading stops above MAX_VNS."""
    switches: dict[str, Switch] = {}
    problems: list[Problem] = []
    name_of_dpid: dict[int, str] = {}
    path_of_port_name: dict[tuple[str, str], Path] = {}
    vns = 0
    for name, data in root.switches.items():
        path = ("switches", name)
        section, bad_section = read_section(SwitchSection, path, data)
        problems += bad_section
        try:
            check_name(name)
        except InvalidValueError:
            problems.append(Problem(path, f"{name!r} is not a switch name: it {NAME_RULE}", at_key=True))
        if section.dpid is not None and name_of_dpid.setdefault(section.dpid, name) != name:
            first = name_of_dpid[section.dpid]
            message = f"{section.dpid:016x} is also the dpid of switch {first}"
            problems.append(Problem((*path, "dpid"), message, see=("switches", first, "dpid")))
        ports, bad_ports = _read_ports((*path, "ports"), name, section, vlans, path_of_port_name, vns)
        problems += bad_ports
        meters, bad_meters = _read_meters((*path, "meters"), section.meters)
        problems += bad_meters
        switches[name] = Switch(name, section.dpid or 0, section.ovsdb, ports, section.profile, meters)
        vns += sum(len(port.vns) for port in ports.values())
        if vns > MAX_VNS:
            break
    if not root.switches and not root.has_bad("switches"):
        problems.append(Problem(("switches",), "holds no switch: at least one is needed"))
    return switches, problems


def _read_meters(path: Path, data: object) -> tuple[MeterSettings, list[Problem]]:
    """Return the settings of a switch's meters, and their problems."""
    section, problems = read_section(MetersSection, path, data)
    max_burst_bits, min_bps, max_bps, step_bps = (
        section.max_burst,
        section.min_rate,
        section.max_rate,
        section.rate_step,
    )
    if max_burst_bits is not None and max_burst_bits < MIN_BURST_LIMIT_BITS:
        message = f"{format_rate(max_burst_bits)} is below {format_rate(MIN_BURST_LIMIT_BITS)} bits, three frames"
        problems.append(Problem((*path, "max_burst"), message))
    if min_bps is not None and max_bps is not None and min_bps > max_bps:
        problems.append(
            Problem((*path, "max_rate"), f"{format_rate(max_bps)} is below min_rate, {format_rate(min_bps)}")
        )
    if step_bps is not None and max_bps is not None and step_bps > max_bps:
        message = f"{format_rate(step_bps)} is above max_rate, {format_rate(max_bps)}"
        problems.append(Problem((*path, "rate_step"), message))
    return MeterSettings(max_burst_bits, min_bps, max_bps, step_bps, section.count, section.fail), problems


def _read_ports(
    path: Path,
    switch: str,
    section: SwitchSection,
    vlans: Mapping[int, VlanSection],
    path_of_port_name: dict[tuple[str, str], Path],
    vns: int,
) -> tuple[dict[int, EdgePort], list[Problem]]:
    """Return the ports of a switch by number, and their problems; reading stops above MAX_VNS.

    ``vns`` is the number of VNs at earlier switches; ``path_of_port_name`` is ``path_of_name`` of
    ``_name_problems``.
    """
    ports: dict[int, EdgePort] = {}
    problems: list[Problem] = []
    key_of_number: dict[int, str] = {}
    ranges = Ranges(section.ports)
    if (excess := ranges.check_count(path)) is not None:
        return {}, [excess]
    for key in section.ports:
        port_path = (*path, key)
        data, range_key = ranges.complete(key)
        keys, bad_key = port_keys(port_path)
        found, overlapped_key = [*bad_key, *_range_problems(port_path, keys, data)], ""
        for port_key in ranges.without_own_entries(key, keys):
            port, bad_port = read_port(port_path, port_key, switch, section.dpid or 0, data, vlans)
            found += [*bad_port, *port_problems(port_path, port, vlans)]
            if not port.port_no:  # its key is invalid: it was read for its problems only
                continue
            same_number = ports.get(port.port_no)
            if same_number is not None and port.interface is not None:
                message = f"has the same check sum as {same_number.label}: give one of both a number (expect: NAME)"
                found.append(Problem(port_path, message, at_key=True))
            elif same_number is not None:
                first_key = key_of_number[port.port_no]
                message = f"{port.port_no} is in {first_key} already"
                if first_key != overlapped_key:
                    found.append(Problem(port_path, message, at_key=True, see=(*path, first_key)))
                overlapped_key = first_key
            else:
                found += _name_problems(port_path, port, path_of_port_name)
            ports[port.port_no], key_of_number[port.port_no] = port, key
            vns += len(port.vns)
            if vns > MAX_VNS:
                message = f"brings the VNs, one for each VLAN of each port, to {vns}; there can be {MAX_VNS} at most"
                return ports, [*problems, Problem(port_path, message, at_key=True)]
        problems += ranges.relocate(found, port_path, range_key)
    return ports, list(dict.fromkeys(problems))  # what is wrong with a range is wrong with each of its ports


def _range_problems(path: Path, numbers: Sequence[object], data: object) -> Iterator[Problem]:
    """Yield a problem for each key of ``data``, the entry of a range of ``numbers``, that only one of them can have."""
    entry = data if isinstance(data, Mapping) and len(numbers) > 1 else {}
    for key in ("name", "expect"):
        if entry.get(key) not in (None, ANY_NAME):
            yield Problem((*path, key), f"cannot apply to all of {path[-1]}: write a section for each", at_key=True)


def _name_problems(path: Path, port: EdgePort, path_of_name: dict[tuple[str, str], Path]) -> Iterator[Problem]:
    """Yield a problem if the port at ``path`` has the name of an earlier one, and record its names.

    ``path_of_name`` has the earlier ports' paths by switch and name. A displayed name must be unique among all
    switches, and also has an entry for the switch ""; interfaces of different switches may have the same name.
    """
    keys = [(path[1], name) for name in (port.interface, port.name) if name is not None]
    if port.name != port.interface:
        keys.append(("", port.name))
    for switch, name in keys:
        first = path_of_name.setdefault((switch, name), path)
        if first != path:
            message = f"{name} is also the name of port {first[1]}:{first[-1]}"
            yield Problem((*path, "name"), message, see=(*first, "name"))
            break
