"""States of a switch's edge ports: up, down or absent, and whether each is the intended port.

A number is not an identity: a switch may give it to another interface. So a port with an unexpected name carries
nothing (it is fenced) until the name is right again, or an operator expects the new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from controller.fabric.config_model import ANY_NAME, Switch
from controller.openflow.multipart import PortDesc

KBPS = 1000
MAX_NAME_BYTES = 15
"""the length of names in ofp_port of OpenFlow 1.3 (7.2.1): longer ones are truncated"""
ABSENT = "the switch has no such port"


@dataclass(frozen=True, slots=True)
class PortState:
    """An edge port as its switch describes it; ``fence`` is the reason why it carries nothing, "" if it does not.

    ``name`` is None and ``speed_bps`` is 0 if the switch does not report them. ``number`` is the switch's number of a
    port configured by name, None if it has none, or the number of any other port.
    """

    state: Literal["up", "down", "absent"]
    name: str | None = None
    speed_bps: int = 0
    fence: str = ""
    number: int | None = None


def cut_name(name: str) -> str:
    """Return a name as truncated by OpenFlow."""
    return name.encode()[:MAX_NAME_BYTES].decode("utf-8", "backslashreplace")


def is_cut(name: str) -> bool:
    """Return whether a name is so long that it may have been cut."""
    return len(name.encode()) >= MAX_NAME_BYTES


def port_states(switch: Switch, ports: Mapping[int, PortDesc], known: Mapping[int, str]) -> dict[int, PortState]:
    """Return the state of each edge port of a switch with these ``ports``, by number.

    1) A missing port is absent, and fenced: a port that returns with its number may be another one.
    2) A port is fenced if its name differs from the configuration's (``expect``), or from the one ``known`` from
       before.
    3) A port is fenced if another port has the same name, and the name was truncated or is all that the configuration
       knows of the port, since the two cannot be told apart.
    4) Ports configured by name are found by their names. Two configured ports that are one port of the switch are
       fenced.
    """
    named = Counter(port.name for port in ports.values())
    number_of = {port.name: port_no for port_no, port in ports.items()}
    numbers = {
        port_no: port_no if edge.interface is None else number_of.get(cut_name(edge.interface))
        for port_no, edge in switch.ports.items()
    }
    claims = Counter(numbers.values())
    states = {}
    for port_no, edge in switch.ports.items():
        number = numbers[port_no]
        port = None if number is None else ports.get(number)
        if port is None:  # 1
            states[port_no] = PortState("absent", fence=ABSENT)
            continue
        expected, fence = known.get(port_no) if edge.expect is None else edge.expect, ""
        if claims[number] > 1:  # 4
            fence = f"{claims[number]} ports of the configuration are port {number} of the switch"
        elif edge.expect != ANY_NAME:
            if edge.interface is None and expected and cut_name(expected) != port.name:  # 2
                fence = f"it is {port.name!r} where {expected!r} is expected"
                fence += f"; expect: {port.name!r} lets it pass" if port.name else ""
            elif named[port.name] > 1 and (is_cut(port.name) or edge.interface is not None):  # 3
                fence = f"{named[port.name]} ports have the name {port.name!r}"
                fence += f", cut at {MAX_NAME_BYTES} characters" if is_cut(port.name) else ""
        bound = number if edge.interface is not None and not fence else None
        states[port_no] = PortState("up" if port.up else "down", port.name, port.curr_speed_kbps * KBPS, fence, bound)
    return states
