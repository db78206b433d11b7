"""Single values of a configuration file: the types of fields, and the functions that parse them from text."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WrapValidator

from controller import rooms
from controller.errors import InvalidValueError
from controller.fabric.value_checks import check_name
from controller.units import MAX_WEIGHT, MIN_WEIGHT, parse_rate

MIN_VLAN_VID, MAX_VLAN_VID = 1, 4094
# OpenFlow 1.3.5 section 7.2.1 (OFPP_MAX), 7.3.4.4 (OFPM_MAX); an idle timeout is a uint16 of seconds.
MAX_PORT_NO = 0xFFFF_FF00
MAX_METER_ID = 0xFFFF_0000
MAX_IDLE_TIMEOUT_S = 0xFFFF

_DPID_RULE = 'is not a dpid: write 16 hex digits in quotes ("0000000000000001"), or 0x1, or 1'
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]{1,15})?)\]|([A-Za-z0-9_.-]+)):([0-9]{1,5})")
_PASSIVE = re.compile(r"[0-9]{1,5}:(?:\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]{1,15})?\]|[A-Za-z0-9_.-]+)")
_VID_RANGE = re.compile(r"([0-9]{1,4})-([0-9]{1,4})")
_HEX_DPID = re.compile(r"0[xX][0-9A-Fa-f]{1,16}|[0-9A-Fa-f]{16}")


def parse_dpid(value: object) -> int:
    """Return a datapath id from 16 hex digits, ``0x..`` or a plain number."""
    text = value if isinstance(value, str) else ""
    if isinstance(value, int) and not isinstance(value, bool):
        if len(str(value)) == 16:
            raise InvalidValueError("dpid", value, "could be hex digits or a decimal number: put hex digits in quotes")
        dpid = value
    elif _HEX_DPID.fullmatch(text):
        dpid = int(text, 16)
    else:
        raise InvalidValueError("dpid", value, _DPID_RULE)
    if not 0 < dpid < 2**64:
        raise InvalidValueError("dpid", value, "is outside 1 to 2^64 - 1")
    return dpid


def parse_address(value: object) -> tuple[str, int]:
    """Return (host, TCP port) from ``HOST:PORT``; an IPv6 host is in brackets."""
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        reason = "is not HOST:PORT, such as 127.0.0.1:6653, [::1]:6653 or [fe80::1%eth0]:6653"
        raise InvalidValueError("listen", value, reason)
    if not 1 <= int(match[3]) <= 65535:
        raise InvalidValueError("listen", value, "has a TCP port outside 1 to 65535")
    return match[1] or match[2], int(match[3])


def _vids(value: object, check: Callable[[object], int]) -> range:
    """Return the VLAN ids in an item of ``trunk``, such as ``10-20``; ``check`` validates a single id."""
    match = _VID_RANGE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        vid = check(value)
        return range(vid, vid + 1)
    if not MIN_VLAN_VID <= int(match[1]) <= int(match[2]) <= MAX_VLAN_VID:
        raise InvalidValueError("trunk", value, f"is not FIRST-LAST within {MIN_VLAN_VID} to {MAX_VLAN_VID}")
    return range(int(match[1]), int(match[2]) + 1)


def check_network(value: object) -> str:
    """Return an IP address, or a network such as ``192.0.2.0/24``, as text in canonical form."""
    try:
        if isinstance(value, str):
            return str(ipaddress.ip_network(value))
        reason = "is not text"
    except ValueError as error:
        reason = str(error).removeprefix(repr(value)).removeprefix(str(value)).strip()
    raise InvalidValueError("network", value, f"is no IP address and no network such as 192.0.2.0/24 ({reason})")


def check_ovsdb(value: object) -> str:
    """Return an OVSDB address in Open vSwitch's form; at ``ptcp:`` and ``pssl:`` addresses the controller listens."""
    scheme, _, rest = value.partition(":") if isinstance(value, str) else ("", "", "")
    if scheme in ("ptcp", "pssl") and _PASSIVE.fullmatch(rest):
        ovsdb_endpoint(f"{scheme}:{rest}")
        return f"{scheme}:{rest}"
    if (scheme == "unix" and rest.startswith("/")) or (scheme in ("tcp", "ssl") and _ADDRESS.fullmatch(rest)):
        if scheme != "unix":
            parse_address(rest)
        return f"{scheme}:{rest}"
    forms = "unix:/PATH, tcp:HOST:PORT, ssl:HOST:PORT, or ptcp:PORT:HOST or pssl:PORT:HOST to listen there"
    raise InvalidValueError("ovsdb", value, f"is not an OVSDB address: {forms}")


