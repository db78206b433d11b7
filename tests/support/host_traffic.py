"""Hosts that talk over fabrics in virtual time, and what their switches and controller then hold."""

from __future__ import annotations

from support.configs import fabric, star
from support.fabrics import Fabric, mac_of
from support.switches import Frame

from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.forwarding.pipeline import Table
from controller.openflow.flows import Flow

LEFT, RIGHT = PortId(1, 9), PortId(2, 9)
EDGES = {1: {1: [10, 20], 2: [10]}, 2: {1: [10, 20], 2: 20}}


def talk(net: Fabric, source, target, vlan_vid=10):
    """Two hosts say hello, and the first sends to the second until nothing is reported any more."""
    for end in (source, target):
        net.learn(mac_of(PortId(*end), vlan_vid), PortId(*end), vlan_vid)
    frame = Frame(
        mac_of(PortId(*target), vlan_vid), mac_of(PortId(*source), vlan_vid), net.tag(PortId(*source), vlan_vid)
    )
    while net.send(frame, PortId(*source)).reports:
        pass
    return frame


def entry_keys(central):
    entries = central.state.entries
    return {(central.vns.key(s), central.vns.key(r)) for s, r in zip(entries.sender, entries.receiver, strict=True)}


def of_pair(flow: Flow) -> bool:
    """Return whether an entry is the metered one of a pair."""
    match = flow.match
    addressed = match.eth_dst is not None and match.eth_dst_mask is None
    return flow.table_id == Table.RATE_CONTROL and flow.meter_id is not None and addressed


def rate_control_keys(switch, port_no=None):
    return [key for key, flow in switch.flows.items() if of_pair(flow) and port_no in (None, flow.match.in_port)]


def started(config=None, links=()):
    net = Fabric(config or star(4), links)
    net.start()
    return net


def two_switches(**sections):
    return started(fabric(EDGES, **sections), [(LEFT, RIGHT)])


def talking_fabric():
    """Two switches and what four pairs that talk have left there."""
    net = two_switches()
    for pair in (((1, 1), (2, 1)), ((2, 1), (1, 1)), ((1, 1), (1, 2))):
        talk(net, *pair)
    talk(net, (1, 1), (2, 2), 20)
    return net


def restarted(net: Fabric, config=None) -> Fabric:
    """A new controller over the switches as they stand; nothing is connected yet."""
    again = Fabric(config or net.config)
    again.switches, again.peers, again.now_s = net.switches, net.peers, net.now_s + 5.0
    return again


def contents(net):
    return {
        dpid: (dict(switch.flows), {i: meter.setting for i, meter in switch.meters.items()})
        for dpid, switch in net.switches.items()
    }


def told(net: Fabric, kind: EventKind) -> list[str]:
    """Return the texts of all events of a kind."""
    return [event.text for event in net.central.events.newer_than(0) if event.kind == kind]


def nothing_to_mend(net: Fabric) -> None:
    """An audit of each switch finds nothing to mend."""
    for dpid in net.switches:
        assert net.audit(dpid) == 0


def consistent(net: Fabric) -> None:
    """Tables and meters are what they should be, and an audit finds nothing to mend."""
    for dpid, switch in net.switches.items():
        assert switch.flows == dict(net.central.network.desired.flows_at(dpid))
        assert switch.meters.keys() == net.central.fabric.desired_meters(net.central.switches[dpid]).keys()
        assert net.audit(dpid) == 0
