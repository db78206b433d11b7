"""States of edge ports: up, down, or fenced because the port may be the wrong one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from controller.central.fabric_state import FabricState
from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.forwarding.desired_flows import plan_flows
from controller.forwarding.flow_table import pack_key
from controller.switch.port_entries import flows_of_ports
from controller.switch.port_states import ABSENT, PortState
from controller.switch.switch_record import SwitchRecord
from controller.units import format_rate

_KINDS = {"up": EventKind.PORT_UP, "down": EventKind.PORT_DOWN, "absent": EventKind.PORT_ABSENT}


def apply_port_states(fabric: FabricState, dpid: int, states: Mapping[int, PortState], now_s: float) -> None:
    """Set the states of a switch's edge ports, by number; a fenced port carries nothing from here on.

    The flow entries that let frames in or out there are deleted in the very next update, before any other change.
    """
    record, network = fabric.switches[dpid], fabric.network
    edges, bound = record.switch.ports, network.numbers.bound(dpid)
    fences = {port_no for port_no, state in states.items() if state.fence}
    known = {port.port_no for port in network.fenced if port.dpid == dpid}
    number_of = {port_no: states[port_no].number for port_no in states if edges[port_no].interface is not None}
    moved = {port_no for port_no in bound.keys() | number_of.keys() if bound.get(port_no) != number_of.get(port_no)}
    lost = {network.numbers.number(PortId(dpid, port_no)) for port_no in (fences - known) | (moved & bound.keys())}
    for port_no in moved:
        network.renumber(PortId(dpid, port_no), None)
    for port_no in fences:
        network.fence(PortId(dpid, port_no), True)
    if record.connected and lost:
        _cut(fabric, dpid, lost)
    for port_no in moved:
        if (number := number_of.get(port_no)) is not None:
            network.paths.port_down(PortId(dpid, number), now_s)  # it is an edge port now, so the former link is gone
            network.renumber(PortId(dpid, port_no), number)
    for port_no in (known | moved) - fences:
        network.fence(PortId(dpid, port_no), False)
    _note(fabric, dpid, states, now_s)
    record.ports = {
        port_no: (state, record.ports[port_no][1])
        if port_no in record.ports and record.ports[port_no][0].state == state.state
        else (state, now_s)
        for port_no, state in states.items()
    }


def faults(record: SwitchRecord) -> list[str]:
    """Return the faults of a switch's edge ports: the ports that carry nothing, and why.

    A port that is down is no fault.
    """
    states = {port_no: state for port_no, (state, _) in sorted(record.ports.items())}
    label = {port_no: port.label for port_no, port in record.switch.ports.items()}
    absent = [label[port_no] for port_no, state in states.items() if state.state == "absent"]
    found = [f"has no port {', '.join(absent)}"] if absent else []
    fenced = [(label[port_no], state.fence) for port_no, state in states.items() if state.fence not in ("", ABSENT)]
    return found + [f"port {port} is fenced: {why}" for port, why in fenced]


def _cut(fabric: FabricState, dpid: int, port_nos: set[int]) -> None:
    """Queue the deletion of all flow entries of these ports."""
    record, desired = fabric.switches[dpid], fabric.network.desired.flows_at(dpid)
    keys = {pack_key(flow) for flow in flows_of_ports(record.installed, port_nos)}
    record.set_flows(plan_flows(desired, record.installed, keys))


def _note(fabric: FabricState, dpid: int, states: Mapping[int, PortState], now_s: float) -> None:
    """Record events for changed states, and for wrong states when a switch connects."""
    record = fabric.switches[dpid]

    def report(kind: EventKind, port_nos: Iterable[int], text: str) -> None:
        for port_no in fabric.events.limit_named(kind, np.array(sorted(port_nos), dtype=np.int64), now_s):
            name, state = f"{record.switch.name}:{record.switch.ports[port_no].label}", states[port_no]
            about = {"name": state.name, "why": state.fence, "speed": format_rate(state.speed_bps)}
            about["capacity"] = format_rate(record.switch.ports[port_no].capacity_bps)
            fabric.events.add(kind, f"port {name} {text.format(**about)}", now_s, None, record.switch.name, port_no)

    before = {port_no: record.ports[port_no][0] for port_no in states if port_no in record.ports}
    for state, kind in _KINDS.items():
        changed = [
            port_no
            for port_no, now in states.items()
            if now.state == state and (before[port_no].state != state if port_no in before else state == "absent")
        ]
        report(
            kind,
            changed,
            "is absent: nothing passes it until it returns" if state == "absent" else f"is {state}",
        )
    fenced = {no: now.fence for no, now in states.items() if now.fence not in ("", ABSENT)}
    was = {no: one.fence for no, one in before.items() if one.fence not in ("", ABSENT)}
    news = [port_no for port_no, why in fenced.items() if was.get(port_no) != why]
    report(EventKind.PORT_FENCED, news, "is fenced and carries nothing: {why}")
    report(
        EventKind.PORT_FREED,
        (no for no in was.keys() - fenced.keys() if not states[no].fence),
        "is {name!r}: frames pass",
    )
    slow = [port_no for port_no, now in states.items() if _is_slow(fabric, dpid, port_no, now)]
    news = [port_no for port_no in slow if not _is_slow(fabric, dpid, port_no, before.get(port_no))]
    report(EventKind.PORT_SLOW, news, "has a link of {speed}, below its capacity of {capacity}")


def _is_slow(fabric: FabricState, dpid: int, port_no: int, state: PortState | None) -> bool:
    """Return whether the switch reports a link speed below the port's capacity: guarantees cannot be kept.

    A higher speed means nothing: virtual interfaces report 10 Gb/s whatever they carry.
    """
    capacity_bps = fabric.switches[dpid].switch.ports[port_no].capacity_bps
    return state is not None and state.state == "up" and 0 < state.speed_bps < capacity_bps
