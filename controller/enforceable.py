"""What can be enforced at each edge port of a fabric now, and what has changed of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.capabilities import (
    HOPELESS,
    NOT_CONNECTED,
    Enforceability,
    Verdict,
    enforceability,
    shown_ports,
    told_apart,
)
from controller.errors import InvalidValueError
from controller.events import EventKind

if TYPE_CHECKING:
    from controller.fabric_state import FabricState

# What is found out of a switch comes piece by piece: told is what has stood for so long.
STANDS_S = 1.5


@dataclass
class ToldVerdicts:
    """What was last told of each switch's ports, and what was last seen of them and since when."""

    told: dict[int, Mapping[int, Enforceability]] = field(default_factory=dict)
    seen: dict[int, tuple[Mapping[int, Enforceability], float]] = field(default_factory=dict)


def of_switch(fabric: FabricState, dpid: int) -> dict[int, Enforceability]:
    """Return what can be enforced at each edge port of a switch of the configuration, by port number."""
    record = fabric.switches[dpid]
    ports = record.switch.ports
    if not record.connected:
        return dict.fromkeys(ports, NOT_CONNECTED)
    unlimited = _unlimited_vlans(fabric, dpid)
    return {
        port_no: enforceability(
            record.can, port_no, (name for name, vids in unlimited.items() if vids & set(port.vlan_vids))
        )
        for port_no, port in ports.items()
    }


def of_port(fabric: FabricState, dpid: int, port_no: int) -> Enforceability:
    """Return what can be enforced at one edge port; raises InvalidValueError when the configuration has none such."""
    record = fabric.switches.get(dpid)
    if record is None or port_no not in record.switch.ports:
        raise InvalidValueError("port_no", f"{dpid:016x}:{port_no}", "is not an edge port of the configuration")
    return of_switch(fabric, dpid)[port_no]


def counts(fabric: FabricState) -> dict[str, int]:
    """Return how many edge ports have each verdict."""
    verdicts = Counter(one.verdict for dpid in fabric.switches for one in of_switch(fabric, dpid).values())
    return {str(verdict): verdicts[verdict] for verdict in Verdict}


def note_changes(fabric: FabricState, now_s: float) -> None:
    """Note an event for each switch of which other things can be enforced than was told last."""
    verdicts = fabric.verdicts
    for dpid, record in fabric.switches.items():
        if not record.connected:
            verdicts.seen.pop(dpid, None)  # switch-down says it; when it is back, what is told is told anew
            verdicts.told.pop(dpid, None)
            continue
        now = of_switch(fabric, dpid)
        last, since_s = verdicts.seen.get(dpid, (None, now_s))
        if now != last:
            verdicts.seen[dpid] = (now, now_s)
        elif now != verdicts.told.get(dpid) and now_s - since_s >= STANDS_S:
            verdicts.told[dpid] = now
            for verdict, ports in told_apart(now):
                text = f"switch {record.switch.name} ({dpid:016x}), port {shown_ports(ports)}: enforceable: {verdict}"
                fabric.note(EventKind.ENFORCEABLE, text, now_s)


def _unlimited_vlans(fabric: FabricState, dpid: int) -> dict[str, set[int]]:
    """Return the VLANs at other switches whose senders are known not to be limited, by the switch's name."""
    return {
        record.switch.name: {vid for port in record.switch.ports.values() for vid in port.vlan_vids}
        for other, record in fabric.switches.items()
        if other != dpid and record.connected and record.can.limits.finding in HOPELESS
    }
