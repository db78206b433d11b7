"""The edge ports of a configuration: which VLANs they carry, and their VNs' limits, ceilings and weights.

A VN has its own limits or its VLAN's, all within the port's capacity. ``controller.config.validation`` checks their
sums.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from controller.config.section_reader import expand_key, is_numeric, read_number, read_section
from controller.config.sections import PortSection, VlanSection, VnSection
from controller.config.value_types import MAX_PORT_NO, MAX_VLAN_VID, MIN_VLAN_VID
from controller.config.yaml_document import Path, Problem, show_path
from controller.errors import InvalidValueError
from controller.fabric.config_model import DIRECTIONS, FIRST_NAMED, LAST_NAMED, EdgePort, Vn
from controller.fabric.value_checks import is_name
from controller.fabric.vn_table import check_ceiling
from controller.units import format_rate

_MAX_NAMED = 20
_EMPTY_VN = VnSection()
_RATES = attrgetter("send_limit", "receive_limit", "send_ceiling", "receive_ceiling")


def port_keys(path: Path) -> tuple[Sequence[int | str], list[Problem]]:
    """Return the ports named by the key at the end of ``path``, by number or interface name, and problems.

    An invalid key counts as one port without a number, so that its section is read too.
    """
    key = path[-1]
    if is_name(key) and not is_numeric(key):
        return [key], []
    numbers, problems = expand_key(path, "port number or an interface's name", 1, MAX_PORT_NO)
    if numbers and numbers[-1] >= FIRST_NAMED and numbers[0] <= LAST_NAMED:
        message = f"{FIRST_NAMED} to {LAST_NAMED} are kept for ports by name: write the interface's name"
        return [0], [Problem(path, message, at_key=True)]
    return numbers or [0], problems


def read_port(
    path: Path, key: int | str, switch: str, dpid: int, data: object, vlans: Mapping[int, VlanSection]
) -> tuple[EdgePort, list[Problem]]:
    """Return a port, and its problems; a capacity or limit that is unknown because of a problem is 0.

    ``path`` is that of the port's section, ``data``; ``key`` is the port, one of those that ``port_keys`` returns.
    """
    section, problems = read_section(PortSection, path, data)
    interface = key if isinstance(key, str) else None
    # The number of a port by name is derived from its name; ports may have one number by chance, which is a problem.
    port_no = key if isinstance(key, int) else FIRST_NAMED + zlib.crc32(key.encode()) % (LAST_NAMED - FIRST_NAMED + 1)
    vids, bad_vids = _read_vids(path, section, vlans)
    problems += bad_vids
    vns = []
    for vid in vids:
        vn, bad_vn = _read_vn(path, section, vid, vlans[vid], (switch, dpid, port_no))
        vns.append(vn)
        problems += bad_vn
    problems += _stray_vns(path, section, vids)
    if interface is not None and section.expect is not None:
        message = "has no effect here: the port is found by its name; write it under a number, or omit it"
        problems.append(Problem((*path, "expect"), message, at_key=True))
    name = section.name or interface or f"{switch}-{port_no}"
    untagged = section.native if section.access is None else section.access
    options = section.agent, section.expect, interface, section.frame_overhead_bytes
    return EdgePort(port_no, name, section.capacity or 0, untagged, tuple(vns), *options), problems


def _read_vids(path: Path, section: PortSection, vlans: Mapping[int, object]) -> tuple[list[int], list[Problem]]:
    """Return the ids of a port's VLANs that are in ``vlans``, each once, and the problems of its VLAN keys."""
    problems: list[Problem] = []
    if section.access is not None and section.trunk is not None:
        message = "cannot be combined with trunk: a port is an access port of one VLAN or a trunk of several, not both"
        problems.append(Problem((*path, "access"), message, at_key=True))
    elif section.access is None and section.trunk is None and not _has_bad_vids(section):
        message = "needs access: VID (one VLAN, untagged) or trunk: [VID, ...] (tagged)"
        problems.append(Problem(path, message, at_key=True))
    elif section.trunk is not None and not section.trunk:
        problems.append(Problem((*path, "trunk"), "names no VLAN"))
    has_stray_native = section.native is not None and not any(section.native in vids for vids in section.trunk_vids)
    if has_stray_native and not _has_bad_vids(section):
        message = f"{section.native} is not on this port's trunk; only a VLAN of it can go without a tag"
        problems.append(Problem((*path, "native"), message))
    items = [((*path, "trunk", f"[{index}]"), vids) for index, vids in enumerate(section.trunk_vids)]
    if section.access is not None:
        items.append(((*path, "access"), range(section.access, section.access + 1)))
    port_vids: dict[int, None] = {}  # a set in the order of the file
    for item_path, vids in items:
        declared = [vid for vid in vids if vid in vlans]
        if not declared:
            known = ", ".join(map(str, sorted(vlans)[:_MAX_NAMED])) or "none"
            subject = f"{vids[0]} is not a VLAN" if len(vids) == 1 else f"{vids[0]}-{vids[-1]} holds no VLAN"
            problems.append(Problem(item_path, f"{subject} of this file; its VLANs are {known}"))
        # Only in trunks: an access VLAN next to a trunk is a problem already.
        repeated = [vid for vid in declared if vid in port_vids]
        if repeated and item_path[-2] == "trunk":
            problems.append(Problem(item_path, f"{repeated[0]} is on this port already"))
        port_vids |= dict.fromkeys(declared)
    return list(port_vids), problems


class _VnSections(NamedTuple):
    """The file's sections for one VN: of the VN itself, at ``path``, of its VLAN and of its port."""

    path: Path
    vid: int
    own: VnSection
    vlan: VlanSection
    port: PortSection


