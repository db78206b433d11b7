"""The flow entries of known hosts: their location, the output to them, and the packet-ins of frames to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.fabric.config_model import Switch
from controller.fabric.port_numbers import PortNumbers
from controller.fabric.topology import PortId
from controller.fabric.vn_table import VnTable
from controller.forwarding import pipeline
from controller.forwarding.desired_flows import DesiredFlows
from controller.forwarding.flow_table import FlowKey, flow_key
from controller.forwarding.known_hosts import KnownHosts, ReportedSources
from controller.forwarding.marking_flows import MarkingFlows
from controller.forwarding.pairs import Host
from controller.forwarding.path_flows import edges_by_vlan
from controller.openflow.ethernet import CONTROL_ETH_TYPES
from controller.openflow.flows import Flow


@dataclass(frozen=True)
class ForwardingSettings:
    """Settings of the flow entries.

    ``mac_ageing_s`` is how long an idle host is kept; a VN may learn at most ``max_macs_per_vn`` hosts.
    ``control_ethertypes`` are the EtherTypes of control frames, ``marking`` is what is done to packets that may be
    marked. ``limited`` are the VNs (rows) to which senders without a flow entry may send little.
    """

    mac_ageing_s: int = 300
    max_macs_per_vn: int = 64
    control_ethertypes: tuple[int, ...] = CONTROL_ETH_TYPES[:1]
    marking: pipeline.EcnMarking = pipeline.HIDDEN_ECT_1
    limited: frozenset[int] = frozenset()


class HostEntries:
    """Puts the flow entries of ``known`` hosts into ``desired``.

    Those at ``queueless`` switches (dpids) name no queue.
    """

    def __init__(
        self,
        desired: DesiredFlows,
        switches: Mapping[int, Switch],
        vns: VnTable,
        settings: ForwardingSettings,
        known: KnownHosts,
        marked: MarkingFlows,
        numbers: PortNumbers,
        queueless: set[int],
    ) -> None:
        self._desired, self._switches, self._vns, self._settings = desired, switches, vns, settings
        self._known, self._marked, self._numbers, self._queueless = known, marked, numbers, queueless
        self._edges = edges_by_vlan(switches.values())
        # By row: which unknown hosts of a full VN cause packet-ins, if not all.
        self._reported_sources: dict[int, ReportedSources] = {}
        self._phantom_of_vn: dict[int, int] = {}  # the phantom meter's id by row

    def put(self, host: Host) -> None:
        """Make the flow entries of a host."""
        self.put_known_source(host)
        self.put_to_edge(host)
        own_dpid = self._vns.key(self._known.row_of(host)).dpid
        other_flows = self._discovery(None, host)
        dpids = filter(self._desired.tracks, self._edges[host.vlan_vid])
        flows = {dpid: self._discovery(dpid, host) if dpid == own_dpid else other_flows for dpid in dpids}
        self._desired.put(("discover", host), flows)

    def drop(self, host: Host) -> None:
        """Drop the flow entries of a host."""
        for group in ("source", "forward", "discover"):
            self._desired.drop((group, host))

    def set_reported_sources(self, row: int, sources: ReportedSources) -> None:
        """Set which unknown hosts of a full VN cause packet-ins; those of a VN that is not full all do."""
        self._reported_sources[row] = sources
        if sources is ReportedSources.ALL:
            del self._reported_sources[row]
        self.put_unknown_source(row)

    def put_at(self, host: Host, dpid: int) -> None:
        """Make a host's flow entries at a switch that has none for the host yet, except those of pairs.

        The host's own switch gets its location and the output to it; each edge switch of its VLAN gets the entry that
        reports new pairs to it (group "discover").
        """
        own = self._vns.key(self._known.row_of(host))
        if own.dpid == dpid:
            self.put_known_source(host)
            self.put_to_edge(host)
        if dpid in self._edges[host.vlan_vid]:
            self._desired.put_at(("discover", host), dpid, self._discovery(dpid, host))

    def _discovery(self, dpid: int | None, host: Host) -> tuple[Flow, ...]:
        """Return the flow entries that report new pairs to a host, at a switch; None: at all except its own.

        At its own switch, frames from its own VN pass without a report.
        """
        row = self._known.row_of(host)
        own, limited = self._vns.key(row), row in self._settings.limited
        if dpid == own.dpid:
            number = self._numbers.number(PortId(own.dpid, own.port_no))
            inside = pipeline.forward_within_vn(number, host.vlan_vid, host.mac)
            return pipeline.report_new_pair(host.vlan_vid, host.mac, limited=limited), inside
        marks = host.vlan_vid in self._marked.vlans
        return (pipeline.report_new_pair(host.vlan_vid, host.mac, marks=marks, limited=limited),)

    def put_known_source(self, host: Host, *, removed: bool = False) -> None:
        """Put the known-source entry of a host at its location; ``removed`` if the switch has removed it."""
        if removed:
            self._desired.drop(("source", host))
        own = self._vns.key(self._known.row_of(host))
        number = self._numbers.number(PortId(own.dpid, own.port_no))
        flow = pipeline.known_source(number, host.vlan_vid, host.mac, self._settings.mac_ageing_s)
        self._desired.put(("source", host), {own.dpid: [flow]})

    def put_unknown_source(self, row: int) -> None:
        """Put the flow entry that reports a VN's frames from unknown addresses, unless they are ignored."""
        own = self._vns.key(row)
        number = self._numbers.number(PortId(own.dpid, own.port_no))
        sources = self._reported_sources.get(row, ReportedSources.ALL) if self._known.full(row) else ReportedSources.ALL
        flows = [pipeline.unknown_source(number, own.vlan_vid, report=sources is ReportedSources.ALL)]
        if sources is ReportedSources.CALLERS:
            flows.append(pipeline.unknown_group_source(number, own.vlan_vid))
        self._desired.put(("unknown", row), {own.dpid: flows})

    def put_to_edge(self, host: Host) -> None:
        """Put the flow entry by which a host's own switch outputs frames to it.

        With it come the flow entries of its VN's phantom meter and those that clear marks, where there are such.
        """
        own = self._vns.key(self._known.row_of(host))
        port = self._numbers.on_switch(own.dpid, self._switches[own.dpid].ports[own.port_no])
        set_queue = own.dpid not in self._queueless
        meter_id = self._phantom_of_vn.get(self._known.row_of(host))
        to_edge = pipeline.forward_to_edge(
            port, host.vlan_vid, host.mac, set_queue=set_queue, phantom=meter_id is not None
        )
        flows = [to_edge]
        if meter_id is not None:
            flows.append(pipeline.phantom(host.vlan_vid, host.mac, meter_id))
        if host.vlan_vid in self._marked.vlans:
            flows += pipeline.clear_marks(own.port_no, host.vlan_vid, host.mac, self._marked.marking)
        self._desired.put(("forward", host), {own.dpid: flows})

    def set_phantom(self, row: int, meter_id: int | None) -> None:
        """Let frames to a VN's hosts pass this phantom meter after their output; None: no meter."""
        if meter_id is None:
            self._phantom_of_vn.pop(row, None)
        else:
            self._phantom_of_vn[row] = meter_id
        for host in self._known.hosts_of_vn(row):
            self.put_to_edge(host)

    def phantom_keys(self, row: int) -> list[FlowKey]:
        """Return the keys of the flow entries that name a VN's phantom meter, whatever its id."""
        return [flow_key(pipeline.phantom(host.vlan_vid, host.mac, 1)) for host in self._known.hosts_of_vn(row)]
