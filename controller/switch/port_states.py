"""What the edge ports of a switch are: up, down or absent, and whether each is the port that is meant.

A number is not an identity: a switch may give it to another interface. So a port that has another name than expected
carries nothing (it is fenced) until the name is right again, or an operator expects the other one.
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
"""what OpenFlow 1.3 has room for in ofp_port (7.2.1): longer names are cut"""
ABSENT = "the switch has no such port"


@dataclass(frozen=True, slots=True)
class PortState:
    """An edge port as its switch describes it; ``fence`` says why nothing passes it, and is empty if frames do.

    ``name`` is None and ``speed_bps`` is 0 where the switch says nothing of it. ``number`` is what the switch gives a
    port that is configured by name, None where it has none, and of any other port.
    """

    state: Literal["up", "down", "absent"]
    name: str | None = None
    speed_bps: int = 0
    fence: str = ""
    number: int | None = None


def cut_name(name: str) -> str:
    """Return a name as OpenFlow carries it."""
    return name.encode()[:MAX_NAME_BYTES].decode("utf-8", "backslashreplace")


def judge(switch: Switch, ports: Mapping[int, PortDesc], known: Mapping[int, str]) -> dict[int, PortState]:
    """Return the state of each edge port of a switch that has these ``ports``, by number.

    1) A port that is not there is absent, and fenced: what comes back by its number may be another one.
    2) One is fenced whose name is not the configuration's (``expect``), or not the one that is ``known`` from before.
    3) One is fenced whose name was cut and is another port's as well: nobody can tell which is which.
    4) Ports that the configuration names are found by their names. Two of the configuration's that are the same one
       of the switch are fenced.
    """
    cut = Counter(port.name for port in ports.values() if len(port.name.encode()) >= MAX_NAME_BYTES)
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
            elif cut[port.name] > 1:  # 3
                fence = f"{cut[port.name]} ports have the name {port.name!r}, cut at {MAX_NAME_BYTES} characters"
        bound = number if edge.interface is not None and not fence else None
        states[port_no] = PortState("up" if port.up else "down", port.name, port.curr_speed_kbps * KBPS, fence, bound)
    return states