def ovsdb_endpoint(address: str) -> tuple[str, int] | None:
    """Return the (host, TCP port) at which the controller listens for databases, None for an address to connect to."""
    scheme, _, rest = address.partition(":")
    port, _, host = rest.partition(":")
    return parse_address(f"{host}:{port}") if scheme in ("ptcp", "pssl") else None


def _check_path(value: object) -> object:
    if isinstance(value, str) and not value.isprintable():
        raise InvalidValueError("path", value, "has a character that cannot be printed")
    return value


def _check_whole_number(value: object) -> object:
    if isinstance(value, bool):  # which would count as 1 or 0
        raise InvalidValueError("number", value, "is not a whole number")
    return value


def _parse_rate(value: object) -> int:
    return parse_rate(value)  # parse_rate's second parameter is a key, not what pydantic would pass there


def of_room(name: str, but: object) -> AfterValidator:
    """Return a validator that rejects all values except ``but`` if a room (``controller.rooms``) is not installed."""

    def check(value: object) -> object:
        if value != but:
            rooms.check(name, name, value)
        return value

    return AfterValidator(check)


@dataclass(frozen=True, slots=True)
class SyntaxHint:
    """The form of a field's values, for the reference; pydantic ignores it."""

    text: str


Rate = Annotated[int, BeforeValidator(_parse_rate), SyntaxHint("a rate")]
Dpid = Annotated[int, BeforeValidator(parse_dpid), SyntaxHint("16 hex digits in quotes, or `0x1`, or `1`")]
Name = Annotated[str, BeforeValidator(check_name), SyntaxHint("a name")]
Interface = Annotated[
    str,
    StringConstraints(min_length=1, max_length=255),
    BeforeValidator(_check_path),
    SyntaxHint("an interface's name"),
]
# strict mode would reject the tuple that the validator returns
Listen = Annotated[Any, BeforeValidator(parse_address), SyntaxHint("HOST:PORT")]
Ovsdb = Annotated[
    str,
    BeforeValidator(check_ovsdb),
    SyntaxHint("`unix:/PATH`, `tcp:HOST:PORT`, `ssl:HOST:PORT`, `ptcp:PORT:HOST` or `pssl:PORT:HOST`"),
]
Network = Annotated[str, BeforeValidator(check_network), SyntaxHint("an IP address or network")]
VlanVid = Annotated[int, Field(ge=MIN_VLAN_VID, le=MAX_VLAN_VID), SyntaxHint("a VLAN")]
TrunkVlans = Annotated[
    int,
    Field(ge=MIN_VLAN_VID, le=MAX_VLAN_VID),
    WrapValidator(_vids),
    SyntaxHint("a VLAN, or those of the file in a range such as `10-200`"),
]
Algorithm = Annotated[str, StringConstraints(min_length=1, max_length=63), SyntaxHint("the name of an algorithm")]
Parameters = Annotated[dict[str, Any], SyntaxHint("such as `{d: 2}`")]
Codepoint = Annotated[Literal[1, 2], BeforeValidator(_check_whole_number)]
Weight = Annotated[float, Field(ge=MIN_WEIGHT, le=MAX_WEIGHT)]
SwitchPort = Annotated[str, SyntaxHint("SWITCH:PORT")]
FilePath = Annotated[
    str, StringConstraints(min_length=1, max_length=4095), BeforeValidator(_check_path), SyntaxHint("a path")
]
