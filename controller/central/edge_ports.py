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
    edges, old_numbers = record.switch.ports, network.numbers.bound(dpid)
    must_fence = {port_no for port_no, state in states.items() if state.fence}
    was_fenced = {port.port_no for port in network.fenced if port.dpid == dpid}
    new_numbers = {port_no: states[port_no].number for port_no in states if edges[port_no].interface is not None}
    renumbered = {
        port_no
        for port_no in old_numbers.keys() | new_numbers.keys()
        if old_numbers.get(port_no) != new_numbers.get(port_no)
    }
    # The numbers on the switch at which the flow entries of these ports are, before the ports get other numbers.
    loses_flows = (must_fence - was_fenced) | (renumbered & old_numbers.keys())
    switch_numbers = {network.numbers.number(PortId(dpid, port_no)) for port_no in loses_flows}
    for port_no in renumbered:
        network.renumber(PortId(dpid, port_no), None)
    for port_no in must_fence:
        network.fence(PortId(dpid, port_no), True)
    if record.connected and switch_numbers:
        _delete_flows(fabric, dpid, switch_numbers)
    for port_no in renumbered:
        if (number := new_numbers.get(port_no)) is not None:
            network.paths.port_down(PortId(dpid, number), now_s)  # an edge port has no link to another switch
            network.renumber(PortId(dpid, port_no), number)
    for port_no in (was_fenced | renumbered) - must_fence:
        network.fence(PortId(dpid, port_no), False)
    _note(fabric, dpid, states, now_s)
    old_ports, record.ports = record.ports, {}  # by number: the state, and since when the port is up, down or absent
    for port_no, state in states.items():
        old_state, since_s = old_ports.get(port_no, (None, now_s))
        is_same = old_state is not None and old_state.state == state.state
        record.ports[port_no] = (state, since_s if is_same else now_s)


def faults(record: SwitchRecord) -> list[str]:
    """Return the faults of a switch's edge ports: the ports that carry nothing, and why.

    A port that is down is no fault.
    """
    states = {port_no: state for port_no, (state, _) in sorted(record.ports.items())}
    label = {port_no: port.label for port_no, port in record.switch.ports.items()}
    absent = [label[port_no] for port_no, state in states.items() if state.state == "absent"]
    absent_text = [f"has no port {', '.join(absent)}"] if absent else []
    fenced = [(label[port_no], state.fence) for port_no, state in states.items() if state.fence not in ("", ABSENT)]
    return absent_text + [f"port {port} is fenced: {why}" for port, why in fenced]


def _delete_flows(fabric: FabricState, dpid: int, port_nos: set[int]) -> None:
    """Queue the deletion of all flow entries of these ports."""
    record, desired = fabric.switches[dpid], fabric.network.desired.flows_at(dpid)
    keys = {pack_key(flow) for flow in flows_of_ports(record.installed, port_nos)}
    record.set_flows(plan_flows(desired, record.installed, keys))


def _note(fabric: FabricState, dpid: int, states: Mapping[int, PortState], now_s: float) -> None:
    """Record events for changed states, and for absent, fenced or slow ports when a switch connects."""
    record = fabric.switches[dpid]

    def report(kind: EventKind, port_nos: Iterable[int], text: str) -> None:
        for port_no in fabric.events.limit_named(kind, np.array(sorted(port_nos), dtype=np.int64), now_s):
            name, state = f"{record.switch.name}:{record.switch.ports[port_no].label}", states[port_no]
            values = {"name": state.name, "why": state.fence, "speed": format_rate(state.speed_bps)}
            values["capacity"] = format_rate(record.switch.ports[port_no].capacity_bps)
            fabric.events.add(kind, f"port {name} {text.format(**values)}", now_s, None, record.switch.name, port_no)

    before = {port_no: record.ports[port_no][0] for port_no in states if port_no in record.ports}
    for state, kind in _KINDS.items():
        # When a switch connects, only absent ports are reported.
        changed = [
            port_no
            for port_no, now in states.items()
            if now.state == state and (before[port_no].state != state if port_no in before else state == "absent")
        ]
        text = "is absent: nothing passes it until it returns" if state == "absent" else f"is {state}"
        report(kind, changed, text)
    fenced = {no: now.fence for no, now in states.items() if now.fence not in ("", ABSENT)}
    was_fenced = {no: old.fence for no, old in before.items() if old.fence not in ("", ABSENT)}
    newly_fenced = [port_no for port_no, why in fenced.items() if was_fenced.get(port_no) != why]
    report(EventKind.PORT_FENCED, newly_fenced, "is fenced and carries nothing: {why}")
    freed = [no for no in was_fenced.keys() - fenced.keys() if not states[no].fence]
    report(EventKind.PORT_FREED, freed, "is {name!r}: frames pass")
    slow = [port_no for port_no, now in states.items() if _is_slow(fabric, dpid, port_no, now)]
    newly_slow = [port_no for port_no in slow if not _is_slow(fabric, dpid, port_no, before.get(port_no))]
    report(EventKind.PORT_SLOW, newly_slow, "has a link of {speed}, below its capacity of {capacity}")


def _is_slow(fabric: FabricState, dpid: int, port_no: int, state: PortState | None) -> bool:
    """Return whether the switch reports a link speed below the port's capacity, at which guarantees cannot be kept.

    A higher speed is no evidence: virtual interfaces report 10 Gb/s whatever they carry.
    """
    capacity_bps = fabric.switches[dpid].switch.ports[port_no].capacity_bps
    return state is not None and state.state == "up" and 0 < state.speed_bps < capacity_bps
