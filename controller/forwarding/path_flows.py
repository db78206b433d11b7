"""Links between switches: the paths, and the flow entries that admit and flood frames between switches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from controller.fabric.config_model import EdgePort, Switch
from controller.fabric.port_numbers import PortNumbers
from controller.fabric.topology import FloodTree, Link, PortId, SwitchPaths, Topology
from controller.forwarding import pipeline
from controller.forwarding.desired_flows import DesiredFlows
from controller.forwarding.marking_flows import MarkingFlows


class _FlowInputs(NamedTuple):
    """The inputs of a switch's flow entries that admit frames of other switches and that flood.

    ``ports`` are the numbers of its ports to other switches, ``flood_ports`` those of them that floods of a VLAN leave
    by, by VLAN id; ``marked`` are the VLANs whose policy uses marks, ``fenced`` the numbers of edge ports without
    floods, ``numbers`` the present numbers of ports that are given by their interface.
    """

    ports: set[int]
    flood_ports: dict[int, tuple[int, ...]]
    set_queue: bool
    marked: frozenset[int]
    fenced: frozenset[int]
    numbers: dict[int, int]


class PathFlows:
    """The links that are up (``topology``), the paths over them, and the flow entries that admit and flood frames.

    ``edges`` has each VLAN's edge ports, by VLAN id and dpid; ``is_edge`` returns whether a port is an edge port.
    ``queueless`` are the dpids of switches whose flow entries name no queue, and may change before a switch is up
    (``switch_up``). ``fenced`` are the edge ports that get no floods; after a change, call ``rebuild``.
    """

    def __init__(
        self,
        desired: DesiredFlows,
        edges: Mapping[int, Mapping[int, list[EdgePort]]],
        marked: MarkingFlows,
        is_edge: Callable[[PortId], bool],
        queueless: Container[int],
        fenced: Collection[PortId],
        numbers: PortNumbers,
    ) -> None:
        self._fenced, self._numbers = fenced, numbers
        self.topology = Topology()
        self._desired, self._edges, self._marked = desired, edges, marked
        self._is_edge, self._queueless = is_edge, queueless
        self._paths = SwitchPaths(frozenset(), {})
        self._flood_tree: frozenset[Link] = frozenset()  # the links that floods use now
        self._is_retiring = False  # whether floods avoid the links that only one of the old and the new tree has
        self._links_changed = False
        self._inputs: dict[int, _FlowInputs] = {}  # by dpid

    def inherit(self, before: PathFlows, dpids: Iterable[int]) -> None:
        """Take over the links between these switches from ``before``, and flood along its tree."""
        self.topology = before.topology.limited_to(dpids, self._is_edge)
        links = self.topology.links()
        self._flood_tree = frozenset(link for link in before._flood_tree if link in links)
        self._is_retiring = before._is_retiring
        self._links_changed = True

    def switch_up(self, dpid: int) -> None:
        """Record that a switch is connected: paths may lead through it."""
        self.topology.add_switch(dpid)
        self._links_changed = True

    def switch_down(self, dpid: int) -> None:
        """Record that a switch is disconnected: paths avoid it. Its desired flow entries stay for its return."""
        self.topology.remove_switch(dpid)
        self._links_changed = True

    def release_switch(self, dpid: int) -> None:
        """Drop the inputs of a switch that another node owns now; if it returns, its flow entries are built anew."""
        self._inputs.pop(dpid, None)

    def port_down(self, port: PortId, now_s: float) -> None:
        """Record that a port lost its link."""
        self._links_changed = self.topology.remove_port(port, now_s) or self._links_changed

    def on_discovery_frame(self, sender: PortId, receiver: PortId, now_s: float) -> bool:
        """Record that a discovery probe of one switch's port reached another; return whether that brought a link up."""
        if self._is_edge(sender) or self._is_edge(receiver):
            return False
        link_came_up = self.topology.record_probe(sender, receiver, now_s)
        self._links_changed = self._links_changed or link_came_up
        return link_came_up

    def merge_peer_probes(
        self, dpids: Container[int], is_late: Mapping[tuple[PortId, PortId], bool], now_s: float
    ) -> None:
        """Merge the discovery probes that another node received at its switches, ``dpids``.

        ``is_late`` has each probe's (sender, receiver), and whether the next probe is late. A late probe is still
        merged if it is new. Otherwise it does not extend the link's timeout here, so that this node repeats the probe
        if it sends it. Probes that ``is_late`` lacks are dropped.
        """
        known = dict.fromkeys(self.topology.probes_received_at(dpids))
        removed = [ends for ends in known if ends not in is_late]
        self._links_changed = self.topology.drop_probes(removed) or self._links_changed
        for ends, late in is_late.items():
            if not late or ends not in known:
                self.on_discovery_frame(*ends, now_s)

    def tick(self, now_s: float) -> None:
        """Expire links, and let floods use a new tree once the links of the old one are out of use.

        They are out of use when the changes that remove them have been taken from ``desired``.
        """
        self._is_retiring = self._is_retiring and bool(self._desired.pending)
        if self.topology.expire(now_s) or self._flood_tree != self._paths.tree:
            self._links_changed = True

    def find(self) -> bool:
        """Update floods and ``next_port`` to the links that are up; return whether any link changed.

        The links of a switch go up or down together, so that paths are computed here once for all changes.
        """
        if not self._links_changed:
            return False
        self._links_changed = False
        self._paths = self.topology.paths()
        # A flood over links of two trees could loop: first only their common links are used, the rest at the next tick.
        new_tree = self._paths.tree
        self._is_retiring = self._is_retiring or not self._flood_tree <= new_tree
        self._flood_tree = self._flood_tree & new_tree if self._is_retiring else new_tree
        tree = FloodTree(self._flood_tree)
        switches_of_vlan = {vid: tree.switches(edges) for vid, edges in self._edges.items()}
        for dpid in filter(self._desired.tracks, self.topology.switches):
            self._put(dpid, {vid: tree.ports_towards(dpid, switches) for vid, switches in switches_of_vlan.items()})
        return True

    @property
    def next_port(self) -> Mapping[tuple[int, int], int]:
        """The output port to another switch, by (dpid, dpid of the other switch)."""
        return self._paths.next_port

    def rebuild(self, only: int | None = None) -> None:
        """Rebuild the flow entries of all tracked switches (or ``only`` one) whose inputs changed."""
        for dpid, inputs in list(self._inputs.items()):
            if only in (None, dpid):
                self._put(dpid, inputs.flood_ports)

    def _put(self, dpid: int, flood_ports: dict[int, tuple[int, ...]]) -> None:
        """Let a switch admit frames of other switches, and flood each VLAN; do nothing if no input changed.

        ``flood_ports`` has the numbers of the ports to other switches that a VLAN's floods leave by, by VLAN id.
        """
        ports, marked = self.topology.fabric_ports(dpid), self._marked.vlans
        set_queue = dpid not in self._queueless
        fenced = frozenset(port.port_no for port in self._fenced if port.dpid == dpid)
        numbers = self._numbers.bound(dpid)
        inputs = _FlowInputs(ports, flood_ports, set_queue, marked, fenced, numbers)
        if self._inputs.get(dpid) == inputs:
            return
        self._inputs[dpid] = inputs
        admitted = [
            pipeline.admit_from_fabric(port, vid, marks=vid in marked) for port in sorted(ports) for vid in self._edges
        ]
        self._desired.put(("fabric", dpid), {dpid: admitted})
        floods = []
        for vid, edges in self._edges.items():
            open_ports = [
                port if port.port_no not in numbers else replace(port, port_no=numbers[port.port_no])
                for port in edges.get(dpid, [])
                if port.port_no not in fenced
            ]
            floods.append(pipeline.flood(vid, flood_ports[vid], open_ports, set_queue=set_queue))
        self._desired.put(("flood", dpid), {dpid: floods})


def edges_by_vlan(switches: Iterable[Switch]) -> dict[int, dict[int, list[EdgePort]]]:
    """Return the edge ports of each VLAN, by dpid; VLANs in ascending order."""
    edges: defaultdict[int, defaultdict[int, list[EdgePort]]] = defaultdict(lambda: defaultdict(list))
    for switch in switches:
        for port in switch.ports.values():
            for vid in port.vlan_vids:
                edges[vid][switch.dpid].append(port)
    return {vid: dict(by_dpid) for vid, by_dpid in sorted(edges.items())}
