"""The flow entries that count congestion marks by pair, and those that let frames be marked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np

from controller.columns import BoolArray, IntArray
from controller.fabric.port_numbers import PortNumbers
from controller.fabric.topology import PortId
from controller.fabric.vn_table import VnTable
from controller.forwarding import pipeline
from controller.forwarding.desired_flows import DesiredFlows
from controller.forwarding.flow_table import FlowKey, flow_key
from controller.forwarding.pairs import Host, Pair
from controller.openflow.flows import Flow


class MarkingFlows:
    """The VLANs whose packets switches along the path may mark (``vlans``), and the meters that count marks by pair.

    ``hosts_of_vn`` returns the known hosts of a VN.
    """

    def __init__(
        self,
        desired: DesiredFlows,
        vns: VnTable,
        hosts_of_vn: Callable[[int], Iterable[Host]],
        marking: pipeline.EcnMarking,
        numbers: PortNumbers,
    ) -> None:
        self._numbers = numbers
        self.vlans: frozenset[int] = frozenset()
        self.marking = marking
        self._desired, self._vns, self._hosts_of_vn = desired, vns, hosts_of_vn
        self._meter_of_pair: dict[Pair, int] = {}
        self._pairs_from: defaultdict[int, set[Pair]] = defaultdict(set)

    def allow(self, vids: frozenset[int]) -> frozenset[int]:
        """Let the VNs of exactly these VLANs send frames that may be marked; return the VLANs that changed."""
        changed, self.vlans = vids ^ self.vlans, vids
        self.renumbered(np.flatnonzero(np.isin(self._vns.vlan_vid, sorted(changed))).tolist())
        return changed

    def renumbered(self, rows: Iterable[int]) -> None:
        """Rebuild the flow entries that let these VNs' frames be marked."""
        for row in rows:
            vn = self._vns.key(row)
            number = self._numbers.number(PortId(vn.dpid, vn.port_no))
            flows = pipeline.allow_marks(number, vn.vlan_vid, self.marking) if vn.vlan_vid in self.vlans else ()
            self._desired.put(("marks", row), {vn.dpid: flows})

    def crosses(self, pair: Pair) -> bool:
        """Return whether frames of a pair may be marked: they leave the sender's switch."""
        sender, receiver = self._vns.key(pair.sender), self._vns.key(pair.receiver)
        return sender.vlan_vid in self.vlans and sender.dpid != receiver.dpid

    def crosses_mask(self, sender: IntArray, receiver: IntArray) -> BoolArray:
        """Return which pairs' frames may be marked, in columns, (pairs,), as ``crosses`` does for one."""
        allowed = np.isin(self._vns.vlan_vid[sender], sorted(self.vlans))
        crosses: BoolArray = allowed & (self._vns.dpid[sender] != self._vns.dpid[receiver])
        return crosses

    def set_counter(self, pair: Pair, meter_id: int | None) -> None:
        """Let marked frames from a pair's sender to its receiver pass this meter; None: no meter."""
        if meter_id is None:
            self._meter_of_pair.pop(pair, None)
            self._pairs_from[pair.sender].discard(pair)
            self._desired.drop(("counter", pair))
        else:
            self._meter_of_pair[pair] = meter_id
            self._pairs_from[pair.sender].add(pair)
            self._put(pair)

    def hosts_changed(self, row: int) -> None:
        """Update the counting entries of a VN that got or lost a host: there is one for each host."""
        for pair in self._pairs_from[row]:
            self._put(pair)

    def counter_keys(self, pair: Pair) -> list[FlowKey]:
        """Return the keys of the flow entries that name the counting meter of a pair, whatever its id."""
        return [flow_key(flow) for flow in self._flows(pair, 1)]

    def _put(self, pair: Pair) -> None:
        flows = self._flows(pair, self._meter_of_pair[pair])
        self._desired.put(("counter", pair), {self._vns.key(pair.receiver).dpid: flows})

    def _flows(self, pair: Pair, meter_id: int) -> list[Flow]:
        port_no = self._vns.key(pair.receiver).port_no
        hosts = self._hosts_of_vn(pair.sender)
        return [pipeline.count_marks(port_no, host.vlan_vid, host.mac, meter_id) for host in hosts]
