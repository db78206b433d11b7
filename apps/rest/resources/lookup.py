"""From names in a URL to rows of the controller's tables, or an error that lists the known names.

A VLAN is named by its id or its name, an edge port of a switch by its number or its name. Digits are always the id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from apps.rest.http.problems import HttpRefusedError, listed, not_found
from apps.rest.resources.service import service
from apps.rest.schema.request_parameters import MAX_REVISION, PairPath, VnPath
from apps.settings.settings import Settings
from apps.settings.store import StoredChange
from controller.central.controller import CentralController
from controller.columns import IntArray
from controller.config.value_types import MAX_VLAN_VID, MIN_VLAN_VID
from controller.errors import InvalidValueError, near_name
from controller.fabric.config_model import EdgePort, Switch, Vlan
from controller.limits.overrides import VnName

_NUMBER = re.compile(r"[1-9][0-9]{0,9}")


def vlan_vid(central: CentralController, text: str, field: str = "vlan_vid") -> int:
    """Return the id of the configured VLAN with an id or name; raise HttpRefusedError (404) if there is none."""
    vlans = central.config.vlans
    vid = _number(text)
    if vid in vlans:
        return vid
    named = [] if vid else [vlan.vlan_vid for vlan in vlans.values() if vlan.name == text]
    if not named:
        raise not_found(field, text, _no_vlan(vlans, text))
    return named[0]


def _no_vlan(vlans: Mapping[int, Vlan], text: str) -> str:
    """Return the problem of an unknown VLAN id or name."""
    for filed in service().settings.file.config.vlans.values():
        if filed.name == text:
            return f"is not a VLAN here any more: VLAN {filed.vlan_vid} was renamed {vlans[filed.vlan_vid].name}"
    near = "" if _number(text) else near_name(text, [vlan.name for vlan in vlans.values()])
    return f"is not a VLAN here{near}; the VLANs are {listed(vlans)}"


def historic_vlan(central: CentralController, text: str | None) -> int | None:
    """Return the id of a VLAN, which may be no longer configured; None for None. Raises HttpRefusedError (404)."""
    if text is None or MIN_VLAN_VID <= _number(text) <= MAX_VLAN_VID:
        return None if text is None else _number(text)
    return vlan_vid(central, text, "vlan")


def historic_port(central: CentralController, switch: str | None, text: str | None) -> int | None:
    """Return the number of a port, which may be no longer configured; None for None.

    Raises HttpRefusedError (404) for a name that no port of the switch has.
    """
    if text is None or _number(text):
        return None if text is None else _number(text)
    return port_of(central, switch or "", text, "port")[1].port_no


def change(settings: Settings, text: str) -> StoredChange:
    """Return the change of a revision, with its items; raise HttpRefusedError (404) if it is not stored."""
    known = text.isascii() and text.isdecimal() and len(text) < 20
    found = settings.change_of(min(int(text), MAX_REVISION)) if known else None
    if found is None:
        raise not_found("revision", text, "is not the number of a stored change: see /v1/history")
    return found


def check_path(central: CentralController, path: Mapping[str, str]) -> None:
    """Raise HttpRefusedError (404) unless the VLAN or the VN of a path exists."""
    if path.keys() == {"vlan_vid"}:
        vlan_vid(central, path["vlan_vid"])
    elif path.keys() == VnPath.model_fields.keys():
        vn_row(central, VnPath(**path))


class Ids:
    """Ids by the names in a body, each looked up once. Raises InvalidValueError with the key of the body."""

    def __init__(self, central: CentralController) -> None:
        self._central = central
        self._vids: dict[str, int] = {}
        self._ports: dict[tuple[str, str], int] = {}

    def vlan_vid(self, key: str, name: str) -> int:
        """Return the id of a VLAN."""
        if name not in self._vids:
            with _as_value(key, name):
                self._vids[name] = vlan_vid(self._central, name)
        return self._vids[name]

    def port_no(self, key: str, switch: str, name: str) -> int:
        """Return the number of an edge port."""
        if (switch, name) not in self._ports:
            with _as_value(key, name):
                self._ports[switch, name] = port_of(self._central, switch, name)[1].port_no
        return self._ports[switch, name]


@contextmanager
def _as_value(key: str, value: str) -> Iterator[None]:
    """Turn the rejection of a path into InvalidValueError for a key of a body."""
    try:
        yield
    except HttpRefusedError as refusal:
        raise InvalidValueError(key, value, refusal.errors[0].reason) from refusal


def vn_row(central: CentralController, path: VnPath) -> IntArray:
    """Return the row of a VN, shape (1,); raise HttpRefusedError (404) naming the unknown part of the path."""
    vid = vlan_vid(central, path.vlan_vid)
    switch, port = port_of(central, path.switch, path.port_no)
    row = central.vns.row_of(vid, switch.dpid, port.port_no)
    if row is None:
        reason = f"is not on port {port.label} of switch {switch.name}; its VLANs are {listed(port.vlan_vids)}"
        raise not_found("vlan_vid", path.vlan_vid, reason)
    return np.array([row], dtype=np.int64)


def vn_row_of(central: CentralController, text: str, field: str) -> int:
    """Return the row of the VN ``VLAN/SWITCH/PORT``; raise HttpRefusedError (404) if there is none."""
    parts = text.split("/")
    if len(parts) != 3:
        raise not_found(field, text, "is not VLAN/SWITCH/PORT, such as 10/s1/3")
    path = VnPath(vlan_vid=parts[0], switch=parts[1], port_no=parts[2])
    return int(vn_row(central, path)[0])


def port_of(central: CentralController, name: str, text: str, field: str = "port_no") -> tuple[Switch, EdgePort]:
    """Return an edge port; raise HttpRefusedError (404) naming the unknown part of the path.

    ``name`` is the switch. ``text`` is the port's number, its interface (as the switch names it) or its name, in this
    order; digits are always the number.
    """
    switch = _switch(central, name)
    port_no = _number(text)
    found = [switch.ports[port_no]] if port_no in switch.ports else []
    if not port_no:
        found = [port for port in switch.ports.values() if text == port.interface]
        found = found or [port for port in switch.ports.values() if text == port.name]
    if not found:
        near = "" if port_no else near_name(text, [port.name for port in switch.ports.values()])
        labels = [port.label for port in switch.ports.values()]
        reason = f"is not an edge port of switch {switch.name}{near}; its edge ports are {listed(labels)}"
        raise not_found(field, text, reason)
    return switch, found[0]


def ports(central: CentralController, switch: str | None, name: str | None = None) -> list[tuple[Switch, EdgePort]]:
    """Return the edge ports of a switch and of a name, in the order of the configuration; None means all.

    Raises HttpRefusedError (404) for an unknown switch.
    """
    if switch is None:
        found = list(central.config.ports())
    else:
        one = _switch(central, switch)
        found = [(one, port) for port in one.ports.values()]
    return found if name is None else [(one, port) for one, port in found if name in (port.name, port.interface)]


def override_vlan(settings: Settings, text: str) -> int:
    """Return the id of a VLAN that is configured or has an override; raise HttpRefusedError (404) if there is none."""
    vid = _number(text)
    override = settings.overrides.vlans.get(vid)
    return vid if override is not None and override.values else vlan_vid(settings.central, text)


def override_vn(settings: Settings, central: CentralController, path: VnPath) -> VnName:
    """Return the name of a VN that is configured or has an override; raise HttpRefusedError (404) if there is none."""
    name = VnName(_number(path.vlan_vid), path.switch, _number(path.port_no))
    orphaned = settings.overrides.orphaned.get(name)  # an override of a VN that is not configured
    if orphaned is not None and orphaned.values:
        return name
    return settings.file.names[int(vn_row(central, path)[0])]


def vn_rows(central: CentralController, vlan: str | None, switch: str | None) -> IntArray:
    """Return the rows of the VNs of a VLAN and of a switch; None means all. Raises HttpRefusedError (404)."""
    vn_mask = np.ones(len(central.vns), dtype=np.bool_)
    if vlan is not None:
        vn_mask &= central.vns.vlan_vid == vlan_vid(central, vlan, "vlan")
    if switch is not None:
        vn_mask &= central.vns.dpid == _switch(central, switch).dpid
    return np.flatnonzero(vn_mask)


def pair_rows(central: CentralController, vlan: str | None, switch: str | None) -> IntArray:
    """Return the rows of the pairs whose senders ``vn_rows`` selects. Raises HttpRefusedError (404)."""
    return np.flatnonzero(np.isin(central.state.entries.sender, vn_rows(central, vlan, switch)))


def pair_row(central: CentralController, path: PairPath) -> int:
    """Return the row of a pair; raise HttpRefusedError (404) naming the unknown part of the path."""
    ends = [
        VnPath(vlan_vid=path.vlan_vid, switch=switch, port_no=port_no)
        for switch, port_no in (
            (path.sender_switch, path.sender_port_no),
            (path.receiver_switch, path.receiver_port_no),
        )
    ]
    sender, receiver = (int(vn_row(central, end)[0]) for end in ends)
    entries = central.state.entries
    found = np.flatnonzero((entries.sender == sender) & (entries.receiver == receiver))
    if not len(found):
        text = f"{central.fabric.location_name(sender)} to {central.fabric.location_name(receiver)}"
        raise not_found("pair", text, f"is not active in VLAN {path.vlan_vid}; /v1/pairs lists the active pairs")
    return int(found[0])


def pairs_of_vn(central: CentralController, vn: int) -> IntArray:
    """Return the rows of the pairs with a VN as sender or receiver."""
    entries = central.state.entries
    return np.flatnonzero((entries.sender == vn) | (entries.receiver == vn))


def _switch(central: CentralController, name: str) -> Switch:
    """Return a switch by name; raise HttpRefusedError (404) if it is not configured."""
    switch = central.config.switches.get(name)
    if switch is None:
        raise not_found("switch", name, f"is not a switch here; the switches are {listed(central.config.switches)}")
    return switch


def _number(text: str) -> int:
    """Return the number in a part of a path, in canonical form only; 0, which names nothing, for anything else."""
    return int(text) if _NUMBER.fullmatch(text) else 0