def _read_vn(
    path: Path, port: PortSection, vid: int, vlan: VlanSection, location: tuple[str, int, int]
) -> tuple[Vn, list[Problem]]:
    """Return the VN of a VLAN at the port of ``path``, and its problems; ``location`` is switch, dpid and port number.

    A rate that the VN does not set is its VLAN's.
    """
    own_path = (*path, "vns", str(vid))
    own, problems = _EMPTY_VN, list[Problem]()
    if own_path[-1] in port.vns:
        own, problems = read_section(VnSection, own_path, port.vns[own_path[-1]])
    own_rates, vlan_rates = _RATES(own), _RATES(vlan)  # two limits, then two ceilings
    rates = [vlan_bps if vn_bps is None else vn_bps for vn_bps, vlan_bps in zip(own_rates, vlan_rates, strict=True)]
    # Only few of the thousands of VNs in a large file need the slow checks.
    if not (own.is_good and vlan.is_good and _fit(rates, port.capacity)):
        sections = _VnSections(own_path, vid, own, vlan, port)
        for index, direction in enumerate(DIRECTIONS):
            rates[index], bad_limit = _limit_bps(sections, f"{direction}_limit")
            rates[index + 2], bad_ceiling = _ceiling_bps(sections, f"{direction}_ceiling", rates[index])
            problems += bad_limit + bad_ceiling
    # The first two of ``own_rates`` are the limits.
    own_limits = tuple([direction for direction, bps in zip(DIRECTIONS, own_rates, strict=False) if bps is not None])
    send_bps, receive_bps, send_ceiling_bps, receive_ceiling_bps = rates
    vn = Vn(
        vid,
        *location,
        send_limit_bps=send_bps,
        receive_limit_bps=receive_bps,
        send_ceiling_bps=send_ceiling_bps,
        receive_ceiling_bps=receive_ceiling_bps,
        own_limits=own_limits,
        weight=own.weight,
        flood_limit_bps=own.flood_limit,
    )
    return vn, problems


def _fit(rates: list[int | None], capacity_bps: int | None) -> bool:
    """Return whether both limits exist within the capacity, without a ceiling, so that nothing else needs a check."""
    send_bps, receive_bps, *ceilings = rates
    if send_bps is None or receive_bps is None or capacity_bps is None:
        return False
    return send_bps <= capacity_bps and receive_bps <= capacity_bps and ceilings == [None, None]


def _limit_bps(sections: _VnSections, key: str) -> tuple[int, list[Problem]]:
    """Return a VN's limit in bit/s, 0 if unknown, and its problems; ``key`` is ``send_limit`` or ``receive_limit``."""
    capacity_bps = sections.port.capacity
    vn_bps: int | None = getattr(sections.own, key)
    limit_bps: int | None = vn_bps if vn_bps is not None else getattr(sections.vlan, key)
    if sections.own.has_bad(key) or (vn_bps is None and sections.vlan.has_bad(key)):
        return 0, []
    if limit_bps is not None and (capacity_bps is None or limit_bps <= capacity_bps):
        return limit_bps, []
    own_path, vlan_path = (*sections.path, key), ("vlans", str(sections.vid), key)
    if limit_bps is None:
        message = f"is missing: VLAN {sections.vid} has no {key} of its own ({show_path(vlan_path)}) to fall back on"
        return 0, [Problem(own_path, message)]
    assert capacity_bps is not None
    above = f"above the port's capacity, {format_rate(capacity_bps)}"
    if vn_bps is not None:
        return 0, [Problem(own_path, f"{format_rate(limit_bps)} is {above}")]
    message = f"the {key} of VLAN {sections.vid} here is {show_path(vlan_path)}"
    rest = f", {format_rate(limit_bps)}, {above}"
    return 0, [Problem((*sections.path[:-2], "capacity"), message, see=vlan_path, rest=rest)]


def _ceiling_bps(sections: _VnSections, key: str, limit_bps: int) -> tuple[int | None, list[Problem]]:
    """Return a VN's ceiling in bit/s, None if it has none or a bad one, and its problems.

    ``key`` is ``send_ceiling`` or ``receive_ceiling``, ``limit_bps`` the VN's limit in that direction.
    """
    capacity_bps = sections.port.capacity
    vn_bps: int | None = getattr(sections.own, key)
    ceiling_bps: int | None = vn_bps if vn_bps is not None else getattr(sections.vlan, key)
    if ceiling_bps is None or not limit_bps or capacity_bps is None:
        return None, []
    try:
        return check_ceiling(key, ceiling_bps, limit_bps, capacity_bps), []
    except InvalidValueError as error:
        place = (*sections.path, key) if vn_bps is not None else sections.path[:-2]
        return None, [Problem(place, f"the {key} of VLAN {sections.vid}, {format_rate(ceiling_bps)}, {error.reason}")]


def _stray_vns(path: Path, section: PortSection, vids: list[int]) -> Iterator[Problem]:
    """Yield a problem for every VN of a VLAN that is not on the port."""
    # The ends of trunk ranges count even if the file lacks these VLANs: that is another problem.
    range_ends = {vid for trunk_range in section.trunk_vids for vid in (trunk_range[0], trunk_range[-1])}
    port_vids = {*vids, *range_ends, section.access}
    for key in section.vns:
        vid, bad_number = read_number((*path, "vns", key), "VLAN id", MIN_VLAN_VID, MAX_VLAN_VID)
        yield from bad_number
        if vid is not None and vid not in port_vids and not _has_bad_vids(section):
            message = f"VLAN {vid} is not on this port; its VLANs are {', '.join(map(str, vids)) or 'none'}"
            yield Problem((*path, "vns", key), message, at_key=True)


def _has_bad_vids(section: PortSection) -> bool:
    return section.has_bad("access") or section.has_bad("trunk")
