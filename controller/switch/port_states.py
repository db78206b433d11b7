"""What the edge ports of a switch are: up, down or absent, and whether each is the port that is meant.

A number is not an identity: a switch may give it to another interface. So a port that has another name than expected
carries nothing (it is fenced) until the name is right again, or an operator expects the other one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from controller.fabric.description import ANY_NAME, Switch
from controller.openflow.stats import PortDesc

KBPS = 1000
MOST_NAME_BYTES = 15
"""what OpenFlow 1.3 has room for in ofp_port (7.2.1): longer names are cut"""
ABSENT = "the switch has no such port"


@dataclass(frozen=True, slots=True)
class PortState:
    """An edge port as its switch describes it; ``fence`` says why nothing passes it, and is empty if frames do.

    ``name`` is None and ``speed_bps`` is 0 where the switch says nothing of it.
    """

    state: Literal["up", "down", "absent"]
    name: str | None = None
    speed_bps: int = 0
    fence: str = ""


def cut_name(name: str) -> str:
    """Return a name as OpenFlow carries it."""
    return name.encode()[:MOST_NAME_BYTES].decode("utf-8", "backslashreplace")


def judge(switch: Switch, ports: Mapping[int, PortDesc], known: Mapping[int, str]) -> dict[int, PortState]:
    """Return the state of each edge port of a switch that has these ``ports``, by number.

    1) A port that is not there is absent, and fenced: what comes back by its number may be another one.
    2) One is fenced whose name is not the configuration's (``expect``), or not the one that is ``known`` from before.
    3) One is fenced whose name was cut and is another port's as well: nobody can tell which is which.
    """
    cut = Counter(port.name for port in ports.values() if len(port.name.encode()) >= MOST_NAME_BYTES)
    states = {}
    for port_no, edge in switch.ports.items():
        port = ports.get(port_no)
        if port is None:  # 1
            states[port_no] = PortState("absent", fence=ABSENT)
            continue
        expected = known.get(port_no) if edge.expect is None else edge.expect
        fence = ""
        if edge.expect != ANY_NAME:
            if expected and cut_name(expected) != port.name:  # 2
                fence = f"it is {port.name!r} where {expected!r} is expected"
            elif cut[port.name] > 1:  # 3
                fence = f"{cut[port.name]} ports have the name {port.name!r}, cut at {MOST_NAME_BYTES} characters"
        states[port_no] = PortState("up" if port.up else "down", port.name, port.curr_speed_kbps * KBPS, fence)
    return states
