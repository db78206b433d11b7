"""Adoption: what an earlier run of the controller left in a switch's tables, read back into hosts and pairs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, IntArray
from controller.forwarding.flow_table import KEY, FlowTable
from controller.forwarding.forwarding_state import ForwardingState
from controller.forwarding.host_flow_columns import KNOWN_SOURCE, PAIR, HostFlows, select_like
from controller.forwarding.pairs import Host
from controller.forwarding.pipeline import Table
from controller.openflow.flows import Flow, UnknownFlow
from controller.openflow.meters import METER_CONFIG
from controller.switch.flow_stats_reader import is_own
from controller.switch.meters.meter_settings import MeterSettingsTable

NO_ROW = -1
# The tables with flow entries that name meters of VNs.
_VN_METER_TABLES = (Table.CLASSIFY, Table.RATE_CONTROL, Table.COUNT, Table.PACKET_IN)


def split_own_flows(flows: Iterable[Flow | UnknownFlow]) -> tuple[FlowTable, int]:
    """Return the controller's flow entries, and the number of foreign ones (which are never changed)."""
    all_flows = list(flows)
    return FlowTable(filter(is_own, all_flows)), sum(not is_own(flow) for flow in all_flows)


def hosts_and_pairs(entries: FlowTable) -> tuple[HostFlows, HostFlows]:
    """Return the flow entries of LEARN that represent hosts, and those of RATE_CONTROL that represent pairs."""
    columns = entries.columns
    hosts, pairs = select_like(KNOWN_SOURCE, *columns)[1], select_like(PAIR, *columns)[1]
    return hosts, pairs.only(pairs.meter_id > 0)


def vn_meter_flows(entries: FlowTable) -> Iterator[Flow]:
    """Yield the flow entries that name meters of VNs, not those of pairs."""
    keys, meter_id = entries.columns
    table_id = keys.view(np.uint8)[:: KEY.itemsize]  # the first byte of each key
    is_pair = select_like(PAIR, keys, meter_id)[0]
    names_vn_meter = np.isin(table_id, _VN_METER_TABLES) & (meter_id > 0) & ~is_pair
    return (flow for packed in keys[names_vn_meter].tolist() if (flow := entries.flow(packed)) is not None)


def _no_rows() -> HostFlows:
    """Return columns without flow entries."""
    return hosts_and_pairs(FlowTable())[1]


@dataclass(slots=True)
class DeferredAdoption:
    """A switch's flow entries for pairs with unknown receivers, and all its meters, as of its connection.

    The pairs' meters keep their settings until the receiver's switch has connected as well.
    """

    entries: HostFlows = field(default_factory=_no_rows)
    meters: NDArray[np.void] = field(default_factory=lambda: np.empty(0, METER_CONFIG))

    @property
    def holds_anything(self) -> bool:
        """Return whether any flow entries are kept."""
        return len(self.entries.key) > 0 or len(self.meters) > 0

    def pop_known(self, knows: Callable[[Host], bool], come: Collection[Host] | None = None) -> HostFlows:
        """Return the flow entries to hosts that are known now, and remove them; only to hosts in ``come``, if given."""
        if come is None:
            known = self.entries.map_distinct("mac", lambda vlan_vid, mac: knows(Host(vlan_vid, mac))) > 0
        else:
            known = self.entries.to((host.vlan_vid, host.mac) for host in come if knows(host))
        taken, self.entries = self.entries.only(known), self.entries.only(~known)
        return taken


class InstalledPairs(NamedTuple):
    """Pairs with installed meters, in columns, (pairs,): rows of the VN table, the meter and its setting."""

    sender: IntArray
    receiver: IntArray
    meter_id: IntArray
    rate_kbps: IntArray
    burst_kbits: IntArray

    def only(self, rows: BoolArray | IntArray) -> InstalledPairs:
        """Return some of the pairs."""
        return InstalledPairs._make(column[rows] for column in self)

    @classmethod
    def together(cls, parts: Iterable[InstalledPairs]) -> InstalledPairs:
        """Return the pairs of all parts."""
        nothing = [np.empty(0, dtype=np.int64)] * len(cls._fields)
        return cls._make(np.concatenate(columns) for columns in zip(nothing, *parts, strict=True))


def adopted_pairs(
    rows: HostFlows, network: ForwardingState, dpid: int, installed: MeterSettingsTable
) -> InstalledPairs:
    """Return the pairs of a switch's flow entries, with their meters, which are all in ``installed``.

    Flow entries with unknown or equal ends are omitted.
    """

    def sender(vlan_vid: int, port_no: int) -> int:
        row = network.sender_at(vlan_vid, network.numbers.port(dpid, port_no))
        return NO_ROW if row is None else row

    def receiver(vlan_vid: int, mac: int) -> int:
        row: int | None = network.vn_of(Host(vlan_vid, mac))
        return NO_ROW if row is None else row

    ends = rows.map_distinct("in_port", sender), rows.map_distinct("mac", receiver)
    pairs = InstalledPairs(*ends, *installed.select(rows.meter_id))
    return pairs.only((pairs.sender != NO_ROW) & (pairs.receiver != NO_ROW) & (pairs.sender != pairs.receiver))
