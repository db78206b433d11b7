"""What an earlier run of the controller left in a switch's tables, read back into hosts and pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from controller.fabric.topology import PortId
from controller.forwarding.desired_flows import FlowKey, flow_key
from controller.forwarding.hosts_and_paths import Network
from controller.forwarding.pairs import Host, Pair
from controller.forwarding.pipeline import OWN_COOKIE, OWN_COOKIE_MASK, Table
from controller.openflow.flows import Flow, UnknownFlow
from controller.openflow.meters import METER_CONFIG


def is_own(flow: Flow | UnknownFlow) -> TypeGuard[Flow]:
    """Return whether an entry is the controller's; anybody else's is never touched."""
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


def host_of_pair(flow: Flow) -> Host | None:
    """Return the host that a metered entry of RATE_CONTROL leads to, or None."""
    match = flow.match
    if flow.table_id != Table.RATE_CONTROL or flow.meter_id is None or match.eth_dst_mask is not None:
        return None
    return None if match.vlan_vid is None or match.eth_dst is None else Host(match.vlan_vid, match.eth_dst)


def entries_by_host(flows: Iterable[Flow], knows: Callable[[Host], bool]) -> dict[Host, list[Flow]]:
    """Return the metered entries of RATE_CONTROL that lead to hosts nobody knows, by host."""
    entries: defaultdict[Host, list[Flow]] = defaultdict(list)
    for flow in flows:
        host = host_of_pair(flow)
        if host is not None and not knows(host):
            entries[host].append(flow)
    return dict(entries)


@dataclass(slots=True)
class Awaiting:
    """What a switch held, when it connected, for pairs whose receivers were not known: entries, and all its meters.

    Their meters stand as they were set last, and nobody changes them, until the receiver's switch has come as well.
    """

    entries: dict[Host, list[Flow]] = field(default_factory=dict)
    meters: NDArray[np.void] = field(default_factory=lambda: np.empty(0, METER_CONFIG))

    def take(self, knows: Callable[[Host], bool]) -> list[Flow]:
        """Return the entries to hosts that are known by now, each once."""
        known = [host for host in self.entries if knows(host)]
        return [flow for host in known for flow in self.entries.pop(host)]


def adopted_pair(flow: Flow, network: Network, dpid: int) -> Pair | None:
    """Return the pair that a metered entry of RATE_CONTROL stands for, or None if its ends are not known."""
    host, in_port = host_of_pair(flow), flow.match.in_port
    return None if host is None or in_port is None else network.pair_of(host, PortId(dpid, in_port))
