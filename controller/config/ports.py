"""The edge ports of a configuration: which VLANs they carry, and their VNs' limits and ceilings.

A VN's limits are its own or its VLAN's; none is above the port's capacity, nor is what all VNs of a port have together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.config.document import Document, Path, show_path
from controller.config.sections import (
    MAX_PORT_NO,
    MAX_VLAN_VID,
    MIN_VLAN_VID,
    PortSection,
    VlanSection,
    VnSection,
    read_number,
    read_section,
)
from controller.errors import InvalidValueError
from controller.fabric.description import EdgePort, Vn
from controller.fabric.vns import check_ceiling
from controller.limits.changes import check_borrows
from controller.limits.hose_model import WAYS, port_overload
from controller.units import format_rate


class PortReader:
    """Reads the edge ports of one document, whose VLANs are known."""

    def __init__(self, document: Document, vlans: Mapping[int, VlanSection]) -> None:
        self._document = document
        self._vlans = vlans

    def read(self, path: Path, switch: str, dpid: int, data: object) -> EdgePort:
        """Return a port without what is wrong with it, which is reported."""
        section = read_section(PortSection, self._document, path, data)
        port_no = read_number(self._document, path, "port number", 1, MAX_PORT_NO) or 0
        vns = []
        for vid in self._port_vlans(path, section):
            overrides = self._read_overrides(path, section, vid)
            send_bps, receive_bps = (self._limit(path, section, overrides, vid, way) for way in WAYS)
            send_ceiling_bps = self._ceiling(path, section, overrides, vid, "send", send_bps)
            receive_ceiling_bps = self._ceiling(path, section, overrides, vid, "receive", receive_bps)
            own = tuple(way for way in WAYS if getattr(overrides, f"{way}_limit") is not None)
            ceilings = send_ceiling_bps, receive_ceiling_bps
            vns.append(Vn(vid, switch, dpid, port_no, send_bps, receive_bps, *ceilings, own))
        self._check_stray_overrides(path, section)
        self._check_sums(path, section, vns)
        return EdgePort(
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
            vid = read_number(self._document, (*path, "vns", key), "VLAN id", MIN_VLAN_VID, MAX_VLAN_VID)
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
        vlan = self._vlans[vid]
        try:
            if own is not None:  # the VLAN's own is checked with the VLAN
                check_borrows(key, ceiling_bps, vlan.algorithm, vlan.shadow)
            return check_ceiling(key, ceiling_bps, limit_bps, section.capacity)
        except InvalidValueError as error:
            place = (*path, "vns", str(vid), key) if own is not None else path
            message = f"the {key} of VLAN {vid}, {format_rate(ceiling_bps)}, {error.reason}"
            self._document.report(place, message)
            return None

    def _check_sums(self, path: Path, section: PortSection, vns: Sequence[Vn]) -> None:
        if section.capacity is None:
            return
        for way in WAYS:
            limits_bps = {vn.vlan_vid: getattr(vn, f"{way}_limit_bps") for vn in vns}
            overload = port_overload(show_path(path), way, limits_bps.values(), section.capacity)
            if overload is not None:
                terms = " + ".join(f"{format_rate(bps)} (VLAN {vid})" for vid, bps in limits_bps.items())
                message = f"{format_rate(section.capacity)} is below the sum of the port's {way} limits, {terms} = "
                self._document.report((*path, "capacity"), message + format_rate(overload.load_bps))
