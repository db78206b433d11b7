"""What an earlier run of the controller left in a switch's tables, read back into hosts and pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray
from controller.fabric.topology import PortId
from controller.forwarding.address_entries import KNOWN_SOURCE, PAIR, AddressRows, like
from controller.forwarding.flow_table import KEY, FlowTable
from controller.forwarding.hosts_and_paths import Network
from controller.forwarding.pairs import Host, Pair
from controller.forwarding.pipeline import Table
from controller.openflow.flows import Flow, UnknownFlow
from controller.openflow.meters import METER_CONFIG
from controller.switch.flow_listing import is_own

_TELLING = (Table.CLASSIFY, Table.RATE_CONTROL, Table.REPORT)


def sort_installed(flows: Iterable[Flow | UnknownFlow]) -> tuple[FlowTable, int]:
    """Return the entries that are ours, and how many belong to others (which are never touched)."""
    found = list(flows)
    ours = FlowTable(filter(is_own, found))
    return ours, sum(not is_own(flow) for flow in found)


def hosts_and_pairs(entries: FlowTable) -> tuple[AddressRows, AddressRows]:
    """Return the entries of LEARN that stand for hosts, and the metered ones of RATE_CONTROL that stand for pairs."""
    columns = entries.columns
    hosts, pairs = like(KNOWN_SOURCE, *columns)[1], like(PAIR, *columns)[1]
    return hosts, pairs.only(pairs.meter_id > 0)


def of_senders(entries: FlowTable) -> Iterator[Flow]:
    """Yield the metered entries of tables in which VNs have meters, but for those of pairs."""
    keys, meter_id = entries.columns
    named = np.isin(keys.view(np.uint8)[:: KEY.itemsize], _TELLING) & (meter_id > 0) & ~like(PAIR, keys, meter_id)[0]
    return (flow for packed in keys[named].tolist() if (flow := entries.flow(packed)) is not None)


def _no_rows() -> AddressRows:
    return hosts_and_pairs(FlowTable())[1]


@dataclass(slots=True)
class Awaiting:
    """What a switch held, when it connected, for pairs whose receivers were not known: entries, and all its meters.

    Their meters stand as they were set last, and nobody changes them, until the receiver's switch has come as well.
    """

    entries: AddressRows = field(default_factory=_no_rows)
    meters: NDArray[np.void] = field(default_factory=lambda: np.empty(0, METER_CONFIG))

    @classmethod
    def of(cls, pairs: AddressRows, meters: NDArray[np.void], knows: Callable[[Host], bool]) -> Awaiting:
        """Return what is awaited of these pairs: those to hosts that nobody knows."""
        return cls(pairs.only(~_known(pairs, knows)), meters)

    def take(self, knows: Callable[[Host], bool]) -> AddressRows:
        """Return the entries to hosts that are known by now, each once."""
        known = _known(self.entries, knows)
        taken, self.entries = self.entries.only(known), self.entries.only(~known)
        return taken


def _known(rows: AddressRows, knows: Callable[[Host], bool]) -> BoolArray:
    """Return which entries are of known hosts, (entries,)."""
    return np.array(rows.of_each("mac", lambda vlan_vid, mac: knows(Host(vlan_vid, mac))), dtype=np.bool_)


def adopted_pairs(rows: AddressRows, network: Network, dpid: int) -> list[Pair | None]:
    """Return the pair that each entry of a switch stands for, or None if its ends are not known."""
    senders = rows.of_each("in_port", lambda vlan_vid, port_no: network.sender_at(vlan_vid, PortId(dpid, port_no)))
    receivers = rows.of_each("mac", lambda vlan_vid, mac: network.vn_of(Host(vlan_vid, mac)))
    return [
        None if sender is None or receiver is None or sender == receiver else Pair(sender, receiver)
        for sender, receiver in zip(senders, receivers, strict=True)
    ]
