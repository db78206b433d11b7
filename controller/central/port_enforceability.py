"""What can be enforced at each edge port of a fabric now, and events for changes."""

from __future__ import annotations

from collections import Counter

import numpy as np

from controller.capability.capabilities import (
    NOT_CONNECTED,
    UNUSABLE,
    PortVerdicts,
    Verdict,
    enforceability,
    format_port_ranges,
    group_by_verdict,
)
from controller.central.fabric_state import FabricState
from controller.events import EventKind
from controller.limits.link_headroom import MAX_PROMISED, headroom_shortages
from controller.policy.policy_groups import need_headroom

Unlimited = tuple[tuple[int, str, frozenset[int]], ...]

# Capabilities are found step by step. A verdict is reported once it has been stable for this time.
DEBOUNCE_S = 1.5


def switch_verdicts(fabric: FabricState, dpid: int) -> PortVerdicts:
    """Return what can be enforced at each edge port of a switch of the configuration, by port number.

    The result is the same object until there is new evidence, which need not change a verdict.
    """
    return _switch_verdicts(fabric, dpid, _unlimited(fabric))


def all_verdicts(fabric: FabricState) -> dict[int, PortVerdicts]:
    """Return what can be enforced at all edge ports, by dpid and port number."""
    unlimited = _unlimited(fabric)
    return {dpid: _switch_verdicts(fabric, dpid, unlimited) for dpid in fabric.switches}


def verdict_counts(fabric: FabricState) -> dict[str, int]:
    """Return how many edge ports have each verdict."""
    counts = Counter(port.verdict for verdicts in all_verdicts(fabric).values() for port in verdicts.values())
    return {str(verdict): counts[verdict] for verdict in Verdict}


def note_changes(fabric: FabricState, now_s: float) -> None:
    """Record an event for each switch with changed verdicts, and for new headroom shortages."""
    verdicts = fabric.verdicts
    _note_headroom(fabric, now_s)
    for dpid, now in all_verdicts(fabric).items():
        record = fabric.switches[dpid]
        if now is not verdicts.shaped.get(dpid):
            verdicts.shaped[dpid] = now
            _note_shaped(fabric, dpid)
        if not record.connected:
            # The event switch-down covers it; verdicts are reported again when the switch returns.
            verdicts.seen.pop(dpid, None)
            verdicts.reported.pop(dpid, None)
            continue
        last, since_s = verdicts.seen.get(dpid, (None, now_s))
        if now is not last:
            since_s = since_s if now == last else now_s  # another object may have equal verdicts
            verdicts.seen[dpid] = (now, since_s)
        if now_s - since_s >= DEBOUNCE_S and now is not (reported := verdicts.reported.get(dpid)):
            verdicts.reported[dpid] = now
            for verdict, ports in group_by_verdict(now) if now != reported else ():
                where = format_port_ranges(ports, record.switch.ports)
                text = f"switch {record.switch.name} ({dpid:016x}), port {where}: enforceable: {verdict}"
                fabric.note(EventKind.ENFORCEABILITY_CHANGED, text, now_s, dpid=dpid)


def _note_headroom(fabric: FabricState, now_s: float) -> None:
    """Note links that receive limits fill so far that policies would not see drops; once per VN table."""
    control, verdicts = fabric.control, fabric.verdicts
    if verdicts.headroom_vns is control.vns:
        return
    verdicts.headroom_vns = control.vns
    needs_headroom = need_headroom(control.groups, len(control.vns))
    shortages = frozenset(headroom_shortages(control.vns, control.config.links, needs_headroom))
    for shortage in sorted(shortages - verdicts.short_of_headroom):
        promised, link = shortage.promised_bps / 1e6, shortage.link_bps / 1e6
        name = fabric.port_name(shortage.port)
        text = f"{name}: receive limits of {promised:.4g} of {link:.4g} Mbit/s of the only link before its switch: "
        text += f"drops there are invisible to policies; use at most {1 - MAX_PROMISED:.0%} of the link"
        fabric.note(EventKind.LINK_HEADROOM_SHORT, text, now_s, dpid=shortage.port.dpid)
    verdicts.short_of_headroom = shortages


def _note_shaped(fabric: FabricState, dpid: int) -> None:
    """Update, for the VNs of a switch, whether a queue or the senders' meters hold the receiver."""
    record, vns = fabric.switches[dpid], fabric.vns
    has_queue, sets_queues = vns.has_queue.copy(), record.switch.ovsdb is not None
    for row in np.flatnonzero(vns.dpid == dpid).tolist():
        has_queue[row] = record.capabilities.shapes(int(vns.port_no[row]), sets_queues=sets_queues)
    if (has_queue != vns.has_queue).any():
        fabric.control = fabric.control._replace(vns=vns.with_columns(has_queue=has_queue))


def _switch_verdicts(fabric: FabricState, dpid: int, unlimited: Unlimited) -> PortVerdicts:
    """Return the verdicts on a switch's ports, by port number; computed again only for new evidence."""
    record = fabric.switches[dpid]
    capabilities = record.capabilities
    inputs = (record.switch, record.connected, *capabilities.evidence, unlimited, fabric.agent_ports)
    last_inputs, last_verdicts = fabric.verdicts.made.get(dpid, (None, {}))
    if inputs == last_inputs:
        return last_verdicts
    verdicts = dict.fromkeys(record.switch.ports, NOT_CONNECTED)
    for port_no, port in record.switch.ports.items() if record.connected else ():
        # Another switch that cannot limit its senders matters if it has VNs in a VLAN of the port.
        vids = set(port.vlan_vids)
        unlimited_names = (name for other, name, other_vids in unlimited if other != dpid and other_vids & vids)
        has_agent = (dpid, port_no) in fabric.agent_ports
        verdicts[port_no] = enforceability(capabilities, port_no, unlimited_names, agent=has_agent)
    fabric.verdicts.made[dpid] = (inputs, verdicts)
    return verdicts


def _unlimited(fabric: FabricState) -> Unlimited:
    """Return the switches that cannot limit their senders: dpid, name, and the VLANs of their VNs."""
    return tuple(
        (dpid, record.switch.name, frozenset(vid for port in record.switch.ports.values() for vid in port.vlan_vids))
        for dpid, record in fabric.switches.items()
        if record.connected and record.capabilities.limits.finding in UNUSABLE
    )
