"""What an earlier run of the controller left in a switch's tables, read back into hosts and pairs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from controller.forwarding.network import Host, Network, Pair
from controller.forwarding.pipeline import OWN_COOKIE, OWN_COOKIE_MASK, Table
from controller.forwarding.topology import Port
from controller.openflow.flows import Flow, UnknownFlow
from controller.tables import FlowKey, flow_key


def is_own(flow: Flow | UnknownFlow) -> TypeGuard[Flow]:
    """Tell whether an entry is the controller's; anybody else's is never touched."""
    return flow.cookie & OWN_COOKIE_MASK == OWN_COOKIE and isinstance(flow, Flow)


def sort_installed(flows: Iterable[Flow | UnknownFlow]) -> tuple[dict[FlowKey, Flow], int]:
    """Return the entries that are ours, by key, and how many belong to others (which are never touched)."""
    ours: dict[FlowKey, Flow] = {}
    alien = 0
    for flow in flows:
        if is_own(flow):
            ours[flow_key(flow)] = flow
        else:
            alien += 1
    return ours, alien


def adopted_host(flow: Flow) -> Host | None:
    """Return the host that an entry of LEARN stands for, or None."""
    match = flow.match
    if flow.table_id != Table.LEARN or match.vlan_vid is None or match.eth_src is None:
        return None
    return Host(match.vlan_vid, match.eth_src)


def adopted_pair(flow: Flow, network: Network, dpid: int) -> Pair | None:
    """Return the pair that a metered entry of RATE_CONTROL stands for, or None if its ends are not known."""
    match = flow.match
    if flow.table_id != Table.RATE_CONTROL or flow.meter_id is None:
        return None
    if match.in_port is None or match.vlan_vid is None or match.eth_dst is None:
        return None
    return network.pair_of(Host(match.vlan_vid, match.eth_dst), Port(dpid, match.in_port))
