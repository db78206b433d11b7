"""Switches without a controller: they forward by address; static limits are meters and queues set once.

The counterpart of Open vSwitch's own forwarding (NORMAL) after learning, and of ``ovs.static_limits``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from controller.fabric.topology import PortId
from controller.openflow.actions import Output, SetQueue
from controller.openflow.constants import FlowModCommand, MeterModCommand
from controller.openflow.flows import Flow, encode_flow_mods
from controller.openflow.match import Match
from controller.openflow.meters import encode_meter_mods
from controller.switch.desired_queues import port_queues
from experiments.model.fabric import ModelFabric, mac_of
from experiments.ovs.static_limits import QueueRates, Share
from topologies.fabric import PhysicalNode, VirtualNode

FORWARD_PRIORITY, LIMIT_PRIORITY = 10, 100


def install_forwarding(model: ModelFabric) -> None:
    """Give every switch a flow entry per VN, towards the VN along the shortest path."""
    for vn in model.received:
        target = model.edge_port(vn)
        for dpid, port_no in next_ports(model, target).items():
            _add(model, dpid, FORWARD_PRIORITY, Match(vlan_vid=vn.vlan_vid, eth_dst=mac_of(vn)), port_no)


def install_shares(model: ModelFabric, shares: Sequence[Share], queues: QueueRates) -> None:
    """Install fixed limits as meters at the senders' edge switches, and a queue per VLAN at the receivers'."""
    install_forwarding(model)
    for meter_id, share in enumerate(shares, start=1):
        at, target = model.edge_port(share.sender), model.edge_port(share.receiver)
        set_meter(model, at.dpid, meter_id, share.rate_kbps, share.burst_kbits)
        vid = share.sender.vlan_vid
        match = Match(in_port=at.port_no, vlan_vid=vid, eth_dst=mac_of(share.receiver))
        _add(model, at.dpid, LIMIT_PRIORITY, match, next_ports(model, target)[at.dpid], meter_id, vid)
    for pn, limits_bps in queues.items():
        set_static_queues(model, limits_bps, pn)


def install_metered_flow(
    model: ModelFabric, sender: VirtualNode, receiver: VirtualNode, meter_id: int, rate_kbps: int, burst_kbits: int
) -> None:
    """Forward by address, with a meter for the traffic from one VN to another."""
    install_forwarding(model)
    at = model.edge_port(sender)
    set_meter(model, at.dpid, meter_id, rate_kbps, burst_kbits)
    match = Match(in_port=at.port_no, vlan_vid=sender.vlan_vid, eth_dst=mac_of(receiver))
    towards = next_ports(model, model.edge_port(receiver))
    _add(model, at.dpid, LIMIT_PRIORITY, match, towards[at.dpid], meter_id)


def set_static_queues(model: ModelFabric, limits_bps: Mapping[int, int], pn: PhysicalNode) -> None:
    """Give a PN's edge port a queue per VLAN, with its limit as minimum and maximum."""
    queues = port_queues(pn.port_no, pn.link_rate_bps, dict(limits_bps), borrows=False).queues
    port = PortId(model.fabric.switch(pn.switch).dpid, pn.port_no)
    model.set_queues({port: {q.queue_id: (q.min_rate_bps, q.max_rate_bps) for q in queues}})


def set_meter(
    model: ModelFabric,
    dpid: int,
    meter_id: int,
    rate_kbps: int,
    burst_kbits: int,
    command: MeterModCommand = MeterModCommand.ADD,
) -> None:
    """Add a meter to a switch, or modify it."""
    model.switches[dpid].receive(encode_meter_mods(command, [meter_id], [rate_kbps], [burst_kbits], 0), model.now_s)


def next_ports(model: ModelFabric, target: PortId) -> dict[int, int]:
    """Return the output port towards an edge port of each switch, by dpid, along the fewest links.

    A breadth-first search from the edge port's switch.
    """
    port_by_dpid, to_visit = {target.dpid: target.port_no}, deque([target.dpid])
    while to_visit:
        dpid = to_visit.popleft()
        for near_end, far_end in model.links.items():
            if near_end.dpid == dpid and far_end.dpid not in port_by_dpid:
                port_by_dpid[far_end.dpid] = far_end.port_no
                to_visit.append(far_end.dpid)
    return port_by_dpid


def _add(
    model: ModelFabric,
    dpid: int,
    priority: int,
    match: Match,
    port_no: int,
    meter_id: int | None = None,
    queue_id: int | None = None,
) -> None:
    """Add a flow entry that forwards matching frames to a port, through a meter and into a queue if given."""
    queue = () if queue_id is None else (SetQueue(queue_id),)
    flow = Flow(0, priority, match, 0, meter_id=meter_id, actions=(*queue, Output(port_no)))
    model.switches[dpid].receive(encode_flow_mods([(FlowModCommand.ADD, flow)], 0), model.now_s)
